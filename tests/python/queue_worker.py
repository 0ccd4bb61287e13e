"""A worker of test_queue.py, as a separate process so that it can be stopped with SIGSTOP.

Claims jobs one at a time, waits briefly, completes each with the attempt of its claim,
and prints a JSON line for each step. Ends when all jobs are done.
A `sleeper` stops itself during its first job.
"""

import json
import os
import signal
import sys
import time

from pymongo import MongoClient
from pymongo.errors import PyMongoError

uri, database, name = sys.argv[1:4]
fenced, sleepy = "fenced" in sys.argv, "sleeper" in sys.argv
jobs = MongoClient(uri)[database].jobs


def emit(**event):
    print(json.dumps({"worker": name, **event}), flush=True)


while jobs.find_one({"done": False}):
    job = jobs.find_one_and_update(
        {"done": False, "locked": False}, {"$set": {"locked": True, "by": name}}, return_document=True
    )
    if job is None:
        time.sleep(0.1)
        continue
    emit(claimed=job["_id"], attempt=job.get("try"))
    if sleepy:
        sleepy = False
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(0.02)
    mine = {"_id": job["_id"], "try": job["try"]} if fenced else {"_id": job["_id"]}
    try:
        done = jobs.update_one(mine, {"$set": {"done": True, "locked": False}, "$inc": {"completions": 1}})
        emit(completed=job["_id"] if done.modified_count else None, of=job["_id"])
    except PyMongoError as error:
        emit(error=str(error))
