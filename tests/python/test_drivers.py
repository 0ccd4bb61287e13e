"""The patterns through pymongo: results, errors and their details, and that sessions, retries,
transactions and pools of the driver work after rejections.
"""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from threading import Barrier

import pytest
import servers
from pymongo import InsertOne, MongoClient, ReplaceOne, ReturnDocument, UpdateOne
from pymongo.errors import BulkWriteError, OperationFailure, WriteError

RULES = """
version: 1
rules:
  - name: orders
    why: They erase each other's fields.
    namespace: "*.orders"
    replacement: { policy: reject }
  - name: carts
    namespace: "*.carts"
    replacement: { policy: check_version, version: version }
  - name: drafts
    namespace: "*.drafts"
    replacement: { policy: check_version, version: version, on_conflict: ignore }
  - name: invoices
    namespace: "*.invoices"
    sequence: { field: no, counter: no, block: 1 }
  - name: devices
    namespace: "*.devices"
    timestamps: { source: at, hide: true }
"""


@pytest.fixture(scope="module")
def docward(docward_factory):
    return docward_factory(RULES)


@pytest.fixture
def client(docward):
    with MongoClient(docward.uri) as client:
        yield client


@pytest.fixture
def database(client, mongod, request):
    name = request.node.name.split("[")[0][:60]
    with MongoClient(mongod.uri) as direct:
        direct.drop_database(name)
    return client[name]


def codes(error):
    return [(each["index"], each["code"]) for each in error.value.details["writeErrors"]]


BATCH = [
    InsertOne({"_id": 1, "a": 1}),
    UpdateOne({"_id": 1}, {"$set": {"b": 1}}),
    ReplaceOne({"_id": 1}, {"a": 2}),
    UpdateOne({"_id": 1}, {"$inc": {"a": 1}}),
    UpdateOne({"_id": 5}, {"$set": {"b": 1}}, upsert=True),
    ReplaceOne({"_id": 2}, {"a": 2}, upsert=True),
    InsertOne({"_id": 1}),
    InsertOne({"_id": 3}),
]


def test_an_ordered_bulk_write_stops_at_the_rejection(database):
    with pytest.raises(BulkWriteError) as error:
        database.orders.bulk_write(BATCH)
    assert codes(error) == [(2, 121)]
    details = error.value.details
    assert (details["nInserted"], details["nMatched"], details["nModified"]) == (1, 1, 1)
    rejected = details["writeErrors"][0]
    assert rejected["op"]["q"] == {"_id": 1}
    assert rejected["errInfo"]["docward"]["rule"] == "orders"
    assert "They erase each other's fields." in rejected["errmsg"]
    assert list(database.orders.find()) == [{"_id": 1, "a": 1, "b": 1}]


def test_an_unordered_bulk_write_runs_all_others(database):
    with pytest.raises(BulkWriteError) as error:
        database.orders.bulk_write(BATCH, ordered=False)
    assert sorted(codes(error)) == [(2, 121), (6, 11000)]
    details = error.value.details
    assert (details["nInserted"], details["nMatched"], details["nUpserted"]) == (2, 2, 2)
    # A replacement that inserts does not erase anything.
    assert details["upserted"] == [{"index": 4, "_id": 5}, {"index": 5, "_id": 2}]
    stored = {each["_id"]: each for each in database.orders.find()}
    assert stored == {1: {"_id": 1, "a": 2, "b": 1}, 2: {"_id": 2, "a": 2}, 3: {"_id": 3}, 5: {"_id": 5, "b": 1}}


def test_a_batch_larger_than_one_message_keeps_its_indexes(database):
    text = "x" * 1_000_000
    database.orders.insert_one({"_id": 55})
    requests = [UpdateOne({"_id": n}, {"$set": {"text": text}}, upsert=True) for n in range(60)]
    requests[55] = ReplaceOne({"_id": 55}, {"text": text})
    with pytest.raises(BulkWriteError) as error:
        database.orders.bulk_write(requests, ordered=False)
    assert codes(error) == [(55, 121)]
    assert database.orders.count_documents({"text": text}) == 59


def test_rejected_single_writes_raise_the_drivers_usual_errors(database):
    database.orders.insert_one({"_id": 1, "a": 1})
    with pytest.raises(WriteError) as error:
        database.orders.replace_one({"_id": 1}, {"a": 2})
    assert error.value.code == 121
    assert error.value.details["errInfo"]["docward"]["pattern"] == "replacement"
    with pytest.raises(OperationFailure) as error:
        database.orders.find_one_and_replace({"_id": 1}, {"a": 2})
    assert error.value.code == 121
    assert error.value.details["errInfo"]["docward"]["rule"] == "orders"
    assert not error.value.has_error_label("RetryableWriteError")
    assert database.orders.update_one({"_id": 1}, {"$set": {"b": 1}}).modified_count == 1


def test_find_one_and_replace_with_a_version(database):
    carts = database.carts
    carts.insert_one({"_id": 1, "n": 0, "version": 1})
    cart = carts.find_one({"_id": 1})
    after = carts.find_one_and_replace({"_id": 1}, {**cart, "n": 1}, return_document=ReturnDocument.AFTER)
    assert after == {"_id": 1, "n": 1, "version": 2}
    with pytest.raises(OperationFailure) as error:
        carts.find_one_and_replace({"_id": 1}, {**cart, "n": 2})
    assert error.value.code == 112
    drafts = database.drafts
    drafts.insert_one({"_id": 1, "version": 5})
    assert drafts.find_one_and_replace({"_id": 1}, {"version": 4}) is None
    assert drafts.replace_one({"_id": 1}, {"version": 4}).matched_count == 0


def test_no_update_is_lost_between_writers_that_replace(docward, database):
    writers, each = 8, 10
    database.carts.insert_one({"_id": 1, "n": 0, "version": 1})
    conflicts = []
    # All writers have read before the first one writes.
    all_have_read = Barrier(writers)

    def work(_):
        with MongoClient(docward.uri) as client:
            carts = client[database.name].carts
            done, first = 0, True
            while done < each:
                cart = carts.find_one({"_id": 1})
                cart["n"] += 1
                if first:
                    all_have_read.wait(servers.TIMEOUT)
                    first = False
                try:
                    assert carts.replace_one({"_id": 1}, cart).modified_count == 1
                    done += 1
                except WriteError as error:
                    assert error.code == 112
                    conflicts.append(error)

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(work, range(writers)))
    cart = database.carts.find_one()
    assert (cart["n"], cart["version"]) == (writers * each, writers * each + 1)
    assert conflicts


def test_numbers_in_batches_and_from_many_threads(database):
    result = database.invoices.insert_many([{"_id": n} for n in range(20)])
    assert result.inserted_ids == list(range(20))
    assert [each["no"] for each in database.invoices.find().sort("_id")] == list(range(1, 21))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: database.invoices.insert_one({"_id": n}), range(100, 180)))
    assert sorted(database.invoices.distinct("no")) == list(range(1, 101))


def test_late_events_are_dropped_and_timestamps_stay_hidden(database):
    def event(day, **fields):
        at = datetime(2026, 1, day, tzinfo=timezone.utc)
        return UpdateOne({"_id": 1}, {"$set": {**fields, "at": at}}, upsert=True)

    batch = [event(3, t=30), event(1, t=10, u=1), event(2, u=2)]
    result = database.devices.bulk_write(batch + batch)
    assert (result.upserted_count, result.matched_count) == (1, 5)
    device = database.devices.find_one()
    assert device == {"_id": 1, "t": 30, "u": 2, "at": datetime(2026, 1, 3)}
    assert list(database.devices.aggregate([{"$match": {"_id": 1}}])) == [device]
    assert database.devices.find_one_and_update({"_id": 1}, {"$set": {"at": datetime(2026, 1, 9)}}) == device
    assert "last_modified" in database.devices.find_one({}, {"last_modified": 1})


class Failing:
    """A failpoint of mongod for commands of one client."""

    def __init__(self, mongod, appname, times, data):
        self.direct = MongoClient(mongod.uri)
        self.mode = {"times": times}
        self.data = {"appName": appname, **data}

    def _configure(self, mode):
        self.direct.admin.command("configureFailPoint", "failCommand", mode=mode, data=self.data)

    def __enter__(self):
        self._configure(self.mode)

    def __exit__(self, *_):
        self._configure("off")
        self.direct.close()


FAILURES = {
    "closed": {"closeConnection": True},
    "stepped down": {"errorCode": 10107, "errorLabels": ["RetryableWriteError"]},
    # The write is applied, but the reply is lost.
    "write concern": {"writeConcernError": {"code": 91, "errmsg": "down", "errorLabels": ["RetryableWriteError"]}},
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("ordered", [True, False])
def test_the_driver_retries_batches_that_docward_split(docward, mongod, failure, ordered):
    appname = f"retries-{failure}-{ordered}"
    name = f"retries_{failure.replace(' ', '_')}_{ordered}"
    with MongoClient(docward.uri, appname=appname) as client, MongoClient(mongod.uri) as direct:
        direct.drop_database(name)
        carts = client[name].carts
        carts.insert_many([{"_id": n, "n": 0, "version": 1} for n in range(3)])
        batch = [
            UpdateOne({"_id": 0}, {"$inc": {"n": 1}}),
            ReplaceOne({"_id": 1}, {"n": 10, "version": 1}),
            UpdateOne({"_id": 2}, {"$inc": {"n": 1}}),
            ReplaceOne({"_id": 1}, {"n": 20, "version": 1}),
        ]
        with Failing(mongod, appname, 1, {"failCommands": ["update"], **FAILURES[failure]}):
            with pytest.raises(BulkWriteError) as error:
                carts.bulk_write(batch, ordered=ordered)
        assert codes(error) == [(3, 112)]
        assert (error.value.details["nMatched"], error.value.details["nModified"]) == (3, 3)
        stored = [(each["n"], each["version"]) for each in carts.find().sort("_id")]
        assert stored == [(1, 2), (10, 2), (1, 2)]


@pytest.mark.parametrize("failure", FAILURES)
def test_the_driver_retries_inserts_that_got_numbers(docward, mongod, failure):
    appname = f"numbers-{failure}"
    name = f"numbers_{failure.replace(' ', '_')}"
    with MongoClient(docward.uri, appname=appname) as client, MongoClient(mongod.uri) as direct:
        direct.drop_database(name)
        invoices = client[name].invoices
        with Failing(mongod, appname, 1, {"failCommands": ["insert"], **FAILURES[failure]}):
            invoices.insert_many([{"_id": n} for n in range(3)])
        numbers = invoices.distinct("no")
    assert len(numbers) == len(set(numbers)) == 3


def test_with_transaction_runs_again_after_a_transient_error(docward, mongod):
    appname = "transactions"
    with MongoClient(docward.uri, appname=appname) as client:
        database = client["with_transaction"]
        client.drop_database(database.name)
        database.carts.insert_one({"_id": 1, "n": 0, "version": 1})
        runs = []

        def transfer(session):
            runs.append(session)
            cart = database.carts.find_one({"_id": 1}, session=session)
            database.carts.replace_one({"_id": 1}, {**cart, "n": cart["n"] + 1}, session=session)
            database.invoices.insert_one({"_id": len(runs)}, session=session)

        failing = {"failCommands": ["insert"], "errorCode": 112, "errorLabels": ["TransientTransactionError"]}
        with client.start_session() as session, Failing(mongod, appname, 1, failing):
            session.with_transaction(transfer)
        assert len(runs) == 2
        assert database.carts.find_one() == {"_id": 1, "n": 1, "version": 2}
        assert [each["_id"] for each in database.invoices.find()] == [2]


def test_a_rejection_in_a_transaction_reaches_the_application_and_nothing_is_written(client, database):
    database.orders.insert_one({"_id": 1, "a": 1})
    runs = []

    def change(session):
        runs.append(session)
        database.orders.update_one({"_id": 1}, {"$set": {"a": 2}}, session=session)
        database.orders.replace_one({"_id": 1}, {"b": 1}, session=session)

    with client.start_session() as session:
        with pytest.raises(WriteError) as error:
            session.with_transaction(change)
        assert error.value.code == 121
        assert len(runs) == 1, "no label that makes the driver try again"
        assert database.orders.find_one() == {"_id": 1, "a": 1}
        # Even if the application catches the error, the transaction is aborted.
        session.start_transaction()
        database.orders.update_one({"_id": 1}, {"$set": {"a": 3}}, session=session)
        with pytest.raises(WriteError):
            database.orders.replace_one({"_id": 1}, {"b": 1}, session=session)
        with pytest.raises(OperationFailure) as error:
            session.commit_transaction()
        assert error.value.has_error_label("TransientTransactionError")
        session.with_transaction(
            lambda session: database.orders.update_one({"_id": 1}, {"$set": {"a": 4}}, session=session)
        )
    assert database.orders.find_one() == {"_id": 1, "a": 4}


def test_a_causally_consistent_session_may_start_a_transaction_with_a_split_batch(client, database):
    database.carts.insert_many([{"_id": n, "version": 1} for n in range(3)])
    with client.start_session(causal_consistency=True) as session:
        database.carts.find_one({}, session=session)
        with session.start_transaction():
            database.carts.bulk_write(
                [ReplaceOne({"_id": n}, {"n": n, "version": 1}) for n in range(3)], session=session
            )
    assert [each["version"] for each in database.carts.find()] == [2, 2, 2]
