"""Compression through pymongo: messages are really compressed, and rules, transactions and change streams work.

Its own suite runs with zlib (test_pymongo_core.py); tests/protocol/compression.rs tests all else.
"""

import pytest
from pymongo import InsertOne, MongoClient, ReplaceOne, UpdateOne
from pymongo.errors import BulkWriteError, WriteError

RULES = """
version: 1
rules:
  - name: orders
    namespace: "*.orders"
    replacement: { policy: reject }
"""


@pytest.fixture(scope="module")
def docward(docward_factory):
    return docward_factory(RULES)


@pytest.mark.parametrize("compressor", ["snappy", "zstd"])
def test_compression(docward, compressor):
    with MongoClient(docward.uri, compressors=compressor, maxPoolSize=1) as client:
        client.admin.command("ping")
        with client._get_topology().select_server(lambda servers: servers, "ping").pool.checkout() as connection:
            assert connection.compression_context is not None  # otherwise nothing is compressed
        database = client[f"compression_{compressor}"]

        batch = [
            InsertOne({"_id": 1, "a": 1}),
            ReplaceOne({"_id": 1}, {"b": "x" * 1000}),
            UpdateOne({"_id": 1}, {"$set": {"c": 1}}),
        ]
        with pytest.raises(BulkWriteError) as error:
            database.orders.bulk_write(batch, ordered=False)
        assert [(each["index"], each["code"]) for each in error.value.details["writeErrors"]] == [(1, 121)]
        assert database.orders.find_one() == {"_id": 1, "a": 1, "c": 1}

        database.create_collection("free")
        with database.free.watch() as stream:
            database.free.insert_one({"_id": 1, "text": "x" * 10000})
            assert stream.next()["fullDocument"]["text"] == "x" * 10000

        with client.start_session() as session, pytest.raises(WriteError), session.start_transaction():
            database.free.insert_one({"_id": "aborted"}, session=session)
            database.orders.replace_one({"_id": 1}, {"a": 1}, session=session)
        assert database.free.count_documents({}) == 1
