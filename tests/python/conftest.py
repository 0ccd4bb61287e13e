"""Fixtures: one mongod for the whole run, and docwards before it, cleaned up at its end."""

import os
import signal

import pytest

import servers


@pytest.fixture(scope="session", autouse=True)
def interruptible():
    """A SIGTERM ends the run as Ctrl-C does, through the fixtures' own cleanup."""

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
def docward_factory(mongod):
    """`docward_factory(rules)` starts a docward before the mongod, for the rest of the run."""
    started = []

    def start(rules="", *arguments, upstream=mongod.uri):
        executable = servers.docward_executable()
        started.append(servers.Docward(executable, upstream, rules, arguments))
        return started[-1]

    yield start
    for docward in started:
        docward.close()


class Direct:
    """In place of docward: the way to mongod without it."""

    def __init__(self, mongod):
        self.address = mongod.address
        self.uri = f"mongodb://{mongod.address}/"
        self.log = []


@pytest.fixture(scope="session")
def proxy_factory(mongod, docward_factory):
    """As docward_factory; with DOCWARD_BIN=direct there is no docward between.

    That compares mongod with itself, and so proves what the transparency test takes for
    equal: a difference it shows then is the test's own.
    """
    if os.environ.get("DOCWARD_BIN") == "direct":
        return lambda rules="": Direct(mongod)
    return docward_factory
