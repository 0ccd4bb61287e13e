"""pymongo with a replica set of three behind docward: server selection, failover and hand-over."""

import os
import threading
import time

import pytest
import servers
from pymongo import MongoClient
from pymongo.errors import OperationFailure, WriteError
from pymongo.read_preferences import ReadPreference

RULES = """
version: 1
rules:
  - { name: numbered, namespace: "*.numbered", sequence: { field: no, counter: no } }
  - { name: read, namespace: "*.numbered", reads: { max_staleness: 90s } }
"""


@pytest.fixture
def docward(replica_set):
    proxy = start(replica_set, "--query-listen", "127.0.0.1:0", listeners=4)
    yield proxy
    proxy.close()


def start(replica_set, *arguments, **options):
    executable = servers.docward_executable()
    return servers.Docward(executable, replica_set.uri, RULES, arguments, **options)


def uri(docward, **options):
    query = "&".join(f"{key}={value}" for key, value in {"replicaSet": "rs0", **options}.items())
    return f"mongodb://{','.join(docward.addresses[:3])}/?{query}"


def scaled(amount):
    """The same as in tests/support/driver.rs: more rounds with DOCWARD_TEST_SCALE."""
    return max(1, int(amount * float(os.environ.get("DOCWARD_TEST_SCALE", "1"))))


class Load:
    """Calls each of `works` repeatedly in its own thread; collects their exceptions."""

    def __init__(self, *works):
        self.done = 0
        self.errors = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(work,)) for work in works]

    def _run(self, work):
        while not self._stop.is_set():
            try:
                work()
                self.done += 1
            except Exception as error:
                self.errors.append(error)

    def assert_progress(self, count):
        aim = self.done + count
        deadline = time.monotonic() + servers.TIMEOUT
        while self.done < aim:
            assert time.monotonic() < deadline, self.errors[-3:]
            time.sleep(0.02)

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()


def test_read_preferences_reach_the_same_members_as_directly(replica_set, docward):
    with MongoClient(uri(docward)) as through, MongoClient(replica_set.uri) as direct:
        through.shop.things.insert_one({})
        for preference, secondary in [
            (ReadPreference.PRIMARY, False),
            (ReadPreference.PRIMARY_PREFERRED, False),
            (ReadPreference.SECONDARY, True),
            (ReadPreference.SECONDARY_PREFERRED, True),
            (ReadPreference.NEAREST, None),
        ]:
            for client in (direct, through):
                status = client.admin.command("serverStatus", read_preference=preference)
                assert secondary in (None, status["repl"]["secondary"]), (preference, client)
        assert {f"{host}:{port}" for host, port in through.nodes} == set(docward.addresses[:3])


def test_retryable_writes_survive_elections(replica_set, docward):
    with MongoClient(uri(docward)) as client:
        numbered = client.elections.numbered
        with Load(*[lambda: numbered.insert_one({})] * 3) as load:
            for _ in range(3):
                load.assert_progress(20)
                replica_set.step_down()
            load.assert_progress(20)
        numbers = [each["no"] for each in numbered.find()]
    assert not [error for error in load.errors if not is_stepped_down(error)]
    assert len(numbers) == len(set(numbers)) == load.done


def is_stepped_down(error):
    """The error of a write that a member begins while it steps down. mongod reports it, without docward too, as the error
    of a statement, which no driver retries (`assertCanWrite_inlock` and `handleError` in write_ops_exec.cpp)."""
    return isinstance(error, WriteError) and error.code == 189


def test_a_new_process_takes_over_and_no_operation_fails(replica_set, tmp_path):
    # A member's listener is handed over whatever port the new process requests.
    arguments = ("--hand-over", str(tmp_path / "hand-over.sock"))
    before = start(replica_set, *arguments, listeners=3)
    try:
        retrying = MongoClient(uri(before))
        # Reads and writes that drivers do not retry.
        strict = MongoClient(uri(before, retryWrites="false", retryReads="false"))

        def transaction():
            with retrying.start_session() as session, session.start_transaction():
                for _ in range(2):
                    retrying.handed.numbered.insert_one({}, session=session)
                    time.sleep(0.05)

        def fresh():
            with MongoClient(before.address, directConnection=True) as client:
                client.admin.command("ping")

        retrying.handed.numbered.insert_one({})
        with Load(
            lambda: retrying.handed.numbered.insert_one({}),
            lambda: strict.handed.plain.update_many({}, {"$inc": {"n": 1}}, upsert=True),
            lambda: strict.handed.plain.delete_many({"n": -1}),
            lambda: strict.handed.plain.find_one(),
            transaction,
            fresh,
        ) as load:
            for _ in range(scaled(3)):
                load.assert_progress(50)
                after = start(replica_set, *arguments, listeners=3)
                assert before.child.wait(servers.TIMEOUT) == 0
                before.close()
                assert after.addresses == before.addresses
                before = after
            load.assert_progress(50)
        retrying.close()
        strict.close()
    finally:
        before.close()
    assert not load.errors, load.errors[:3]


def test_an_application_with_two_connection_strings(replica_set, docward):
    queries_uri = f"mongodb://{docward.addresses[3]}/"
    with MongoClient(uri(docward, w=3)) as commands, MongoClient(queries_uri) as queries:
        commands.cqrs.numbered.insert_many([{"_id": i} for i in range(5)])
        assert len(list(queries.cqrs.numbered.find(batch_size=2))) == 5
        assert queries.cqrs.numbered.count_documents({}) == 5
        status = queries.admin.command("serverStatus")
        assert status["host"] != replica_set.primary()
        with pytest.raises(OperationFailure, match="member listener of docward") as refused:
            queries.cqrs.numbered.insert_one({})
        assert refused.value.code == 115
        with queries.start_session(causal_consistency=True) as session:
            assert queries.cqrs.numbered.find_one({"_id": 4}, session=session) is not None
