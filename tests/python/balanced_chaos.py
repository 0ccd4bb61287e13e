"""Members and docwards fail while four drivers work through two routers behind HAProxy (part of `make chaos`).

Prints the operations that failed, by kind and error, and the longest time of one, and compares what is stored with what
was acknowledged. `DOCWARD_CHAOS_EVENTS=24` and `DOCWARD_CHAOS_SEED` as for the other parts.
"""

import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import ExitStack, closing

import servers
from drains import OPTIONS, Pair, drivers, work
from elections import assert_none_lost, kill, columns

EVENTS = int(os.environ.get("DOCWARD_CHAOS_EVENTS", "24"))
SEED = int(os.environ.get("DOCWARD_CHAOS_SEED", "20261121"))
PAUSE = 3  # seconds of load after each event
HANGS = 7  # seconds; an election begins after five
# Errors that a member's failure must not cause: state changes, and cursors whose members live.
HIDDEN = ["NotWritablePrimary", "PrimarySteppedDown", "InterruptedDueToReplStateChange", "NotPrimaryNoSecondaryOk"]


def rules(databases):
    """A sequence for what is inserted, and bounds for what is updated."""
    lines = ["version: 1", "rules:"]
    for index, database in enumerate(databases):
        lines += [
            f"- {{ name: numbers-{index}, namespace: {database}.inserted, sequence: {{ field: no, counter: counter-{index} }} }}",
            f"- {{ name: bounds-{index}, namespace: {database}.many, bounds: {{ field: n, min: 0 }} }}",
        ]
    return "\n".join(lines) + "\n"


def hang(replica_set):
    """Stops the primary for longer than an election takes."""
    before = replica_set.primary()
    pid = next(member.pid for member in replica_set.members if member.address == before)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(HANGS)
    os.kill(pid, signal.SIGCONT)


def kill_and_restart(replica_set):
    kill(replica_set)
    next(member for member in replica_set.members if member.ended).start()


EVENT_KINDS = {
    "step-down": lambda pair, at: pair.mongod.step_down(),
    "primary hangs": lambda pair, at: hang(pair.mongod),
    "primary is killed": lambda pair, at: kill_and_restart(pair.mongod),
    "docward is killed": lambda pair, at: pair.restart(at),
    "hand-over": lambda pair, at: pair.end(at, hands_over=True),
    "drain": lambda pair, at: (pair.end(at, hands_over=False), pair.restart(at)),
}


def main():
    chosen = random.Random(SEED)
    commands = drivers()
    databases = [f"drains_{name}_chaos" for name in commands]
    happened = Counter()
    with ExitStack() as stack:
        replica_set = stack.enter_context(closing(servers.ReplicaSet()))
        pair = stack.enter_context(closing(Pair(stack, "roundrobin", replica_set, rules=rules(databases))))
        with work(pair, "chaos", commands) as loads:
            for number in range(EVENTS):
                time.sleep(PAUSE)
                kind, at = chosen.choice(list(EVENT_KINDS)), chosen.randrange(2)
                began = time.monotonic()
                EVENT_KINDS[kind](pair, at)
                happened[kind] += 1
                print(f"{number + 1}/{EVENTS} {kind}: {time.monotonic() - began:.1f} s", flush=True)
            time.sleep(PAUSE)
            results = {load.name: load.stop() for load in loads}
        print(f"seed {SEED}, {OPTIONS}: {dict(happened)}")
        print("| driver | operations | failed | longest | errors |\n|---|---|---|---|---|")
        for name, result in results.items():
            print("|", name, "|", columns(result), flush=True)
        for database, result in zip(databases, results.values()):
            assert_none_lost(result)
            inserted = replica_set.client[database].inserted
            assert len(inserted.distinct("no")) == inserted.count_documents({}), f"{database}: a number was issued twice"
        texts = [text for result in results.values() for text in result["texts"]]
        sys.exit("\n".join(text for text in texts if any(hidden in text for hidden in HIDDEN)) or None)


if __name__ == "__main__":
    main()
