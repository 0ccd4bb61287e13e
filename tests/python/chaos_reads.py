"""What only balanced_chaos.py does: long cursors, change streams, reads of secondaries, unacknowledged writes.

`chaos_reads.py URI DATABASE MEMBER...`; it asks the members, directly, which of them has a cursor.
"""

import random
import sys
import threading
import time

from pymongo import MongoClient, ReadPreference, WriteConcern
from pymongo.errors import OperationFailure, PyMongoError

import load_program

DOCUMENTS, BATCH = 10_000, 100
PAUSE = 0.02  # seconds between two batches, so that failures meet open cursors
CURSORS_LOST = {43, 237}  # CursorNotFound, CursorKilled
uri, database, *addresses = sys.argv[1:]
client = MongoClient(uri, appName="drain-reads")
db = client[database]
members = {address: MongoClient(address, directConnection=True, serverSelectionTimeoutMS=1000, socketTimeoutMS=1000) for address in addresses}
lost = []  # of each cursor that a server no longer knew: its member, when it was opened and when it failed
seen, resumed = [], []  # of the change stream: documents, and errors that PyMongo did not handle
causal = random.Random()


def member_of(cursor_id):
    idle = [{"$currentOp": {"allUsers": True, "idleCursors": True}}, {"$match": {"cursor.cursorId": cursor_id}}]
    for address, member in members.items():
        try:
            if list(member.admin.aggregate(idle)):
                return address
        except PyMongoError:
            pass
    return None


def long_cursor(preference):
    def work(count):
        collection = db.get_collection("long", read_preference=preference)
        opened, member, found = time.time(), None, 0
        with collection.find(batch_size=BATCH) as cursor:
            try:
                for _ in cursor:
                    found += 1
                    if found % BATCH == 0:
                        member = member or member_of(cursor.cursor_id)
                        time.sleep(PAUSE)
            except OperationFailure as error:
                if error.code in CURSORS_LOST:
                    lost.append([member, opened, time.time(), found, str(error)[:200]])
                raise
        assert found == DOCUMENTS, found

    return work


def aggregate(count):
    collection = db.get_collection("long", read_preference=ReadPreference.SECONDARY)
    (group,) = collection.aggregate([{"$group": {"_id": None, "sum": {"$sum": "$_id"}, "count": {"$sum": 1}}}])
    assert (group["count"], group["sum"]) == (DOCUMENTS, DOCUMENTS * (DOCUMENTS - 1) // 2), group


def causal_read(count):
    """A session's read of a secondary shows what the session wrote."""
    written = db.get_collection("causal", write_concern=WriteConcern("majority"))
    secondary = db.get_collection("causal", read_preference=ReadPreference.SECONDARY_PREFERRED)
    with client.start_session(causal_consistency=True) as session:
        key = causal.getrandbits(60)
        written.insert_one({"_id": key}, session=session)
        assert secondary.find_one({"_id": key}, session=session), f"{key} was written, then not found"


def unacknowledged(count):
    db.get_collection("unacknowledged", write_concern=WriteConcern(0)).insert_one({"n": count})
    time.sleep(PAUSE)


def number(count):
    """For the change stream."""
    db.streamed.insert_one({"n": count})
    time.sleep(PAUSE)


def watch():
    token = None
    while True:
        try:
            with db.streamed.watch(resume_after=token) as stream:
                while stream.alive:
                    change = stream.try_next()
                    token = stream.resume_token
                    if change:
                        seen.append(str(change["documentKey"]["_id"]))
        except PyMongoError as error:
            resumed.append(f"{type(error).__name__}: {error}"[:300])


def stored():
    """Waits until the stream has shown everything, and compares."""
    ids = [str(document["_id"]) for document in db.streamed.find({}, {"_id": 1})]
    deadline = time.monotonic() + 30
    while not set(ids) <= set(seen) and time.monotonic() < deadline:
        time.sleep(0.1)
    sent = db.unacknowledged.distinct("_id")
    return {
        "lost": lost,
        "stream": {"stored": len(ids), "shown": len(seen), "missing": len(set(ids) - set(seen)), "twice": len(seen) - len(set(seen)), "resumed": resumed},
        "unacknowledged": len(sent),
    }


db.long.insert_many([{"_id": n, "filling": "x" * 100} for n in range(DOCUMENTS)])
threading.Thread(target=watch, daemon=True).start()
time.sleep(1)
load_program.run(
    {
        "long cursor, primary": (long_cursor(ReadPreference.PRIMARY), 1),
        "long cursor, secondary": (long_cursor(ReadPreference.SECONDARY_PREFERRED), 2),
        "aggregate": (aggregate, 1),
        "causal": (causal_read, 1),
        "unacknowledged": (unacknowledged, 1),
        "number": (number, 1),
    },
    stored,
)
