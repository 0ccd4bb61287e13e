"""Batches: bulk writes, statements in the body instead of a sequence, and large ones."""

import bson
from pymongo import (
    DeleteMany,
    DeleteOne,
    InsertOne,
    ReplaceOne,
    UpdateMany,
    UpdateOne,
    WriteConcern,
)
from pymongo.errors import BulkWriteError

from observe import digest

from . import contents, operation, people

MIXED = [
    InsertOne({"_id": 10}),
    UpdateOne({"_id": 1}, {"$set": {"name": "Ada"}}),
    UpdateOne({"_id": 11}, {"$set": {"name": "new"}}, upsert=True),
    UpdateMany({}, {"$inc": {"age": 1}}),
    ReplaceOne({"_id": 2}, {"name": "replaced"}),
    ReplaceOne({"_id": 12}, {"name": "replaced"}, upsert=True),
    DeleteOne({"_id": 3}),
    DeleteMany({"_id": {"$lt": 1}}),
]
WITH_ERRORS = [
    InsertOne({"_id": 10}),
    InsertOne({"_id": 1}),
    UpdateOne({"_id": 2}, {"$set": {"a": 1}}),
    UpdateOne({"_id": 2}, {"$bad": 1}),
    UpdateOne({"_id": 3}, {"$set": {"_id": 4}}),
    DeleteOne({"_id": 4}),
    InsertOne({"_id": 10}),
]


@operation
def bulk_write_ordered(db):
    return [people(db).bulk_write(MIXED).bulk_api_result, contents(db.people)]


@operation
def bulk_write_unordered(db):
    return [people(db).bulk_write(MIXED, ordered=False).bulk_api_result, contents(db.people)]


@operation
def bulk_write_ordered_with_error(db):
    return bulk_error(people(db), ordered=True)


@operation
def bulk_write_unordered_with_errors(db):
    return bulk_error(people(db), ordered=False)


def bulk_error(collection, ordered):
    try:
        collection.bulk_write(WITH_ERRORS, ordered=ordered)
    except BulkWriteError as error:
        return [error.details, contents(collection)]
    raise AssertionError("no error")


@operation
def insert_many_ordered_with_duplicates(db):
    return insert_error(db, ordered=True)


@operation
def insert_many_unordered_with_duplicates(db):
    return insert_error(db, ordered=False)


def insert_error(db, ordered):
    try:
        db.people.insert_many([{"_id": i % 7} for i in range(20)], ordered=ordered)
    except BulkWriteError as error:
        return [error.details, contents(db.people)]
    raise AssertionError("no error")


@operation
def bulk_write_unacknowledged(db):
    quiet = people(db).with_options(write_concern=WriteConcern(0))
    acknowledged = quiet.bulk_write(MIXED, ordered=False).acknowledged
    ordered = quiet.bulk_write([InsertOne({"_id": 50}), InsertOne({"_id": 50})]).acknowledged
    return [acknowledged, ordered, contents(db.people)]


@operation
def commands_with_statements_in_the_body(db):
    """The form that auto-encryption, shells and old drivers send."""
    return [
        db.command(
            "insert", "people", documents=[{"_id": 1}, {"_id": 2}, {"_id": 1}], ordered=False
        ),
        db.command(
            "update",
            "people",
            updates=[{"q": {"_id": 1}, "u": {"$set": {"a": 1}}}, {"q": {}, "u": {"b": 1}}],
        ),
        db.command(
            "delete", "people", deletes=[{"q": {"_id": 2}, "limit": 1}, {"q": {}, "limit": 0}]
        ),
    ]


@operation
def statements_with_unknown_fields(db):
    return [
        attempt(db, {"insert": "people", "documents": [{"_id": 1}], "surprise": 1}),
        attempt(db, {"update": "people", "updates": [{"q": {}, "u": {"a": 1}, "surprise": 1}]}),
        attempt(db, {"delete": "people", "deletes": [{"q": {}}]}),
        attempt(db, {"insert": "people", "documents": []}),
        attempt(db, {"insert": "people"}),
        attempt(db, {"insert": "", "documents": [{}]}),
    ]


def attempt(db, command):
    return db.command(command, check=False)


@operation
def insert_15_megabytes(db):
    document = {"_id": 1, "text": "x" * 15_000_000, "bytes": bytes(range(256)) * 100}
    db.big.insert_one(document)
    return digest(db.big.find_one())


@operation
def insert_the_largest_document(db):
    overhead = len(bson.encode({"_id": 1, "text": ""}))
    db.big.insert_one({"_id": 1, "text": "x" * (16 * 1024 * 1024 - overhead)})
    db.big.update_one({}, {"$set": {"text": "y"}})
    return contents(db.big)


@operation
def insert_more_than_a_message_holds(db):
    """60 MB: the driver sends several messages of up to 48 MB."""
    db.big.insert_many([{"_id": i, "text": str(i % 10) * 4_000_000} for i in range(15)])
    pipeline = [
        {"$group": {"_id": None, "n": {"$sum": 1}, "size": {"$sum": {"$bsonSize": "$$ROOT"}}}}
    ]
    return list(db.big.aggregate(pipeline))


@operation
def insert_a_hundred_thousand(db):
    """The maximum number of statements in one message, and one more."""
    result = db.many.insert_many([{"_id": i} for i in range(100_001)])
    return [len(result.inserted_ids), db.many.count_documents({})]


@operation
def update_five_thousand_unordered(db):
    updates = [UpdateOne({"_id": i}, {"$set": {"n": i}}, upsert=i % 2 == 0) for i in range(5_000)]
    result = db.many.bulk_write(updates, ordered=False)
    return [result.bulk_api_result, db.many.count_documents({})]


@operation
def read_30_megabytes_in_batches(db):
    db.big.insert_many([{"_id": i, "text": str(i) * 3_000_000} for i in range(10)])
    return [digest(document) for document in db.big.find(batch_size=4).sort("_id")]


@operation
def bulk_write_of_the_client(db):
    """The 8.0 command; an older server rejects it, and docward must return that error."""
    command = {
        "bulkWrite": 1,
        "ops": [
            {"insert": 0, "document": {"_id": 1}},
            {"update": 0, "filter": {}, "updateMods": {"$set": {"a": 1}}},
        ],
        "nsInfo": [{"ns": f"{db.name}.people"}],
    }
    return [attempt(db.client.admin, command), contents(db.people)]
