"""Members and docwards fail while drivers work through two routers behind HAProxy (part of `make chaos`).

`DOCWARD_OPTIONS=loadBalanced=true` (default) or `=retryWrites=true`; `DOCWARD_CHAOS_WAY=seeds`: both routers are in the
connection string. Prints the operations that failed, by kind and error, and the longest time of one. Fails if something
stored is not what was acknowledged, if a change stream omitted or repeated a change, if a cursor was lost although its
member lived, or if a client got a state change of a member. `DOCWARD_CHAOS_EVENTS=24` and `DOCWARD_CHAOS_SEED` as for the
other parts.
"""

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import ExitStack, closing
from datetime import datetime

import servers
from drains import OPTIONS, Pair, drivers, work
from elections import assert_none_lost, columns

EVENTS = int(os.environ.get("DOCWARD_CHAOS_EVENTS", "24"))
SEED = int(os.environ.get("DOCWARD_CHAOS_SEED", "20261121"))
SEEDS = os.environ.get("DOCWARD_CHAOS_WAY") == "seeds"
PAUSE = 3  # seconds of load after each event
HANGS = 7  # seconds; an election begins after five
# Errors that a member's state change must not cause.
HIDDEN = ["NotWritablePrimary", "PrimarySteppedDown", "InterruptedDueToReplStateChange", "NotPrimaryNoSecondaryOk"]
# A reply to another request. PyMongo 4.20 with loadBalanced=true can give one connection to two threads, if a cursor ends
# with its first batch (a pause after `Connection.unpin` shows it).
HIDDEN += [] if "loadBalanced" in OPTIONS else ["ProtocolError"]
READS = "reads"


def rules(databases):
    """A sequence for what is inserted, and bounds for what is updated."""
    lines = ["version: 1", "rules:"]
    for index, database in enumerate(databases):
        lines += [
            f"- {{ name: numbers-{index}, namespace: {database}.inserted, sequence: {{ field: no, counter: counter-{index} }} }}",
            f"- {{ name: bounds-{index}, namespace: {database}.many, bounds: {{ field: n, min: 0 }} }}",
        ]
    return "\n".join(lines) + "\n"


def member(replica_set, chosen, is_primary):
    primary = replica_set.primary()
    return chosen.choice([each for each in replica_set.members if (each.address == primary) == is_primary])


def hang(process):
    """Stops a process for longer than an election takes."""
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(HANGS)
    os.kill(process.pid, signal.SIGCONT)


def kill(replica_set, process, killed):
    """Kills a member, waits for a primary and starts the member again."""
    process.kill()
    killed.append((process.address, time.time()))
    replica_set.primary()
    process.start()
    process.await_answer("ping")


EVENT_KINDS = {
    "step-down": lambda pair, chosen, killed: pair.mongod.step_down(),
    "primary hangs": lambda pair, chosen, killed: hang(member(pair.mongod, chosen, True)),
    "secondary hangs": lambda pair, chosen, killed: hang(member(pair.mongod, chosen, False)),
    "primary is killed": lambda pair, chosen, killed: kill(pair.mongod, member(pair.mongod, chosen, True), killed),
    "secondary is killed": lambda pair, chosen, killed: kill(pair.mongod, member(pair.mongod, chosen, False), killed),
    "docward hangs": lambda pair, chosen, killed: hang(pair.docwards[chosen.randrange(2)]),
    "docward is killed": lambda pair, chosen, killed: pair.restart(chosen.randrange(2)),
    "hand-over": lambda pair, chosen, killed: pair.end(chosen.randrange(2), hands_over=True),
    "drain": lambda pair, chosen, killed: drain(pair, chosen.randrange(2)),
}


def drain(pair, at):
    pair.end(at, hands_over=False)
    pair.restart(at)


def rollbacks(replica_set):
    """Members and times; a rollback ends the cursors of its member."""
    for each in replica_set.members:
        for line in (each.folder / "mongod.log").read_text().splitlines():
            if '"newState":"ROLLBACK"' in line:
                yield each.address, datetime.fromisoformat(json.loads(line)["t"]["$date"]).timestamp()


def cursors_lost_at_living_members(lost, ended):
    """The texts of lost cursors whose member (`None`: unknown) neither ended nor rolled back since they were opened."""
    for member, opened, failed, found, text in lost:
        if not any(member in (address, None) and opened < at < failed for address, at in ended):
            yield f"cursor at {member}, opened {opened:.1f}, lost {failed:.1f} after {found} documents: {text}"


def main():
    chosen = random.Random(SEED)
    commands = drivers()
    databases = [f"drains_{name}_chaos" for name in commands]
    happened, killed, faults = Counter(), [], []
    with ExitStack() as stack:
        replica_set = stack.enter_context(closing(servers.ReplicaSet()))
        pair = stack.enter_context(closing(Pair(stack, None if SEEDS else "roundrobin", replica_set, rules=rules(databases))))
        reads = ([sys.executable, servers.REPOSITORY / "tests/python/chaos_reads.py"], {})
        with work(pair, "chaos", commands | {READS: reads}, more={READS: replica_set.addresses}) as loads:
            for number in range(EVENTS):
                time.sleep(PAUSE)
                kind = chosen.choice(list(EVENT_KINDS))
                began = time.monotonic()
                EVENT_KINDS[kind](pair, chosen, killed)
                happened[kind] += 1
                print(f"{number + 1}/{EVENTS} {datetime.now():%X} {kind}: {time.monotonic() - began:.1f} s", flush=True)
            time.sleep(PAUSE)
            results = {load.name: load.stop() for load in loads}
        print(f"seed {SEED}, {'seeds' if SEEDS else 'balanced'}, {OPTIONS}: {dict(happened)}")
        print("| driver | operations | failed | longest | errors |\n|---|---|---|---|---|")
        for name, result in results.items():
            print("|", name, "|", columns(result), flush=True)
        texts = [text for result in results.values() for text in result["texts"]]
        shown = results.pop(READS)["stored"]
        texts += shown["stream"]["resumed"]
        faults += (text for text in texts if any(hidden in text for hidden in HIDDEN))
        print(shown)
        ended = [*killed, *rollbacks(replica_set)]
        print(f"{len(killed)} members killed, {len(ended) - len(killed)} rollbacks, {len(shown['lost'])} cursors lost")
        faults += cursors_lost_at_living_members(shown["lost"], ended)
        if shown["stream"]["missing"] or shown["stream"]["twice"]:
            faults.append(f"change stream: {shown['stream']}")
        for database, result in zip(databases, results.values()):
            assert_none_lost(result)
            inserted = replica_set.client[database].inserted
            assert len(inserted.distinct("no")) == inserted.count_documents({}), f"{database}: a number was issued twice"
        sys.exit("\n".join(faults) or None)


if __name__ == "__main__":
    main()
