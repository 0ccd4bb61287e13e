"""PyMongo's part of drains.py: what each of its drivers does."""

import sys
import time

from pymongo import MongoClient

import load_program

THINKING = 0.05  # seconds between two statements of a transaction
uri, database = sys.argv[1:3]
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


load_program.run(
    {"insert": (insert, 2), "read": (read, 1), "cursor": (cursor, 2), "transaction": (transaction, 4), "unretried": (unretried, 1)},
    lambda: [db.inserted.count_documents({}), db.committed.count_documents({})],
)
