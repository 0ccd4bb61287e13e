"""Runs the suite against one address, in a process of its own, and reads what it recorded."""

import json
import os
import re
import subprocess
import sys
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import servers
from topologies import Topology

HERE = Path(__file__).resolve().parent
RULE_FILES = [
    file for file in sorted((servers.REPOSITORY / "rules").glob("*.yaml")) if not file.name.endswith(".test.yaml")
]

# Asynchronous tests are the same tests once more, generated from these; mockupdb's need no server.
LEFT_OUT = ["--ignore=test/asynchronous", "--ignore=test/mockupdb"]
# Variables by which the driver finds out where it runs, and which the suite's expectations do not have.
SURROUNDINGS = {"KUBERNETES_SERVICE_HOST"}
TEST_TIMEOUT = 120  # seconds; the slowest test needs less than half of that


@dataclass
class Result:
    outcome: str  # passed, skipped or failed, as pytest has it
    seconds: float
    text: str  # why it failed or was skipped
    loses_requests: bool = False  # by a failpoint, as a member does that dies; only known with a pool


class Target:
    """A server of its own, with docwards before it if there are rules to load; `topology` is one of topologies.py.

    The server is a replica set of one, or of three behind routers.
    """

    def __init__(self, name, rules=None, topology="members"):
        self.name = name
        self.topology = topology
        with ExitStack() as stack:
            self.server = stack.enter_context(closing(servers.Mongod() if topology == "members" else servers.ReplicaSet()))
            made = Topology(topology, self.server, partial(self._start, stack))
            stack.enter_context(made.balancers)
            self.way = made.direct if rules is None else made.through(rules)
            if self.has_router:
                # The suite asks a mongos for its shards to know whether there are secondaries.
                shard = {"_id": "rs0", "host": f"rs0/{','.join(self.server.addresses)}"}
                self.server.client.config.shards.insert_one(shard)
            self._open = stack.pop_all()

    def _start(self, stack, rules, *arguments, upstream=None):
        executable = servers.docward_executable()
        return stack.enter_context(closing(servers.Docward(executable, upstream or self.server.uri, rules, arguments)))

    @property
    def log(self):
        return [line for docward in self.way.docwards for line in docward.log]

    @property
    def has_router(self):
        return self.way.router

    @property
    def has_pool(self):
        return self.has_router or bool(self.way.docwards and servers.pool_size())

    def close(self):
        self._open.close()


class Run(servers.Process):
    """A run of `tests` (files or ids of the suite) against a target, but not of those `without`.

    The record and what pytest prints stay in `folder`, in files named after the target.
    """

    def __init__(self, target, tests, folder, compressors=None, without=()):
        folder.mkdir(parents=True, exist_ok=True)
        self.target = target
        self.record = folder / f"{target.name}.jsonl"
        self.record.unlink(missing_ok=True)
        self.printed = folder / f"{target.name}.log"
        with open(self.printed, "w") as log:
            super().__init__(
                "docward-suite-",
                lambda _: [*_pytest_command(target), *(f"--deselect={each}" for each in without), *tests],
                cwd=servers.script_output("pymongo-suite.sh"),
                env=_environment(target, self.record, compressors),
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait(self, timeout=None):
        """Waits for the end and returns the results by id."""
        status = self.child.wait(timeout)
        # 0 and 1 mean that the run came to its end, with or without failures.
        if status not in (0, 1):
            raise RuntimeError(f"pytest ended with {status} ({self.target.name}), see {self.printed}")
        return self.results()

    def results(self):
        """What has ended by now."""
        lines = self.record.read_text().splitlines(keepends=True) if self.record.exists() else []
        read = [json.loads(line) for line in lines if line.endswith("\n")]  # else it is being written
        return {each.pop("test"): Result(**each) for each in read}


def run(*arguments, **options):
    """As Run, and waits for its results."""
    with closing(Run(*arguments, **options)) as started:
        return started.wait()


def unrelated_rules(without=()):
    """All of rules/ in one text, moved to databases that nothing else uses; `without` these patterns."""
    files = [file for file in RULE_FILES if file.stem not in without]
    bodies = [file.read_text().split("\nrules:\n", 1)[1] for file in files]
    together = "".join(bodies)
    moved, places = re.subn(r"\b(namespace|into): (\w+\.)", r"\1: unrelated_\2", together)
    # An `into` without a database names a collection beside the rule's own.
    if places != len(re.findall(r"\bnamespace: |\binto: \w+\.", together)):
        raise RuntimeError("a rule in rules/ has a namespace that is not written as database.collection")
    return "version: 1\nrules:\n" + moved


def _pytest_command(target):
    return [
        *(sys.executable, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", "-p", "pymongo_suite.recorder"),
        # The settings of the suite, but for the report that it would write beside itself;
        # `default` leaves out what needs servers of other kinds, as pymongo's own runs do.
        *("-c", "pyproject.toml", "-o", "addopts=", "-m", "default or load_balancer", *LEFT_OUT),
        *(f"--timeout={TEST_TIMEOUT}", "--tb=short"),
        *(("-p", "pymongo_suite.failpoints") if target.has_pool else ()),
    ]


def _environment(target, into, compressors):
    host, port = target.way.hosts[0].rsplit(":", 1)
    environment = {
        **{name: value for name, value in os.environ.items() if name not in SURROUNDINGS},
        "DB_IP": host,
        "DB_PORT": port,
        "RECORD": str(into),
        "PYTHONPATH": str(HERE.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        "FAILPOINT_APP_NAME": "docward",
    }
    if "loadBalanced=true" in target.way.options:
        balanced = {f"{number}_MONGOS_LB_URI": target.way.uri() for number in ("SINGLE", "MULTI")}
        environment |= {"TEST_LOAD_BALANCER": "1", **balanced}
    if compressors:
        environment["COMPRESSORS"] = compressors
    return environment
