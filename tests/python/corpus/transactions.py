"""Sessions and transactions: commits, aborts, conflicts, retries, causal consistency."""

from bson import Int64
from pymongo import InsertOne, ReadPreference, UpdateOne, WriteConcern
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern

from observe import describe

from . import contents, operation, people


@operation
def transaction_committed(db):
    people(db)
    with db.client.start_session() as session, session.start_transaction():
        db.people.insert_one({"_id": 10}, session=session)
        db.people.update_many({}, {"$inc": {"age": 1}}, session=session)
        db.orders.insert_one({"_id": 1}, session=session)
        db.people.delete_one({"_id": 0}, session=session)
        inside = list(db.people.find(session=session, batch_size=2))
        counted = db.people.count_documents({}, session=session)
        outside = db.people.count_documents({})
    return [inside, counted, outside, contents(db.people), contents(db.orders)]


@operation
def transaction_aborted(db):
    people(db)
    with db.client.start_session() as session:
        session.start_transaction(
            ReadConcern("snapshot"), WriteConcern("majority"), ReadPreference.PRIMARY
        )
        db.people.bulk_write(
            [InsertOne({"_id": 10}), UpdateOne({"_id": 1}, {"$set": {"a": 1}})], session=session
        )
        db.people.find_one_and_update({"_id": 2}, {"$set": {"a": 1}}, session=session)
        session.abort_transaction()
    return contents(db.people)


@operation
def transaction_by_callback(db):
    people(db)

    def move(session):
        db.people.update_one({"_id": 1}, {"$inc": {"age": -1}}, session=session)
        db.people.update_one({"_id": 2}, {"$inc": {"age": 1}}, session=session)
        return "moved"

    with db.client.start_session() as session:
        return [session.with_transaction(move), contents(db.people)]


@operation
def transaction_with_write_error(db):
    """A duplicate key aborts the transaction; everything after it fails."""
    people(db)
    with db.client.start_session() as session:
        session.start_transaction()
        return [
            failure(lambda: db.people.insert_one({"_id": 10}, session=session)),
            failure(lambda: db.people.insert_one({"_id": 1}, session=session)),
            failure(lambda: db.people.insert_one({"_id": 11}, session=session)),
            failure(session.commit_transaction),
            contents(db.people),
        ]


@operation
def transaction_write_conflict(db):
    people(db)
    with db.client.start_session() as first, db.client.start_session() as second:
        first.start_transaction()
        second.start_transaction()
        db.people.update_one({"_id": 1}, {"$set": {"by": 1}}, session=first)
        conflict = failure(
            lambda: db.people.update_one({"_id": 1}, {"$set": {"by": 2}}, session=second)
        )
        second.abort_transaction()
        first.commit_transaction()
    return [conflict, contents(db.people)]


@operation
def transaction_with_forbidden_commands(db):
    people(db)
    results = []
    for command in (
        {"listDatabases": 1},
        {"createIndexes": "people", "indexes": [{"key": {"a": 1}, "name": "a"}]},
        {"count": "people"},
    ):
        with db.client.start_session() as session:
            session.start_transaction()
            results.append(failure(lambda: db.command(command, session=session)))
    return results


@operation
def transaction_creates_a_collection(db):
    with db.client.start_session() as session, session.start_transaction():
        db.create_collection("made", session=session)
        db.made.create_index("a", session=session)
        db.made.insert_one({"_id": 1}, session=session)
    return [contents(db.made), db.made.index_information()]


@operation
def transaction_killed(db):
    people(db)
    with db.client.start_session() as session:
        session.start_transaction()
        db.people.insert_one({"_id": 10}, session=session)
        db.client.admin.command("killSessions", [session.session_id])
        return [failure(session.commit_transaction), contents(db.people)]


@operation
def transaction_retried_by_its_callback(db):
    people(db)
    tries = []

    def work(session):
        tries.append(1)
        db.people.update_one({"_id": 1}, {"$inc": {"age": 100}}, session=session)

    with failpoint(
        db,
        {"times": 1},
        failCommands=["update"],
        errorCode=112,
        errorLabels=["TransientTransactionError"],
    ):
        with db.client.start_session() as session:
            session.with_transaction(work)
    return [len(tries), contents(db.people)]


@operation
def commit_retried_after_a_lost_connection(db):
    people(db)
    with failpoint(db, {"times": 1}, failCommands=["commitTransaction"], closeConnection=True):
        with db.client.start_session() as session, session.start_transaction():
            db.people.insert_one({"_id": 10}, session=session)
    return contents(db.people)


@operation
def commit_twice(db):
    people(db)
    with db.client.start_session() as session:
        session.start_transaction()
        db.people.insert_one({"_id": 10}, session=session)
        session.commit_transaction()
        session.commit_transaction()
    return contents(db.people)


@operation
def causally_consistent_session(db):
    majority = {"read_concern": ReadConcern("majority"), "write_concern": WriteConcern("majority")}
    collection = db.get_collection("people", **majority)
    with db.client.start_session(causal_consistency=True) as session:
        collection.insert_one({"_id": 1}, session=session)
        found = [
            collection.find_one({}, session=session),
            list(collection.aggregate([], session=session)),
        ]
        return [found, session.operation_time is not None, session.cluster_time is not None]


@operation
def snapshot_session(db):
    people(db)
    db.client.admin.command("ping")
    with db.client.start_session(causal_consistency=False) as warm:
        db.people.with_options(write_concern=WriteConcern("majority")).insert_one(
            {"_id": 9}, session=warm
        )
    with db.client.start_session(snapshot=True) as session:
        before = list(db.people.find({}, {"_id": 1}, session=session).sort("_id"))
        db.people.delete_many({})
        return [
            before,
            list(db.people.find({}, {"_id": 1}, session=session).sort("_id")),
            contents(db.people),
        ]


@operation
def session_commands(db):
    with db.client.start_session() as session:
        db.people.insert_one({"_id": 1}, session=session)
        lsid = session.session_id
        return [
            db.command("refreshSessions", [lsid]),
            db.command("endSessions", [lsid]),
            db.client.admin.command(
                "killAllSessionsByPattern", [{"lsid": {"id": lsid["id"], "uid": b"\0" * 32}}]
            ),
        ]


@operation
def retryable_write_after_a_lost_connection(db):
    people(db)
    with failpoint(db, {"times": 1}, failCommands=["update"], closeConnection=True):
        db.people.update_one({"_id": 1}, {"$inc": {"age": 100}})
    return contents(db.people)


@operation
def retryable_write_after_an_error(db):
    people(db)
    with failpoint(
        db, {"times": 1}, failCommands=["insert"], errorCode=91, errorLabels=["RetryableWriteError"]
    ):
        db.people.insert_one({"_id": 10})
    return contents(db.people)


@operation
def retryable_write_fails_twice(db):
    people(db)
    with failpoint(
        db,
        {"times": 2},
        failCommands=["findAndModify"],
        errorCode=10107,
        errorLabels=["RetryableWriteError"],
    ):
        failed = failure(lambda: db.people.find_one_and_delete({"_id": 1}))
    return [failed, contents(db.people)]


@operation
def retryable_read_after_a_lost_connection(db):
    people(db)
    with failpoint(db, {"times": 1}, failCommands=["find"], closeConnection=True):
        return contents(db.people)


@operation
def same_transaction_number_again(db):
    """A retry as on the wire: the server returns the stored result."""
    command = {
        "insert": "people",
        "documents": [{"_id": 1}, {"_id": 2}],
        "stmtIds": [4, 7],
        "txnNumber": Int64(5),
    }
    with db.client.start_session() as session:
        first = db.command(command, session=session)
        again = db.command(command, session=session)
    return [first, again, contents(db.people)]


def failure(action):
    try:
        action()
    except PyMongoError as error:
        return describe(error)
    return None


class failpoint:
    """Enables the failCommand failpoint for the corpus' own clients, and disables it at the end."""

    def __init__(self, db, mode, **data):
        self.admin = db.client.admin
        self.mode = mode
        self.data = {**data, "appName": "transparency"}

    def __enter__(self):
        self.admin.command("configureFailPoint", "failCommand", mode=self.mode, data=self.data)

    def __exit__(self, *_):
        # With the same client, so that a permanently lost connection would show here.
        self.admin.command("configureFailPoint", "failCommand", mode="off")
