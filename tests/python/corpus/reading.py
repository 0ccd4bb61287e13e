"""Reads: find in all its forms, counts, aggregations, cursors, text and geo queries."""

import re

from bson import CodecOptions, SON
from bson.raw_bson import RawBSONDocument
from pymongo import CursorType, ReadPreference
from pymongo.read_concern import ReadConcern

from observe import digest

from . import contents, operation, people


@operation
def find_one(db):
    people(db)
    return [db.people.find_one({"_id": 1}), db.people.find_one({"_id": 99}), db.nothing.find_one()]


@operation
def find_with_options(db):
    people(db, 20)
    return [
        list(
            db.people.find({"age": {"$gt": 25}}, {"name": 1, "_id": 0}).sort([("age", -1)]).limit(3)
        ),
        list(db.people.find({"tags": "t3"}, {"tags": {"$slice": 1}})),
        list(db.people.find({"name": re.compile("^name1")}).sort("_id").skip(2)),
        list(db.people.find({"$or": [{"_id": 1}, {"age": 33}]}, sort=[("_id", 1)])),
        list(db.people.find(min={"_id": 3}, max={"_id": 6}, hint="_id_")),
        list(db.people.find({"$where": "this._id == 4"})),
        list(db.people.find({}, show_record_id=True).limit(2)),
        list(db.people.find({}, return_key=True, hint="_id_").limit(2)),
        list(db.people.find({"$expr": {"$eq": ["$_id", "$$x"]}}, let={"x": 5}, comment="why")),
        list(db.people.find({}, allow_disk_use=True, max_time_ms=10_000).sort("name", -1).limit(1)),
    ]


@operation
def find_in_batches(db):
    people(db, 25)
    return list(db.people.find(batch_size=4).sort("_id"))


@operation
def find_single_batch(db):
    people(db, 25)
    return [list(db.people.find(limit=-5)), list(db.people.find(limit=7, batch_size=3))]


@operation
def find_exhaust(db):
    """One request, many replies."""
    people(db, 1000)
    cursor = db.people.find(cursor_type=CursorType.EXHAUST, batch_size=50)
    return [sum(document["age"] for document in cursor), db.people.count_documents({})]


@operation
def find_exhaust_abandoned(db):
    """The driver closes the connection, and continues with another."""
    people(db, 1000)
    cursor = db.people.find(cursor_type=CursorType.EXHAUST, batch_size=50)
    first = next(cursor)
    cursor.close()
    return [first, db.people.count_documents({})]


@operation
def find_raw_batches(db):
    people(db, 10)
    return [digest({"batch": batch}) for batch in db.people.find_raw_batches(batch_size=3)]


@operation
def find_raw_documents(db):
    people(db, 3)
    raw = db.get_collection("people", codec_options=CodecOptions(RawBSONDocument))
    return [digest({"raw": document.raw}) for document in raw.find().sort("_id")]


@operation
def find_closed_early(db):
    people(db, 100)
    with db.people.find(batch_size=5) as cursor:
        return [next(cursor) for _ in range(7)]


@operation
def find_at_read_concerns(db):
    people(db)
    levels = ("local", "available", "majority", "linearizable")
    return [
        list(db.get_collection("people", read_concern=ReadConcern(level)).find({"_id": 1}))
        for level in levels
    ]


@operation
def find_with_read_preferences(db):
    people(db)
    preferences = (
        ReadPreference.PRIMARY_PREFERRED,
        ReadPreference.SECONDARY_PREFERRED,
        ReadPreference.NEAREST,
    )
    return [contents(db.get_collection("people", read_preference=each)) for each in preferences]


@operation
def find_with_collation(db):
    db.words.insert_many(
        [{"_id": i, "w": w} for i, w in enumerate(["a", "B", "á", "b", "A", "10", "9"])]
    )
    return [
        list(db.words.find({"w": "a"}).collation({"locale": "en", "strength": 1}).sort("_id")),
        list(db.words.find().sort("w").collation({"locale": "en", "numericOrdering": True})),
    ]


@operation
def counts(db):
    people(db, 12)
    return [
        db.people.count_documents({}),
        db.people.count_documents({"age": {"$gt": 25}}, skip=1, limit=3),
        db.people.estimated_document_count(),
        db.command("count", "people", query={"_id": {"$lt": 4}}),
        db.nothing.estimated_document_count(),
    ]


@operation
def distinct_values(db):
    return [people(db).distinct("tags"), db.people.distinct("name", {"age": {"$gt": 22}})]


@operation
def aggregate_in_batches(db):
    people(db, 30)
    pipeline = [
        {"$unwind": "$tags"},
        {"$sort": SON([("_id", 1), ("tags", 1)])},
        {"$project": {"age": 0}},
    ]
    return list(db.people.aggregate(pipeline, batchSize=7, allowDiskUse=True, comment="why"))


@operation
def aggregate_group_and_facet(db):
    people(db, 30)
    facets = {
        "sum": [
            {"$group": {"_id": {"$mod": ["$age", 3]}, "n": {"$sum": 1}}},
            {"$sort": {"_id": 1}},
        ],
        "bucket": [{"$bucket": {"groupBy": "$age", "boundaries": [0, 25, 30, 99]}}],
        "count": [{"$count": "all"}],
    }
    return list(db.people.aggregate([{"$facet": facets}]))


@operation
def aggregate_lookups(db):
    people(db, 6)
    db.orders.insert_many([{"_id": i, "who": i % 3, "next": i + 1} for i in range(6)])
    lookup = {"from": "orders", "localField": "_id", "foreignField": "who", "as": "orders"}
    graph = {
        "from": "orders",
        "startWith": "$_id",
        "connectFromField": "next",
        "connectToField": "_id",
        "as": "chain",
        "maxDepth": 2,
        "depthField": "d",
    }
    return [
        list(db.people.aggregate([{"$lookup": lookup}, {"$sort": {"_id": 1}}])),
        list(
            db.orders.aggregate(
                [
                    {"$match": {"_id": 0}},
                    {"$graphLookup": graph},
                    {"$project": {"n": {"$size": "$chain"}}},
                ]
            )
        ),
        list(db.people.aggregate([{"$unionWith": "orders"}, {"$count": "n"}])),
    ]


@operation
def aggregate_window_and_documents(db):
    people(db, 6)
    window = {
        "sortBy": {"age": 1},
        "output": {"running": {"$sum": "$age", "window": {"documents": ["unbounded", "current"]}}},
    }
    return [
        list(db.people.aggregate([{"$setWindowFields": window}])),
        list(db.aggregate([{"$documents": [{"a": 1}, {"a": 2}]}, {"$match": {"a": 2}}])),
    ]


@operation
def aggregate_out(db):
    people(db).aggregate([{"$match": {"age": {"$gt": 21}}}, {"$out": "old"}])
    return [
        contents(db.old),
        list(db.old.aggregate([{"$out": {"db": db.name, "coll": "older"}}])),
        contents(db.older),
    ]


@operation
def aggregate_merge(db):
    people(db)
    db.target.insert_many([{"_id": 1, "kept": True}, {"_id": 99}])
    db.people.aggregate(
        [{"$merge": {"into": "target", "whenMatched": "merge", "whenNotMatched": "insert"}}]
    )
    db.people.aggregate(
        [
            {
                "$merge": {
                    "into": "target",
                    "whenMatched": [{"$set": {"twice": "$$new.age"}}],
                    "whenNotMatched": "discard",
                }
            }
        ]
    )
    return contents(db.target)


@operation
def map_reduce(db):
    people(db)
    command = {
        "mapReduce": "people",
        "map": "function() { emit('all', this.age) }",
        "reduce": "function(k, v) { return Array.sum(v) }",
    }
    inline = db.command({**command, "out": {"inline": 1}})
    stored = db.command({**command, "out": "reduced"})
    return [inline["results"], stored, contents(db.reduced)]


@operation
def explain(db):
    people(db, 20).create_index("age")
    plans = [
        db.people.find({"age": {"$gt": 25}}).explain()["queryPlanner"]["winningPlan"],
        db.command(
            "explain", {"count": "people", "query": {"age": 22}}, verbosity="executionStats"
        )["executionStats"]["totalKeysExamined"],
    ]
    update = {"update": "people", "updates": [{"q": {"age": 22}, "u": {"$set": {"a": 1}}}]}
    plans.append(
        db.command("explain", update, verbosity="queryPlanner")["queryPlanner"]["winningPlan"]
    )
    return plans + [db.people.count_documents({"a": 1})]


@operation
def text_search(db):
    db.texts.create_index([("body", "text")], default_language="english")
    db.texts.insert_many(
        [
            {"_id": 1, "body": "running dogs"},
            {"_id": 2, "body": "a dog ran"},
            {"_id": 3, "body": "cats"},
        ]
    )
    score = {"$meta": "textScore"}
    return list(
        db.texts.find({"$text": {"$search": "dog -ran"}}, {"score": score}).sort([("score", score)])
    )


@operation
def geo_queries(db):
    db.places.create_index([("at", "2dsphere")])
    db.places.insert_many(
        [{"_id": i, "at": {"type": "Point", "coordinates": [i, i]}} for i in range(5)]
    )
    near = {
        "$near": {"$geometry": {"type": "Point", "coordinates": [1.1, 1]}, "$maxDistance": 300_000}
    }
    within = {"$geoWithin": {"$centerSphere": [[0, 0], 0.03]}}
    stage = {
        "near": {"type": "Point", "coordinates": [0, 0]},
        "distanceField": "d",
        "spherical": True,
    }
    return [
        list(db.places.find({"at": near})),
        list(db.places.find({"at": within}).sort("_id")),
        list(db.places.aggregate([{"$geoNear": stage}, {"$limit": 2}])),
    ]


@operation(retryReads=False)
def read_without_retries(db):
    return contents(people(db))
