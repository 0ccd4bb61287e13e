"""Compression through pymongo: results are the same as without, and messages are really compressed."""

import os
from datetime import datetime, timezone

import pytest
from pymongo import CursorType, InsertOne, MongoClient, ReplaceOne, UpdateOne
from pymongo.errors import BulkWriteError, WriteError
from pymongo.write_concern import WriteConcern

RULES = """
version: 1
rules:
  - name: orders
    namespace: "*.orders"
    replacement: { policy: reject }
  - name: devices
    namespace: "*.devices"
    timestamps: { source: at, hide: true }
"""
COMPRESSORS = ["snappy", "zlib", "zstd"]


@pytest.fixture(scope="module", params=["", "compressors=zlib", "compressors=snappy"])
def docward(mongod, docward_factory, request):
    """The compressors that docward offers the server: the client's, or its own list."""
    return docward_factory(RULES, upstream=f"{mongod.uri}&{request.param}".rstrip("&"))


@pytest.fixture(params=COMPRESSORS)
def client(docward, request):
    with MongoClient(docward.uri, compressors=request.param, maxPoolSize=1) as client:
        client.admin.command("ping")
        with client._get_topology().select_server(lambda servers: servers, "ping").pool.checkout() as connection:
            assert connection.compression_context is not None  # otherwise nothing is compressed
        yield client


@pytest.fixture
def database(client, mongod):
    with MongoClient(mongod.uri) as direct:
        direct.drop_database("compression")
    return client.compression


def documents(count):
    return [{"_id": number, "text": f"{number} " * 100, "noise": os.urandom(500)} for number in range(count)]


@pytest.mark.parametrize("collection", ["orders", "free"])
def test_reading_and_writing(database, collection):
    collection = database[collection]
    stored = documents(2000)  # batches in several messages, and replies larger than the buffer
    collection.insert_many(stored)
    assert list(collection.find().sort("_id").batch_size(700)) == stored
    assert collection.update_many({"_id": {"$lt": 10}}, {"$set": {"a": 1}}).modified_count == 10
    assert collection.find_one_and_update({"_id": 1}, {"$set": {"a": 2}})["a"] == 1
    assert collection.delete_many({"_id": {"$gte": 1000}}).deleted_count == 1000
    assert collection.count_documents({}) == 1000
    unacknowledged = collection.with_options(write_concern=WriteConcern(w=0))
    unacknowledged.insert_one({"_id": "silent"})
    assert collection.find_one({"_id": "silent"})
    assert len(collection.distinct("_id")) == 1001
    pipeline = [{"$match": {"a": {"$gt": 0}}}, {"$group": {"_id": None, "sum": {"$sum": "$a"}}}]
    assert list(collection.aggregate(pipeline)) == [{"_id": None, "sum": 11}]


@pytest.mark.parametrize("collection", ["devices", "free"])
def test_an_exhaust_cursor(database, collection):
    collection = database[collection]
    now = datetime.now(timezone.utc)
    collection.insert_many({**document, "at": now} for document in documents(500))
    for batch_size in (10, 200):
        cursor = collection.find(cursor_type=CursorType.EXHAUST, batch_size=batch_size)
        assert len(list(cursor)) == 500
    assert collection.count_documents({}) == 500


def test_a_rejected_statement_in_a_batch(database):
    batch = [
        InsertOne({"_id": 1, "a": 1}),
        ReplaceOne({"_id": 1}, {"b": "x" * 1000}),
        UpdateOne({"_id": 1}, {"$set": {"c": 1}}),
    ]
    with pytest.raises(BulkWriteError) as error:
        database.orders.bulk_write(batch, ordered=False)
    assert [(each["index"], each["code"]) for each in error.value.details["writeErrors"]] == [(1, 121)]
    assert "docward rule 'orders'" in error.value.details["writeErrors"][0]["errmsg"]
    assert database.orders.find_one() == {"_id": 1, "a": 1, "c": 1}
    with pytest.raises(WriteError):
        database.orders.replace_one({"_id": 1}, {"b": 1})


def test_a_transaction(client, database):
    database.orders.insert_one({"_id": 0})
    database.free.insert_one({"_id": 0})

    def write(session):
        for collection in (database.orders, database.free):
            collection.insert_many(documents(300)[1:], session=session)
        return database.orders.count_documents({}, session=session)

    with client.start_session() as session:
        assert session.with_transaction(write) == 300
        with pytest.raises(WriteError), session.start_transaction():
            database.free.insert_one({"_id": "aborted"}, session=session)
            database.orders.replace_one({"_id": 1}, {"a": 1}, session=session)
    assert database.free.count_documents({}) == 300


def test_a_change_stream(database):
    database.create_collection("free")
    with database.free.watch() as stream:
        database.free.insert_one({"_id": 1, "text": "x" * 10000})
        assert stream.next()["fullDocument"]["text"] == "x" * 10000
