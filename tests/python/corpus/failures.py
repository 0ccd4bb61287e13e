"""Errors of all kinds: their codes, names, details and labels reach the client unchanged."""

from bson import Int64
from pymongo import WriteConcern

from . import contents, operation, people
from .transactions import failpoint


@operation
def duplicate_key(db):
    people(db).insert_one({"_id": 1})


@operation
def duplicate_key_of_a_unique_index(db):
    people(db).create_index([("name", 1), ("age", -1)], unique=True)
    db.people.update_one({"_id": 1}, {"$set": {"name": "name2", "age": 22}})


@operation
def duplicate_key_by_upsert(db):
    people(db).update_one({"_id": 1, "name": "other"}, {"$set": {"a": 1}}, upsert=True)


@operation
def validation_error(db):
    schema = {
        "bsonType": "object",
        "required": ["age"],
        "properties": {"age": {"bsonType": "int", "minimum": 18, "description": "adults"}},
    }
    db.create_collection("strict", validator={"$jsonSchema": schema})
    db.strict.insert_one({"_id": 1, "age": 3})


@operation
def validation_error_of_find_and_modify(db):
    db.create_collection("strict", validator={"age": {"$gt": 18}})
    db.strict.insert_one({"_id": 1, "age": 20})
    db.strict.find_one_and_update({"_id": 1}, {"$set": {"age": 3}})


@operation
def bad_query_operator(db):
    return list(people(db).find({"age": {"$nonsense": 1}}))


@operation
def bad_update_operator(db):
    people(db).update_one({}, {"$nonsense": {"a": 1}})


@operation
def conflicting_update_paths(db):
    people(db).update_one({}, {"$set": {"a": 1}, "$inc": {"a.b": 1}})


@operation
def update_of_the_id(db):
    people(db).update_one({"_id": 1}, {"$set": {"_id": 2}})


@operation
def bad_aggregation_stage(db):
    return list(people(db).aggregate([{"$nonsense": {}}]))


@operation
def division_by_zero(db):
    return list(people(db).aggregate([{"$project": {"x": {"$divide": [1, 0]}}}]))


@operation
def unknown_command(db):
    db.command("nonsense", 1)


@operation
def wrongly_capitalized_command(db):
    db.command("Insert", "people", documents=[{}])


@operation
def unknown_command_field(db):
    db.command("find", "people", nonsense=1)


@operation
def wrong_field_type(db):
    db.command("find", "people", filter=5)


@operation
def invalid_namespace(db):
    db.command("insert", "a\0b", documents=[{}])


@operation(unclear=True)
def rename_of_no_namespace(db):
    db.client.admin.command({"renameCollection": "no dot here", "to": "a.b"})


@operation(unclear=True)
def insert_into_a_number(db):
    db.command({"insert": 5, "documents": [{}]})


@operation
def namespace_exists(db):
    people(db)
    db.command("create", "people")


@operation
def namespace_not_found(db):
    db.command("collMod", "nothing", validator={})


@operation
def index_conflict(db):
    people(db).create_index("name", name="by_name")
    db.people.create_index([("name", -1)], name="by_name")


@operation
def index_not_found(db):
    people(db).drop_index("nothing")


@operation
def bad_hint(db):
    return list(people(db).find(hint="nothing"))


@operation
def cursor_not_found(db):
    people(db)
    db.command("getMore", Int64(123456789), collection="people")


@operation
def write_to_a_view(db):
    people(db)
    db.command("create", "adults", viewOn="people", pipeline=[])
    db.adults.insert_one({"_id": 99})


@operation
def document_too_large_after_update(db):
    db.big.insert_one({"_id": 1, "a": "x" * 9_000_000})
    db.big.update_one({"_id": 1}, {"$set": {"b": "x" * 9_000_000}})


@operation
def nested_too_deeply(db):
    document = {}
    for _ in range(250):
        document = {"a": document}
    db.deep.insert_one({"_id": 1, "a": document})


@operation
def max_time_expired(db):
    people(db)
    admin = db.client.admin
    admin.command("configureFailPoint", "maxTimeAlwaysTimeOut", mode="alwaysOn")
    try:
        return list(db.people.find(max_time_ms=5_000))
    finally:
        admin.command("configureFailPoint", "maxTimeAlwaysTimeOut", mode="off")


@operation
def write_concern_error(db):
    """The write is applied, but not on as many members as requested."""
    people(db).with_options(write_concern=WriteConcern(5, wtimeout=50)).insert_one({"_id": 10})


@operation
def write_concern_error_beside_write_errors(db):
    quorum = people(db).with_options(write_concern=WriteConcern(5, wtimeout=50))
    quorum.insert_many([{"_id": 10}, {"_id": 1}, {"_id": 11}], ordered=False)


@operation
def write_concern_error_by_failpoint(db):
    people(db)
    concern = {
        "code": 91,
        "codeName": "ShutdownInProgress",
        "errmsg": "made up",
        "errInfo": {"a": 1},
    }
    with failpoint(db, {"times": 2}, failCommands=["delete"], writeConcernError=concern):
        db.people.delete_many({})


@operation
def unknown_write_concern(db):
    people(db).with_options(write_concern=WriteConcern("nonsense")).delete_one({})


@operation
def read_error_by_failpoint(db):
    people(db)
    with failpoint(
        db, {"times": 1}, failCommands=["aggregate"], errorCode=2, errorLabels=["Made", "Up"]
    ):
        return list(db.people.aggregate([]))


@operation
def get_more_fails(db):
    people(db, 10)
    with failpoint(db, {"times": 1}, failCommands=["getMore"], errorCode=43):
        return list(db.people.find(batch_size=2))


@operation
def get_more_loses_its_connection(db):
    people(db, 10)
    with failpoint(db, {"times": 1}, failCommands=["getMore"], closeConnection=True):
        return list(db.people.find(batch_size=2))


@operation(retryWrites=False)
def unretried_write_loses_its_connection(db):
    people(db)
    with failpoint(db, {"times": 1}, failCommands=["insert"], closeConnection=True):
        db.people.insert_one({"_id": 10})


@operation
def wrong_password(db):
    db.client.admin.command("saslStart", 1, mechanism="SCRAM-SHA-256", payload=b"n,,n=unknown,r=abc")


@operation
def strict_api_refuses(db):
    return db.command("collStats", "people", apiVersion="1", apiStrict=True, check=False)


@operation
def strict_api_writes(db):
    reply = db.command("insert", "people", documents=[{"_id": 1}], apiVersion="1", apiStrict=True)
    return [reply, contents(db.people)]


@operation
def transaction_number_without_session(db):
    command = {
        "insert": "people",
        "documents": [{"_id": 1}],
        "autocommit": False,
        "startTransaction": True,
    }
    return db.command(command, check=False)
