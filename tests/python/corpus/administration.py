"""Collections, indexes, views, users, and the commands of tools about the server."""

from datetime import datetime

from pymongo import ASCENDING, DESCENDING, IndexModel

from . import contents, operation, people


@operation
def create_and_drop_collections(db):
    db.create_collection("plain")
    db.create_collection("capped", capped=True, size=8192)
    db.create_collection("validated", validator={"a": {"$type": "int"}}, validationAction="warn")
    db.create_collection("collated", collation={"locale": "de"})
    db.create_collection("clustered", clusteredIndex={"key": {"_id": 1}, "unique": True})
    db.create_collection(
        "series", timeseries={"timeField": "t", "metaField": "m"}, expireAfterSeconds=3600
    )
    listed = sorted(db.list_collections(), key=lambda each: each["name"])
    return [
        listed,
        db.drop_collection("plain"),
        db.drop_collection("plain"),
        sorted(db.list_collection_names()),
    ]


@operation
def create_and_drop_indexes(db):
    people(db)
    made = db.people.create_indexes(
        [
            IndexModel([("name", ASCENDING), ("age", DESCENDING)], unique=True),
            IndexModel("age", sparse=True, name="age"),
            IndexModel("when", expireAfterSeconds=100),
            IndexModel([("text", "text")], weights={"text": 3}),
            IndexModel([("$**", 1)], wildcardProjection={"tags": 1}, name="wild"),
            IndexModel("part", partialFilterExpression={"age": {"$gt": 3}}, hidden=True),
            IndexModel([("name", "hashed")]),
        ]
    )
    listed = list(db.people.list_indexes())
    db.people.drop_index("age")
    modified = db.command("collMod", "people", index={"name": "when_1", "expireAfterSeconds": 200})
    db.people.drop_indexes()
    return [made, listed, modified, db.people.index_information()]


@operation
def time_series(db):
    series = db.create_collection("series", timeseries={"timeField": "t", "metaField": "m"})
    series.insert_many(
        [{"_id": i, "t": datetime(2024, 1, 1, i), "m": i % 2, "v": i} for i in range(6)]
    )
    return [
        list(series.find({"m": 1}, {"_id": 0}).sort("t")),
        series.delete_many({"m": 0}).raw_result,
    ]


@operation
def views(db):
    people(db)
    db.command("create", "adults", viewOn="people", pipeline=[{"$match": {"age": {"$gt": 21}}}])
    return [
        contents(db.adults),
        db.adults.count_documents({}),
        list(db.list_collections(filter={"name": "adults"})),
    ]


@operation
def rename_collection(db):
    people(db).rename("persons")
    db.other.insert_one({"_id": 1})
    db.other.rename("persons", dropTarget=True)
    return [sorted(db.list_collection_names()), contents(db.persons)]


@operation
def collection_modified_and_validated(db):
    people(db)
    return [
        db.command(
            "collMod", "people", validator={"age": {"$exists": True}}, validationLevel="moderate"
        ),
        db.people.options(),
        db.validate_collection("people")["valid"],
        db.command("convertToCapped", "people", size=10_000),
        db.people.options(),
    ]


@operation
def drop_database(db):
    people(db)
    return [db.command("dropDatabase"), db.list_collection_names()]


@operation
def users_and_roles(db):
    return [
        db.command(
            "createRole",
            "reader",
            privileges=[{"resource": {"db": db.name, "collection": ""}, "actions": ["find"]}],
            roles=[],
        ),
        db.command(
            "createUser", "ada", pwd="secret", roles=["reader"], mechanisms=["SCRAM-SHA-256"]
        ),
        [user["user"] for user in db.command("usersInfo", "ada")["users"]],
        db.command("rolesInfo", "reader"),
        db.command("dropUser", "ada"),
        db.command("dropRole", "reader"),
    ]


@operation
def list_databases(db):
    people(db)
    listed = db.client.admin.command("listDatabases", filter={"name": db.name})
    names = [each["name"] for each in listed["databases"]]
    return [names, sorted({"admin", "config", "local"} & set(db.client.list_database_names()))]


@operation(only_shape=True)
def server_status(db):
    status = db.client.admin.command(
        "serverStatus", metrics=0, wiredTiger=0, tcmalloc=0, opLatencies=0
    )
    return sorted(status)


@operation(only_shape=True)
def build_info_and_host(db):
    admin = db.client.admin
    return [
        admin.command("buildInfo"),
        admin.command("hostInfo"),
        admin.command("connectionStatus"),
    ]


@operation(only_shape=True)
def collection_and_database_statistics(db):
    people(db)
    stage = {"$collStats": {"count": {}, "storageStats": {"scale": 1}}}
    return [
        db.command("collStats", "people"),
        db.command("dbStats"),
        list(db.people.aggregate([stage])),
    ]


@operation(only_shape=True)
def replica_set_status(db):
    admin = db.client.admin
    return [
        admin.command("replSetGetStatus")["set"],
        admin.command("replSetGetConfig")["config"]["_id"],
    ]


@operation
def server_parameters(db):
    admin = db.client.admin
    return [
        admin.command("getParameter", 1, notablescan=1),
        admin.command("getParameter", 1, featureCompatibilityVersion=1),
        admin.command("setParameter", 1, notablescan=False),
    ]


@operation
def profiling(db):
    people(db)
    db.command("profile", 2)
    db.people.find_one({"_id": 1}, comment="profiled")
    db.command("profile", 0)
    profiled = db.system.profile.find_one(
        {"command.comment": "profiled"}, {"op": 1, "ns": 1, "nreturned": 1, "appName": 1}
    )
    return profiled


@operation
def current_operations(db):
    """The client finds its operation by its comment."""
    pipeline = [
        {"$currentOp": {}},
        {"$match": {"command.comment": db.name}},
        {"$project": {"op": 1, "ns": 1, "appName": 1, "active": 1}},
    ]
    return list(db.client.admin.aggregate(pipeline, comment=db.name))


@operation
def ping_and_echo(db):
    return [db.command("ping"), db.command("echo", "hello"), db.command("whatsmyuri")["ok"]]


@operation
def hashes(db):
    people(db)
    return db.command("dbHash")["collections"]


@operation
def evaluated_on_the_server(db):
    people(db)
    function = {
        "$function": {"body": "function(a) { return a * 2 }", "args": ["$age"], "lang": "js"}
    }
    return list(db.people.aggregate([{"$project": {"double": function}}]))


@operation
def oplog_is_readable(db):
    people(db, 2)
    entries = db.client.local["oplog.rs"].find(
        {"ns": f"{db.name}.people"}, {"op": 1, "o._id": 1, "_id": 0}
    )
    return sorted(entries, key=lambda entry: entry["o"]["_id"])
