"""A program of drains.Load: repeats kinds of work until its standard input ends, then prints how each of them failed."""

import json
import sys
import threading
import time
from collections import Counter, defaultdict

from pymongo.errors import PyMongoError


def run(kinds, stored):
    """Repeats each of `kinds`, a function by name and its number of threads, and prints `stored()` with the rest.

    A function gets the number of its successes so far. What it raises is a failure.
    """
    stopping = threading.Event()
    done, failures, texts, durations = Counter(), Counter(), [], defaultdict(list)

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
        threading.Thread(target=repeat, args=(name, work)) for name, (work, count) in kinds.items() for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    while not all(done[name] for name in kinds):
        time.sleep(0.01)
    print(json.dumps({"working": True}), flush=True)
    sys.stdin.read()
    stopping.set()
    for thread in threads:
        thread.join()
    longest = {name: round(max(times), 2) for name, times in durations.items()}  # seconds
    result = {"done": done, "failures": failures, "texts": texts[:200], "longest": longest, "stored": stored()}
    print(json.dumps(result), flush=True)
