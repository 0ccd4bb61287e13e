"""A worker of test_queue.py, as a process of its own so that it can be stopped with SIGSTOP.

Claims jobs one at a time, waits a little over each, completes it by the attempt it was
claimed with, and prints a JSON line for each thing that happened.
"""

import json
import sys
import time

from pymongo import MongoClient
from pymongo.errors import PyMongoError

uri, database, name, fenced = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4] == "fenced"
jobs = MongoClient(uri)[database].jobs


def say(**event):
    print(json.dumps({"worker": name, **event}), flush=True)


idle = 0
while idle < 20:
    job = jobs.find_one_and_update(
        {"done": False, "locked": False}, {"$set": {"locked": True, "by": name}}, return_document=True
    )
    if job is None:
        idle += 1
        time.sleep(0.1)
        continue
    idle = 0
    say(claimed=job["_id"], attempt=job.get("try"))
    time.sleep(0.02)
    mine = {"_id": job["_id"], "try": job["try"]} if fenced else {"_id": job["_id"]}
    try:
        done = jobs.update_one(mine, {"$set": {"done": True, "locked": False}, "$inc": {"completions": 1}})
        say(completed=job["_id"] if done.modified_count else None, of=job["_id"])
    except PyMongoError as error:
        say(error=str(error))
