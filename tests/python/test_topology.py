"""A driver with only docward's address never gets mongod's address."""

import os
import time
from pathlib import Path

import pytest
import servers
from pymongo import MongoClient


@pytest.fixture(scope="module")
def docward(docward_factory):
    return docward_factory()


@pytest.mark.parametrize("query", ["", "?replicaSet=rs0", "?directConnection=true"])
def test_a_driver_stays_with_docward(mongod, docward, query):
    appname = f"stays-{query}"
    host, port = docward.address.rsplit(":", 1)
    only_docward = {(host, int(port))}
    uri = f"mongodb://{docward.address}/{query}"
    with MongoClient(uri, appname=appname, heartbeatFrequencyMS=500) as client:
        people = client.stays.people
        people.insert_one({})
        deadline = time.monotonic() + 2  # several heartbeats, including streamed ones
        while time.monotonic() < deadline:
            assert client.nodes == only_docward
            assert set(client.topology_description.server_descriptions()) == only_docward
            assert people.count_documents({}) >= 1
        # mongod has connections of this client, and all come from the docward process. A connection that is
        # opened or closed meanwhile is in one of the two lists; a driver's own connection would stay.
        deadline = time.monotonic() + servers.TIMEOUT
        while not (seen := ports_of_application(mongod, appname)) or seen - ports_of_process(docward.pid):
            assert time.monotonic() < deadline, seen
            time.sleep(0.1)


@pytest.mark.parametrize("command", ["hello", "isMaster", "ismaster"])
def test_no_hello_reply_has_mongods_address(mongod, docward, command):
    with MongoClient(mongod.uri) as direct, MongoClient(docward.uri) as through:
        expected = direct.admin.command(command)
        hello = through.admin.command(command)
    assert mongod.address not in str(hello)
    assert hello["hosts"] == [docward.address]
    assert hello["me"] == hello["primary"] == docward.address
    # No field may be missing or new.
    assert list(hello) == list(expected)
    for key in ("setName", "setVersion", "maxWireVersion", "minWireVersion", "maxBsonObjectSize"):
        assert hello[key] == expected[key]


def ports_of_application(mongod, appname):
    """The remote ports of mongod's connections from clients with this application name."""
    everything = {"$currentOp": {"allUsers": True, "idleConnections": True}}
    with MongoClient(mongod.uri) as client:
        connections = client.admin.aggregate([everything, {"$match": {"appName": appname}}])
        return {int(each["client"].rsplit(":", 1)[1]) for each in connections if "client" in each}


def ports_of_process(pid):
    """The local TCP ports of a process, from /proc."""
    links = (os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir())
    inodes = {link.removeprefix("socket:[").removesuffix("]") for link in links if "socket" in link}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].split(":")[1], 16) for row in rows if row[9] in inodes}
