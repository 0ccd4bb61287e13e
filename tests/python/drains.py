"""Drains and hand-overs of one of two docwards behind HAProxy while drivers work (`make drains`).

Both docwards are routers (`DOCWARD_TOPOLOGY=members`: they have the same `members`) with a service connection
(`DOCWARD_SERVICE=0`: none). The drivers know the balancer only, with `DOCWARD_OPTIONS` in their connection string. Each
round starts new drivers, so that each has connections at both docwards (with `source`: at one), ends one docward, and
counts what failed at the drivers. At the end, `max_lifetime`: a docward that was restarted gets clients again.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from bson import json_util
from pymongo import MongoClient

import servers

ROUNDS = int(os.environ.get("DOCWARD_DRAINS", "20"))
ALGORITHMS = os.environ.get("DOCWARD_BALANCE", "roundrobin leastconn source").split()
POOL = os.environ.get("DOCWARD_DRAINS_POOL", "100")  # the default of drivers
SKIPPED = 77  # exit status of a script without its toolchain
SERVICE = os.environ.get("DOCWARD_SERVICE", "1") == "1"  # whether the docwards have a service connection
MEMBERS = os.environ.get("DOCWARD_TOPOLOGY") == "members"
OPTIONS = os.environ.get("DOCWARD_OPTIONS", "replicaSet=rs0" if MEMBERS else "loadBalanced=true")
LIFETIME = 6  # seconds
CHECKED = 1.5  # seconds until HAProxy has found out that a docward is ready
BEFORE, AFTER = 1.0, 1.5  # seconds of load before a drain begins and after the drained process has ended


class Load:
    """A program that works until its standard input ends."""

    def __init__(self, name, command, environment):
        self.name = name
        self.child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
        )

    def await_working(self):
        assert self.child.stdout.readline(), f"{self.name} did not begin"

    def stop(self):
        try:
            return json_util.loads(self.child.communicate(timeout=servers.TIMEOUT)[0])
        finally:
            self.close()

    def close(self):
        self.child.kill()


def drivers():
    """The commands of the drivers that are installed, by name, and their environments."""
    node = {"NODE_PATH": servers.script_output("node-driver.sh")}
    python, tests = sys.executable, servers.REPOSITORY / "tests"
    found = {
        "pymongo": ([python, tests / "python/drain_load.py"], {}),
        "node": (["node", tests / "node/load.js"], node),
    }
    for name, script in (("go", "go-program.sh"), ("java", "java-scenario.sh")):
        built = subprocess.run([servers.REPOSITORY / "scripts" / script], stdout=subprocess.PIPE, text=True)
        program = built.stdout.strip()
        if built.returncode == SKIPPED:
            print(f"skipped: {name}")
            continue
        assert built.returncode == 0, name
        found[name] = (["java", "-cp", program, "Scenario", "load"] if name == "java" else [program, "load"], {})
    return {name: each for name, each in found.items() if name in os.environ.get("DOCWARD_DRIVERS", name)}


class Pair:
    """Two docwards behind HAProxy, or, without an algorithm of balancing, both in the connection string."""

    def __init__(self, stack, algorithm, mongod, *arguments, rules=""):
        self.mongod = mongod
        self.arguments = arguments
        self.rules = rules
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.listeners, self.admins = ([servers.free_port() for _ in range(2)] for _ in range(2))
        self.balanced = algorithm is not None
        self.hosts = [f"127.0.0.1:{port}" for port in self.listeners]
        if self.balanced:
            self.hosts = [stack.enter_context(closing(servers.Haproxy(algorithm, self.listeners, self.admins))).address]
        self.docwards = [self.start(0), self.start(1)]
        time.sleep(CHECKED)

    def start(self, at):
        listen = f"127.0.0.1:{self.listeners[at]}"
        shown = ("--topology", "router", "--listen", listen)
        if MEMBERS:
            shown = ("--member", f"{self.mongod.address}={listen},{self.hosts[0]}")
        admin = f"127.0.0.1:{self.admins[at]}"
        hand_over = self.folder / f"{at}.sock"
        service = ("--service", self.mongod.uri) if SERVICE else ()
        named = ("--proxy-protocol", "127.0.0.1") if self.balanced else ()  # HAProxy names its clients
        arguments = (*shown, *named, "--admin", admin, "--hand-over", str(hand_over), *service, *self.arguments)
        return servers.Docward(servers.docward_executable(), self.mongod.uri, self.rules, arguments)

    def end(self, at, hands_over):
        """Ends a docward, and returns how long that took, and what it logged."""
        before = self.docwards[at]
        began = time.monotonic()
        if hands_over:
            self.docwards[at] = self.start(at)
        else:
            before.terminate()
        status = before.child.wait(servers.TIMEOUT)
        took = time.monotonic() - began
        assert status == 0, before.log
        if hands_over:
            before.close()
        return took, [line for line in before.log if "still" in line]

    def restart(self, at):
        self.docwards[at].close()  # kills it
        self.docwards[at] = self.start(at)
        time.sleep(CHECKED)

    def close(self):
        for docward in self.docwards:
            docward.close()


@contextmanager
def work(pair, round, commands, more={}):
    """Starts the drivers, each with a database of its own and `more` arguments by name, and ends them."""
    databases = {name: f"drains_{name}_{round}" for name in commands}
    with MongoClient(pair.mongod.uri) as client:
        for database in databases.values():
            client[database].many.insert_many([{"_id": number} for number in range(200)])
    uri = f"mongodb://{','.join(pair.hosts)}/?{OPTIONS}&maxPoolSize={POOL}"
    with ExitStack() as stack:
        started = [Load(name, [*command, uri, databases[name], *more.get(name, ())], environment) for name, (command, environment) in commands.items()]
        loads = [stack.enter_context(closing(load)) for load in started]
        for load in loads:
            load.await_working()
        yield loads


def clients_at(port):
    """The number of connections to this port of this machine."""
    listed = subprocess.run(["ss", "-Htn", f"dport = :{port}"], stdout=subprocess.PIPE, text=True)
    return len(listed.stdout.splitlines())


def stop(loads):
    """Stops the drivers and returns how many operations failed, by driver and kind."""
    failed = Counter()
    for load in loads:
        result = load.stop()
        print("  ", load.name, json_util.dumps(result))
        failed.update({(load.name, kind): count for kind, count in result["failures"].items()})
    return failed


def drains(algorithm, mongod, commands):
    """Ends each of two docwards in turn, and returns how many operations failed."""
    failed, took = Counter(), []
    with ExitStack() as stack:
        pair = stack.enter_context(closing(Pair(stack, algorithm, mongod)))
        for round in range(ROUNDS):
            hands_over = round % 4 >= 2
            with work(pair, f"{algorithm}_{round}", commands) as loads:
                time.sleep(BEFORE)
                clients = [clients_at(port) for port in pair.listeners]
                # With `source`, all clients of this machine are at one docward.
                at = clients.index(max(clients)) if algorithm == "source" else round % 2
                duration, log = pair.end(at, hands_over)
                took.append(duration)
                time.sleep(AFTER)
                kind = "hand-over" if hands_over else "drain"
                print(f"{algorithm} {round} {kind}: {duration:.1f} s, clients before {clients}", *log)
                failed += stop(loads)
            if not hands_over:
                pair.restart(at)
    print(f"{algorithm}: {ROUNDS} ends, seconds: mean {sum(took) / len(took):.1f}, longest {max(took):.1f}")
    return failed


def redistribution(algorithm, mongod, commands):
    """Restarts a docward while the drivers work, and returns how many operations failed until it has clients again."""
    with ExitStack() as stack:
        pair = stack.enter_context(closing(Pair(stack, algorithm, mongod, "--max-lifetime", f"{LIFETIME}s")))
        with work(pair, f"{algorithm}_lifetime", commands) as loads:
            time.sleep(BEFORE)
            pair.end(0, hands_over=False)
            pair.restart(0)
            clients = [clients_at(port) for port in pair.listeners]
            time.sleep(2 * LIFETIME)
            later = [clients_at(port) for port in pair.listeners]
            print(f"{algorithm}: clients after the restart {clients}, {2 * LIFETIME} s later {later}")
            assert all(later) or algorithm == "source", later
            return stop(loads)


def main():
    if not shutil.which("haproxy"):
        sys.exit("haproxy is needed, and there is none on the PATH")
    commands = drivers()
    failed = Counter()
    with closing(servers.Mongod()) as mongod:
        for algorithm in ALGORITHMS:
            for scenario in (drains, redistribution):
                failed += scenario(algorithm, mongod, commands)
    print("failed operations:", {" ".join(key): count for key, count in failed.items()} or "none")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
