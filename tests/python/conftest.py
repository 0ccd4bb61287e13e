"""Fixtures: one mongod for the whole run, and docward processes in front of it, stopped at the end."""

import os
import shutil
import signal

import pytest

import servers
from topologies import TOPOLOGIES, Topology


def pytest_collection_modifyitems(items):
    """Begins with pymongo's own suite, which takes longest, each part in another process: xdist gives each process a
    contiguous part of the list."""
    suite = [item for item in items if item.path.name == "test_pymongo_core.py"]
    others = [item for item in items if item not in suite]
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    share = -(-len(others) // processes)
    ordered = (suite[at::processes] + others[at * share : (at + 1) * share] for at in range(processes))
    items[:] = [item for part in ordered for item in part]


@pytest.fixture(scope="session", autouse=True)
def interruptible():
    """A SIGTERM ends the run like Ctrl-C, with the fixtures' cleanup."""

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="session")
def mongod():
    server = servers.Mongod()
    yield server
    server.close()


@pytest.fixture(scope="session")
def replica_set():
    members = servers.ReplicaSet()
    yield members
    members.close()


@pytest.fixture(scope="session")
def docward_factory(mongod):
    """`docward_factory(rules)` starts a docward in front of the mongod, for the rest of the run."""
    started = []

    def start(rules="", *arguments, upstream=mongod.uri):
        executable = servers.docward_executable()
        started.append(servers.Docward(executable, upstream, rules, arguments))
        return started[-1]

    yield start
    for docward in started:
        docward.close()


class Direct:
    """Replaces docward by a direct connection to mongod."""

    def __init__(self, mongod):
        self.address = mongod.address
        self.addresses = mongod.addresses
        self.uri = f"mongodb://{mongod.address}/"
        self.log = []


@pytest.fixture(scope="session")
def proxy_factory(mongod, docward_factory):
    """The same as docward_factory; with DOCWARD_BIN=direct it connects directly.

    That compares mongod with itself: a difference that the transparency test shows then
    is an error in the test.
    """
    if os.environ.get("DOCWARD_BIN") == "direct":
        return lambda rules="": Direct(mongod)
    return docward_factory


@pytest.fixture(scope="session", params=TOPOLOGIES)
def topology(request):
    name = request.param
    if "balanced" in name and not shutil.which("haproxy"):
        pytest.skip("haproxy is needed as a balancer, and there is none on the PATH")
    server, start = ("mongod", "proxy_factory") if name == "members" else ("replica_set", "docward_factory")
    made = Topology(name, *(request.getfixturevalue(each) for each in (server, start)))
    yield made
    made.balancers.close()
