"""Single writes: every form of insert, update, replace, delete and findAndModify."""

from datetime import datetime

import bson
from bson.codec_options import DatetimeConversion
from bson.raw_bson import RawBSONDocument
from pymongo import ReturnDocument, WriteConcern

from . import contents, operation, people


@operation
def insert_one(db):
    result = db.people.insert_one({"_id": 1, "name": "Ada"})
    return [result.inserted_id, result.acknowledged, contents(db.people)]


@operation
def insert_without_id(db):
    result = db.people.insert_one({"name": "Ada"})
    return [result.inserted_id, contents(db.people)]


@operation
def insert_many(db):
    result = db.people.insert_many([{"_id": i} for i in range(20)])
    return [result.inserted_ids, contents(db.people)]


@operation
def insert_every_bson_type(db):
    document = {
        "_id": 1,
        "double": [0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan"), 5e-324],
        "string": ["", "text", "ünïcödé \U0001f600", "with\0nul"],
        "document": {"": {"a.b": {"$c": 1}}},
        "array": [[], [[1]], {}],
        "binary": [bson.Binary(b"", 0), bson.Binary(b"\0\1", 5), bson.Binary(b"x", 128)],
        "object_id": bson.ObjectId("5f5f5f5f5f5f5f5f5f5f5f5f"),
        "boolean": [True, False],
        "date": [datetime(1970, 1, 1), datetime(1, 1, 1), datetime(2038, 1, 19, 3, 14, 8)],
        "null": None,
        "regex": bson.Regex("^a.*b$", "imsx"),
        "dbref": bson.DBRef("people", 1, "elsewhere"),
        "code": [bson.Code("f()"), bson.Code("f()", {"x": 1})],
        "int32": [0, -(2**31), 2**31 - 1],
        "timestamp": bson.Timestamp(1, 2),
        "int64": [bson.Int64(0), 2**63 - 1, -(2**63)],
        "decimal128": [
            bson.Decimal128(text)
            for text in (
                "0",
                "-0",
                "1.10",
                "NaN",
                "Infinity",
                "9.999999999999999999999999999999999E6144",
            )
        ],
        "min_key": bson.MinKey(),
        "max_key": bson.MaxKey(),
    }
    db.types.insert_one(document)
    return db.types.find_one()


@operation
def insert_dates_beyond_python(db):
    options = bson.CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)
    types = db.get_collection("types", codec_options=options)
    types.insert_one({"_id": 1, "dates": [bson.DatetimeMS(-(2**62)), bson.DatetimeMS(2**62)]})
    return [int(date) for date in types.find_one()["dates"]]


@operation
def insert_raw_document(db):
    raw = RawBSONDocument(bson.encode({"_id": 1, "a": {"b": [1, {"c": None}]}}))
    db.get_collection("raw", codec_options=bson.CodecOptions(RawBSONDocument)).insert_one(raw)
    return contents(db.raw)


@operation
def insert_duplicate_keys(db):
    """A document with a duplicate key is stored unchanged."""
    value = bson.encode({"_id": 1, "aa": 1, "ab": 2}).replace(b"ab\0", b"aa\0")
    raw = bson.CodecOptions(RawBSONDocument)
    db.get_collection("raw", codec_options=raw).insert_one(RawBSONDocument(value))
    stored = db.get_collection("raw", codec_options=raw).find_one()
    return [stored.raw == value, len(stored.raw)]


@operation
def insert_deeply_nested(db):
    document = {}
    for _ in range(150):
        document = {"a": document}
    db.deep.insert_one({"_id": 1, **document})
    return contents(db.deep)


@operation
def insert_bypassing_validation(db):
    db.create_collection("strict", validator={"age": {"$type": "int"}})
    db.strict.insert_one({"_id": 1, "age": "old"}, bypass_document_validation=True)
    return contents(db.strict)


@operation
def insert_with_write_concerns(db):
    for concern in (WriteConcern(1), WriteConcern("majority"), WriteConcern(1, j=True)):
        db.people.with_options(write_concern=concern).insert_one({"name": "Ada"}, comment="why")
    return db.people.count_documents({})


@operation
def update_one_with_operators(db):
    people(db)
    update = {
        "$set": {"name": "Ada", "address.city": "London"},
        "$unset": {"tags": ""},
        "$inc": {"age": 1.5},
        "$min": {"low": 3},
        "$max": {"high": 7},
        "$mul": {"factor": 2},
        "$setOnInsert": {"never": 1},
    }
    result = db.people.update_one({"_id": 1}, update)
    return [result.raw_result, contents(db.people)]


@operation
def update_array_operators(db):
    people(db, 1)
    for update in (
        {"$push": {"tags": {"$each": ["z", "b"], "$position": 1, "$slice": 4, "$sort": 1}}},
        {"$addToSet": {"tags": {"$each": ["a", "q"]}}},
        {"$pull": {"tags": {"$in": ["z"]}}},
        {"$pop": {"tags": -1}},
        {"$pullAll": {"tags": ["q"]}},
        {"$rename": {"name": "title"}},
        {"$bit": {"age": {"xor": 3}}},
        {"$currentDate": {"when": True, "timestamp": {"$type": "timestamp"}}},
    ):
        db.people.update_one({"_id": 0}, update)
    return contents(db.people)


@operation
def update_one_upsert(db):
    results = [
        db.people.update_one({"_id": 1}, {"$set": {"name": "Ada"}}, upsert=True),
        db.people.update_one({"name": "Bob"}, {"$setOnInsert": {"n": 1}}, upsert=True),
        db.people.update_one({"_id": 1}, {"$set": {"name": "Ada"}}, upsert=True),
    ]
    return [[result.raw_result for result in results], contents(db.people)]


@operation
def update_many(db):
    result = people(db).update_many({"age": {"$gt": 21}}, {"$inc": {"age": 10}})
    return [result.matched_count, result.modified_count, contents(db.people)]


@operation
def update_by_pipeline(db):
    people(db).update_many(
        {}, [{"$set": {"double": {"$multiply": ["$age", 2]}}}, {"$unset": "tags"}]
    )
    return contents(db.people)


@operation
def update_with_array_filters(db):
    db.marks.insert_one({"_id": 1, "marks": [{"v": 1}, {"v": 5}, {"v": 9}]})
    db.marks.update_one(
        {}, {"$set": {"marks.$[m].high": True}}, array_filters=[{"m.v": {"$gt": 4}}]
    )
    db.marks.update_one({"marks.v": 5}, {"$inc": {"marks.$.v": 100}})
    return contents(db.marks)


@operation
def update_with_hint_collation_and_let(db):
    people(db).create_index("name")
    french = {"locale": "fr", "strength": 1}
    db.people.update_one({"name": "name1"}, {"$set": {"hinted": 1}}, hint="name_1")
    db.people.update_many({"name": "NAME2"}, {"$set": {"collated": 1}}, collation=french)
    expression = {"$expr": {"$eq": ["$_id", "$$wanted"]}}
    db.people.update_one(expression, [{"$set": {"let": "$$wanted"}}], let={"wanted": 3})
    return contents(db.people)


@operation
def replace_one(db):
    result = people(db).replace_one({"_id": 1}, {"name": "Ada"})
    return [result.raw_result, contents(db.people)]


@operation
def replace_one_upsert(db):
    result = db.people.replace_one({"_id": 1}, {"name": "Ada"}, upsert=True)
    return [result.raw_result, contents(db.people)]


@operation
def delete_one(db):
    result = people(db).delete_one({"age": {"$gt": 20}}, comment={"why": "test"})
    return [result.raw_result, contents(db.people)]


@operation
def delete_many(db):
    result = people(db).delete_many({"age": {"$gt": 21}})
    return [result.raw_result, contents(db.people)]


@operation
def find_one_and_update(db):
    people(db)
    return [
        db.people.find_one_and_update({"_id": 1}, {"$inc": {"age": 1}}),
        db.people.find_one_and_update(
            {"_id": 1}, {"$inc": {"age": 1}}, {"age": 1}, return_document=ReturnDocument.AFTER
        ),
        db.people.find_one_and_update({}, {"$set": {"oldest": 1}}, sort=[("age", -1)]),
        db.people.find_one_and_update({"_id": 99}, {"$set": {"a": 1}}),
        db.people.find_one_and_update(
            {"_id": 99}, {"$set": {"a": 1}}, upsert=True, return_document=ReturnDocument.AFTER
        ),
        db.people.find_one_and_update({"_id": 2}, [{"$set": {"age": {"$add": ["$age", 1]}}}]),
        contents(db.people),
    ]


@operation
def find_one_and_replace(db):
    replaced = people(db).find_one_and_replace({"_id": 1}, {"name": "Ada"}, projection={"_id": 0})
    return [replaced, contents(db.people)]


@operation
def find_one_and_delete(db):
    return [
        people(db).find_one_and_delete({"age": {"$lt": 30}}, sort=[("_id", -1)]),
        contents(db.people),
    ]


@operation
def find_and_modify_by_its_alias(db):
    people(db)
    command = {
        "findandmodify": "people",
        "query": {"_id": 1},
        "update": {"$set": {"a": 1}},
        "new": True,
    }
    return db.command(command)


@operation
def unacknowledged_writes(db):
    """Both use the same connection, so the count runs after the writes."""
    quiet = people(db).with_options(write_concern=WriteConcern(0))
    results = [
        quiet.insert_one({"_id": 100}).acknowledged,
        quiet.insert_many([{"_id": 101}, {"_id": 1}, {"_id": 102}], ordered=False).acknowledged,
        quiet.update_many({"_id": {"$gte": 100}}, {"$set": {"late": True}}).acknowledged,
        quiet.delete_one({"_id": 0}).acknowledged,
        quiet.replace_one({"_id": 2}, {"replaced": True}).acknowledged,
    ]
    return [results, db.people.count_documents({}), contents(db.people)]


@operation(retryWrites=False)
def write_without_retries(db):
    people(db).update_one({"_id": 1}, {"$set": {"a": 1}})
    return contents(db.people)
