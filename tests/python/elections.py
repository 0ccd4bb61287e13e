"""What applications see when the primary steps down or is killed (`make elections`).

Drivers insert, read and commit transactions, directly and through a router, with retryWrites and without. Prints the
operations that failed, by kind and error, and the longest time of one.
"""

import os
import re
import time
from collections import Counter
from contextlib import ExitStack, closing

from pymongo import MongoClient

import servers
from drains import Load, drivers

ROUNDS = int(os.environ.get("DOCWARD_ELECTIONS", "3"))
PAUSE = 2  # seconds of load before and after each election
WHAT_DIFFERS = re.compile(r"127\.0\.0\.1:\d+|\d{3,}|\{.*")


def kill(replica_set):
    """Kills the primary and waits for another one."""
    before = replica_set.primary()
    next(member for member in replica_set.members if member.address == before).kill()
    replica_set.primary()


FAULTS = {"step-down": servers.ReplicaSet.step_down, "kill -9": kill}


def observed(way, fault, retries, commands):
    """The results of the drivers' loads, and the seconds of each election."""
    with ExitStack() as stack:
        elections, replica_set = [], stack.enter_context(closing(servers.ReplicaSet()))
        uri = replica_set.uri
        if way == "router":
            arguments = ("--topology", "router")
            docward = stack.enter_context(closing(servers.Docward(servers.docward_executable(), uri, arguments=arguments)))
            uri = f"mongodb://{docward.address}/?maxPoolSize=100"
        uri += f"&retryWrites={retries}"
        with MongoClient(replica_set.uri) as client:
            for name in commands:
                client[name].many.insert_many([{"_id": number} for number in range(200)])
        started = [Load(name, [*command, uri, name], more) for name, (command, more) in commands.items()]
        loads = [stack.enter_context(closing(load)) for load in started]
        for load in loads:
            load.await_working()
        for _ in range(ROUNDS if fault == "step-down" else 1):
            time.sleep(PAUSE)
            began = time.monotonic()
            FAULTS[fault](replica_set)
            elections.append(time.monotonic() - began)
        time.sleep(PAUSE)
        return {load.name: load.stop() for load in loads}, elections


def assert_none_lost(result):
    inserted, committed = result["stored"]
    for kind, stored in (("insert", inserted), ("transaction", committed / 2)):
        done = result["done"][kind]
        assert done <= stored <= done + result["failures"].get(kind, 0), result


def columns(result):
    """The last columns of a row: operations, failed ones, the longest, errors."""
    kind, longest = max(result["longest"].items(), key=lambda each: each[1])
    errors = Counter(WHAT_DIFFERS.sub("…", text)[:160] for text in result["texts"])
    counts = ", ".join(f"{count} {kind}" for kind, count in result["failures"].items()) or "0"
    texts = "; ".join(f"{count} × {text}" for text, count in errors.items()).replace("|", "/")
    return f"{sum(result['done'].values())} | {counts} | {longest:.1f} s {kind} | {texts} |"


def main():
    commands = drivers()
    print("| driver | fault | retryWrites | way | operations | failed | longest | errors |\n|---|---|---|---|---|---|---|---|")
    for fault in FAULTS:
        for retries in ("true", "false"):
            for way in ("direct", "router"):
                results, elections = observed(way, fault, retries, commands)
                for name, result in results.items():
                    print(f"| {name} | {fault} | {retries} | {way} | {columns(result)}")
                    assert_none_lost(result)
                print("elections:", *(f"{each:.1f} s" for each in elections), flush=True)


if __name__ == "__main__":
    main()
