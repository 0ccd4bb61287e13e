"""PyMongo's part of drains.py: works until standard input ends, then prints the failures of each kind of operation."""

import json
import sys
import threading
import time
from collections import Counter, defaultdict

from pymongo import MongoClient
from pymongo.errors import PyMongoError

uri, database = sys.argv[1:3]
THREADS = {"insert": 2, "read": 1, "cursor": 2, "transaction": 4, "unretried": 1}
THINKING = 0.05  # seconds between two statements of a transaction
stopping = threading.Event()
done, failures, texts, durations = Counter(), Counter(), [], defaultdict(list)
client = MongoClient(uri, appName="drain-pymongo")
db = client[database]


def insert(count):
    db.inserted.insert_one({"n": count})


def read(count):
    list(db.many.find({"_id": {"$lt": 10}}))
    list(db.many.aggregate([{"$match": {"_id": {"$lt": 5}}}]))


def cursor(count):
    found = sum(1 for _ in db.many.find(batch_size=25))
    assert found == 200, found


def transaction(count):
    def work(session):
        db.committed.insert_one({"part": 1}, session=session)
        time.sleep(THINKING)
        db.committed.insert_one({"part": 2}, session=session)
        time.sleep(THINKING)

    with client.start_session() as session:
        session.with_transaction(work)


def unretried(count):
    """Drivers do not retry it."""
    db.many.update_many({"_id": {"$lt": 3}}, {"$inc": {"n": 1}})


def repeat(name, work):
    while not stopping.is_set():
        began = time.monotonic()
        try:
            work(done[name])
            done[name] += 1
        except (PyMongoError, AssertionError) as error:
            failures[name] += 1
            texts.append(f"{name}: {type(error).__name__}: {error}"[:300])
        durations[name].append(time.monotonic() - began)


threads = [
    threading.Thread(target=repeat, args=(name, globals()[name])) for name, count in THREADS.items() for _ in range(count)
]
for thread in threads:
    thread.start()
while not all(done[name] for name in THREADS):
    time.sleep(0.01)
print(json.dumps({"working": True}), flush=True)
sys.stdin.read()
stopping.set()
for thread in threads:
    thread.join()
longest = {name: round(max(times), 2) for name, times in durations.items()}  # seconds
stored = [db.inserted.count_documents({}), db.committed.count_documents({})]
print(json.dumps({"done": done, "failures": failures, "texts": texts[:20], "stored": stored, "longest": longest}), flush=True)
