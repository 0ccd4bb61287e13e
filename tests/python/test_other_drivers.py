"""Node's driver and mongosh behave the same with docward as with mongod: a scripted session of each.

The sessions are tests/node/session.js and tests/mongosh/session.js.
"""

import os

import pytest

import servers
import sessions
from pymongo_suite.suite import unrelated_rules


def node(uri, database):
    modules = servers.script_output("node-driver.sh")
    session = servers.REPOSITORY / "tests/node/session.js"
    return sessions.run(["node", session, uri, database], NODE_PATH=modules)


def mongosh(uri, database):
    # The session's failpoints apply to this application name only.
    uri = uri.replace("/?", f"/{database}?") + "&appName=mongosh-session"
    session = servers.REPOSITORY / "tests/mongosh/session.js"
    shell = os.environ.get("MONGOSH") or servers.script_output("mongosh.sh")
    return sessions.run([shell, "--quiet", "--norc", uri, "--file", session])


@pytest.mark.parametrize("session, least_steps", [(node, 30), (mongosh, 20)])
def test_a_session_is_the_same_through_docward(session, least_steps, mongod, proxy_factory):
    proxy = proxy_factory(unrelated_rules())
    direct, through = ((f"mongodb://{each.address}/?replicaSet=rs0", [each.address]) for each in (mongod, proxy))
    sessions.compare(session, direct, through, least_steps)
    assert not [line for line in proxy.log if "panicked" in line]
