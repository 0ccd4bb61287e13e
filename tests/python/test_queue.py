"""The pattern `queue` with worker processes, one of them stopped past its lease.

With the rule every job completes exactly once, and the worker that continues too late gets
a reply that nothing matched. Without the rule, and with workers that check leases with
their own clock, a job is completed twice.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from pymongo import MongoClient

import servers

JOBS = 120
RULES = """
version: 1
rules:
  - { name: jobs, namespace: "*.jobs", queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 1s } }
"""


def work(uri, database, fenced):
    """Four workers on all jobs, one of them stopped past its lease with a job; returns their output."""
    script = Path(__file__).with_name("queue_worker.py")
    modes = ["fenced"] if fenced else []

    def start(name, *more):
        command = [sys.executable, str(script), uri, database, name, *modes, *more]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    sleeper = start("w0", "sleeper")
    workers = [sleeper]
    try:
        first = sleeper.stdout.readline()
        os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED)
        workers += (start(f"w{n}") for n in range(1, 4))
        yield json.loads(first)
        sleeper.send_signal(signal.SIGCONT)
        for worker in workers:
            printed, _ = worker.communicate(timeout=servers.TIMEOUT)
            yield from (json.loads(line) for line in printed.splitlines())
    finally:
        for worker in workers:
            worker.send_signal(signal.SIGCONT)
            worker.kill()


def test_every_job_completes_exactly_once(mongod, docward_factory):
    docward = docward_factory(RULES)
    database = f"queue_{time.time_ns()}"
    MongoClient(docward.uri)[database].jobs.insert_many([{"_id": n, "done": False} for n in range(JOBS)])
    direct = MongoClient(mongod.uri)[database].jobs
    assert direct.count_documents({"locked": False, "try": 0, "tlocked": {"$type": "date"}}) == JOBS

    events = work(docward.uri, database, fenced=True)
    held = next(events)["claimed"]
    # Another worker takes over the job after its lease has expired, and completes it.
    deadline = time.monotonic() + servers.TIMEOUT
    while not direct.find_one({"_id": held})["done"]:
        assert time.monotonic() < deadline, "no worker took the job over"
        time.sleep(0.1)
    printed = list(events)

    late = [event for event in printed if event["worker"] == "w0" and event.get("of") == held]
    assert [event["completed"] for event in late] == [None], "the late worker completed a job that was taken over"
    assert [job["_id"] for job in direct.find({"completions": {"$ne": 1}})] == []
    assert direct.count_documents({"done": True, "locked": False}) == JOBS
    # Once by the sleeper; a slow worker may lose its lease too.
    assert direct.find_one({"_id": held})["try"] >= 2


def test_without_the_rule_a_job_is_done_twice(mongod, docward_factory):
    docward = docward_factory("")
    database = f"queue_{time.time_ns()}"
    direct = MongoClient(mongod.uri)[database].jobs
    direct.insert_many([{"_id": n, "done": False, "locked": False} for n in range(JOBS)])
    events = work(docward.uri, database, fenced=False)
    held = next(events)["claimed"]
    # An application that takes over expired jobs itself.
    direct.update_one({"_id": held, "done": False}, {"$set": {"locked": False}})
    deadline = time.monotonic() + servers.TIMEOUT
    while not direct.find_one({"_id": held})["done"]:
        assert time.monotonic() < deadline, "no worker took the job over"
        time.sleep(0.1)
    list(events)
    assert direct.find_one({"_id": held})["completions"] == 2
