"""docward in front of FerretDB, another server with MongoDB's protocol (`make drivers`).

Operations of PyMongo that no rule matches have the same requests and replies as directly. Rules that need what the server
lacks are reported at the start; the others work.
"""

import re
import subprocess
import time
from contextlib import closing

import pytest
from pymongo import MongoClient, errors

import servers
from compiled_drivers import built
from corpus import OPERATIONS
from observe import observe

# The server replies without the plan that `explain` reads, and it replies to unacknowledged writes: PyMongo closes the
# connection directly, docward leaves out the reply.
UNSUPPORTED = {"explain", "unacknowledged_writes"}
# An address in the memory of the server, in its errors.
POINTER = re.compile(r"0x[0-9a-f]{6,}")
COMPARED = [
    operation
    for operation in OPERATIONS
    if operation.run.__module__ in ("corpus.reading", "corpus.writing") and operation.name not in UNSUPPORTED
]
WORKING = """
version: 1
rules:
  - { name: no-save, namespace: shop.orders, replacement: {} }
  - { name: merged, namespace: shop.profiles, replacement: { policy: merge } }
  - { name: pair, namespace: shop.seats, together: [booked, by] }
  - { name: no-drop, namespace: shop.*, deny: { operations: [drop] } }
"""
LACKING = {
    "versions": "replacement: { policy: check_version, version: v }",
    "stock": "bounds: { field: qty, min: 0 }",
    "times": "timestamps: { source: at }",
    "numbers": "sequence: { field: no, counter: no }",
    "jobs": "queue: { lease: 5m }",
    "sizes": "limits: { document: 1MiB }",
    "paths": "tree: {}",
    "former": "history: { into: old, keep: 5 }",
}


class FerretDB(servers.Process):
    def __init__(self, program):
        self.address = f"127.0.0.1:{servers.free_port()}"
        options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        super().__init__("docward-ferretdb-", lambda folder: [program, self.address, folder], **options)
        self.uri = f"mongodb://{self.address}/"
        with MongoClient(self.uri, serverSelectionTimeoutMS=servers.TIMEOUT * 1000) as client:
            client.admin.command("ping")


@pytest.fixture(scope="module")
def ferretdb():
    with closing(FerretDB(built("go-program.sh", "other_server"))) as server:
        yield server


@pytest.fixture(scope="module")
def docward(ferretdb, docward_factory):
    return docward_factory(WORKING, upstream=ferretdb.uri)


@pytest.mark.parametrize("operation", COMPARED, ids=lambda operation: operation.name)
def test_an_operation_is_the_same_through_docward(operation, ferretdb, docward):
    addresses = [ferretdb.address, docward.address]
    index = OPERATIONS.index(operation)
    direct, through = (
        POINTER.sub("", observe(operation, f"{each.uri}?retryWrites=false", f"op{index:03}_{key}", addresses))
        for key, each in (("d", ferretdb), ("t", docward))
    )
    assert through == direct


def test_rules_that_need_nothing_special_work(docward):
    with MongoClient(docward.uri, retryWrites=False) as client:
        shop = client.shop
        shop.orders.insert_one({"_id": 1})
        for rejected in (
            lambda: shop.orders.replace_one({"_id": 1}, {"a": 1}),
            lambda: shop.seats.insert_one({"booked": True}),
            lambda: shop.orders.drop(),
        ):
            with pytest.raises(errors.OperationFailure, match="docward rule"):
                rejected()
        shop.profiles.insert_one({"_id": 9, "name": "Ada", "age": 36})
        shop.profiles.replace_one({"_id": 9}, {"name": "Bob"})
        assert shop.profiles.find_one() == {"_id": 9, "name": "Bob", "age": 36}
        # The server takes the `_id` of an upsert only from the top of its filter.
        shop.profiles.replace_one({"_id": 7, "name": "Eve"}, {"name": "Eve"}, upsert=True)
        assert {each["_id"] for each in shop.profiles.find()} == {7, 9}


def test_what_the_server_lacks_is_reported_at_the_start(ferretdb, docward_factory):
    named = (f"  - {{ name: {name}, namespace: lacking.{name}, {rule} }}" for name, rule in LACKING.items())
    docward = docward_factory("\n".join(["version: 1", "rules:", *named]), upstream=ferretdb.uri)
    deadline = time.monotonic() + servers.TIMEOUT

    def unreported():
        return [name for name in LACKING if not any(f"rule '{name}'" in line for line in docward.log)]

    while unreported() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not unreported(), docward.log
