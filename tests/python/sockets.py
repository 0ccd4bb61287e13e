"""Sockets and monitors of 1,000 PyMongo clients of a replica set of three, by the way that they connect (`make sockets`).

Each client reads at the primary and at secondaries, and then does nothing. `DOCWARD_CLIENTS=1000`.
"""

import os
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path

from pymongo import MongoClient
from pymongo.read_preferences import Secondary

import servers
from topologies import Way

CLIENTS = int(os.environ.get("DOCWARD_CLIENTS", "1000"))
PROCESSES = 10
PAUSE = 2  # seconds
READS = 8  # of secondaries, which drivers choose at random


def main():
    with closing(servers.ReplicaSet()) as replica_set, ExitStack() as stack:
        lengthen_election_timeout(replica_set.client.admin)
        # The primary first.
        addresses = sorted(replica_set.addresses, key=lambda address: address != replica_set.primary())
        members = [stack.enter_context(MongoClient(address, directConnection=True)) for address in addresses]
        print("| | sockets at docward | at the primary | at each secondary | monitors at each member |\n|---|---|---|---|---|")
        for name, way in ways(replica_set):
            print(f"| {name} | {' | '.join(count(members, way))} |", flush=True)
            for docward in way.docwards:
                docward.close()


def lengthen_election_timeout(admin):
    """Thousands of new connections are no reason for an election."""
    configuration = admin.command("replSetGetConfig")["config"]
    configuration["version"] += 1
    configuration["settings"]["electionTimeoutMillis"] = 10_000_000
    admin.command("replSetReconfig", configuration)


def ways(replica_set):
    """Each with a docward of its own."""
    yield "directly", Way(replica_set.addresses, ["replicaSet=rs0"])
    pool = ("--pool-size", "50")
    for name, arguments in ("listeners of members", ()), ("the same with `pool`", pool):
        docward = start(replica_set, *arguments, listeners=3)
        yield name, Way(docward.addresses, ["replicaSet=rs0"], [docward])
    for name, options in ("router", []), ("router, `loadBalanced=true`", ["loadBalanced=true"]):
        docward = start(replica_set, "--topology", "router")
        yield name, Way([docward.address], options, [docward], router=True)


def start(replica_set, *arguments, listeners=1):
    return servers.Docward(servers.docward_executable(), replica_set.uri, arguments=arguments, listeners=listeners)


def count(members, way):
    """What the clients add to the sockets of docward and of the members, and to the hellos that wait at these."""
    before = settled(members, way)
    command = [sys.executable, __file__, way.uri(), str(CLIENTS // PROCESSES)]
    programs = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(PROCESSES)
    ]
    try:
        for program in programs:
            assert program.stdout.readline(), "a client failed"
        added = [after - start for start, after in zip(before, settled(members, way))]
    finally:
        for program in programs:
            program.communicate()
    docward, sockets, monitors = added[0], added[1:4], added[4:]
    return "" if not way.docwards else str(docward), str(sockets[0]), text(sockets[1:]), text(monitors)


def text(numbers):
    return " to ".join(map(str, sorted({min(numbers), max(numbers)})))


def settled(members, way):
    """What is the same twice: connections of earlier clients have ended, and monitors wait."""
    before = None
    while (now := seen(members, way)) != before:
        before = now
        time.sleep(PAUSE)
    return now


def seen(members, way):
    links = (link for docward in way.docwards for link in Path(f"/proc/{docward.pid}/fd").iterdir())
    sockets = sum(os.readlink(link).startswith("socket:") for link in links)
    statuses = [client.admin.command("serverStatus")["connections"] for client in members]
    return [sockets, *(each[key] for key in ("current", "awaitingTopologyChanges") for each in statuses)]


def work(uri, number):
    """A program with clients, which it keeps open until its standard input ends."""
    clients = [MongoClient(uri, serverSelectionTimeoutMS=servers.TIMEOUT * 1000) for _ in range(number)]
    for client in clients:
        client.admin.command("ping")
        for _ in range(READS):
            client.shop.get_collection("orders", read_preference=Secondary()).find_one()
    print("ready", flush=True)
    sys.stdin.read()
    os._exit(0)  # closing would take longer than all else


if len(sys.argv) > 1:
    work(sys.argv[1], int(sys.argv[2]))
else:
    main()
