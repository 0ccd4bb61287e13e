"""Twenty clients of `make goodput`: each finds, thinks, and finds again until standard input ends. Prints a row of the table:
version, operations, share of those that failed, 99th percentile of their times."""

import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pymongo
from pymongo.errors import PyMongoError

CLIENTS = 20
THINKING = 2  # seconds, on average
# A hello that waits for a change would occupy one of the few threads of the server.
OPTIONS = {"maxPoolSize": 5, "serverMonitoringMode": "poll", "heartbeatFrequencyMS": 30_000}
stopping = threading.Event()


def work(uri):
    times, failures = [], 0
    with pymongo.MongoClient(uri, appName=f"goodput-pymongo-{pymongo.version}", **OPTIONS) as client:
        while not stopping.wait(random.uniform(0, 2 * THINKING)):
            began = time.monotonic()
            try:
                client.bench.devices.find_one({"_id": 1})
            except PyMongoError as error:
                failures += 1
                print(type(error).__name__, error, file=sys.stderr)
            times.append(time.monotonic() - began)
    return times, failures


with ThreadPoolExecutor(CLIENTS) as executor:
    results = [executor.submit(work, sys.argv[1]) for _ in range(CLIENTS)]
    sys.stdin.read()
    stopping.set()
times = sorted(time for result in results for time in result.result()[0])
failed = sum(result.result()[1] for result in results)
print(f"PyMongo {pymongo.version} | {len(times)} | {failed / len(times):.1%} | {times[len(times) * 99 // 100]:.1f} s")
