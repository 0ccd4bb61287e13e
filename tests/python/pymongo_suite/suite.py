"""Runs the suite against one address, in a process of its own, and reads what it recorded."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import servers

HERE = Path(__file__).resolve().parent
RULE_FILES = sorted((servers.REPOSITORY / "rules").glob("*.yaml"))

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


class Road:
    """A mongod of its own, with a docward before it if there are rules to load."""

    def __init__(self, name, rules=None):
        self.name = name
        self.docward = None
        self.mongod = servers.Mongod(cache=1)
        try:
            if rules is not None:
                executable = servers.docward_executable()
                self.docward = servers.Docward(executable, self.mongod.uri, rules)
        except BaseException:
            self.close()
            raise

    @property
    def address(self):
        return (self.docward or self.mongod).address

    def close(self):
        if self.docward:
            self.docward.close()
        self.mongod.close()


def run(road, tests, folder, compressors=None, without=()):
    """Runs `tests` (files or ids of the suite), but not those `without`, and returns their results by id.

    The record and what pytest printed stay in `folder`, in files named after the road.
    """
    folder.mkdir(parents=True, exist_ok=True)
    into = record(road, folder)
    into.unlink(missing_ok=True)
    with open(folder / f"{road.name}.log", "w") as log:
        child = subprocess.Popen(
            [sys.executable, *_pytest_arguments(), *(f"--deselect={each}" for each in without), *tests],
            cwd=servers.script_output("pymongo-suite.sh"),
            env=_environment(road, into, compressors),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            status = child.wait()
        finally:
            child.kill()
            child.wait()
    # 0 and 1 mean that the run came to its end, with or without failures.
    if status not in (0, 1):
        raise RuntimeError(f"pytest ended with {status} ({road.name}), see {folder}/{road.name}.log")
    return read(into)


def record(road, folder):
    """The file with the results of the last run on a road."""
    return folder / f"{road.name}.jsonl"


def read(file):
    """The results that a record holds by now; none if nothing has ended yet."""
    if not file.exists():
        return {}
    results = {}
    for line in file.read_text().splitlines(keepends=True):
        if not line.endswith("\n"):
            break  # being written
        result = json.loads(line)
        test = result.pop("test")
        results[test] = Result(**result)
    return results


def unrelated_rules(without=()):
    """All of rules/ in one text, moved to databases that nothing else uses; `without` these patterns."""
    files = [file for file in RULE_FILES if file.stem not in without]
    bodies = [file.read_text().split("\nrules:\n", 1)[1] for file in files]
    moved, places = re.subn(r"\b(namespace|into): (\w+\.)", r"\1: unrelated_\2", "".join(bodies))
    if places != len(re.findall(r"\b(?:namespace|into): ", "".join(bodies))):
        raise RuntimeError("a rule in rules/ has a namespace that is not written as database.collection")
    return "version: 1\nrules:\n" + moved


def _pytest_arguments():
    return [
        *("-m", "pytest", "--quiet", "-p", "no:cacheprovider", "-p", "pymongo_suite.recorder"),
        # The settings of the suite, but for the report that it would write beside itself;
        # `default` leaves out what needs servers of other kinds, as pymongo's own runs do.
        *("-c", "pyproject.toml", "-o", "addopts=", "-m", "default", *LEFT_OUT),
        *(f"--timeout={TEST_TIMEOUT}", "--tb=short"),
    ]


def _environment(road, into, compressors):
    host, port = road.address.rsplit(":", 1)
    environment = {
        **{name: value for name, value in os.environ.items() if name not in SURROUNDINGS},
        "DB_IP": host,
        "DB_PORT": port,
        "RECORD": str(into),
        "PYTHONPATH": str(HERE.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    if compressors:
        environment["COMPRESSORS"] = compressors
    return environment
