"""Node's driver and mongosh cannot tell docward from mongod: a scripted session of each, both ways.

The sessions are tests/node/session.js and tests/mongosh/session.js. They print a line for each
step; whatever differs between any two runs (ids, times, cursors) is taken out before comparing.
"""

import difflib
import os
import subprocess

import pytest
from bson import json_util

import servers
from observe import Normalizer
from pymongo_suite.suite import unrelated_rules

SESSION_TIMEOUT = 5 * servers.PATIENCE  # seconds; it needs a quarter of a minute
JSON = json_util.CANONICAL_JSON_OPTIONS


def node(uri, database):
    modules = servers.script_output("node-driver.sh")
    session = servers.REPOSITORY / "tests/node/session.js"
    return run(["node", session, uri, database], NODE_PATH=modules)


def mongosh(uri, database):
    # The application name is what the session's failpoints are for.
    uri = uri.replace("/?", f"/{database}?") + "&appName=mongosh-session"
    session = servers.REPOSITORY / "tests/mongosh/session.js"
    shell = os.environ.get("MONGOSH") or servers.script_output("mongosh.sh")
    return run([shell, "--quiet", "--norc", uri, "--file", session])


def run(command, **environment):
    """The lines that a session printed, by step."""
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=SESSION_TIMEOUT,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    steps = [json_util.loads(line, json_options=JSON) for line in done.stdout.splitlines()]
    return {each.pop("step"): each for each in steps}


@pytest.mark.parametrize("session, least_steps", [(node, 30), (mongosh, 20)])
def test_a_session_is_the_same_through_docward(session, least_steps, mongod, proxy_factory):
    proxy = proxy_factory(unrelated_rules())
    addresses = [mongod.address, proxy.address]
    seen = []
    # Databases whose names are of one length, which some replies tell.
    for address, database in ((mongod.address, "session_d"), (proxy.address, "session_t")):
        steps = session(f"mongodb://{address}/?replicaSet=rs0", database)
        seen.append({name: as_text(step, database, addresses) for name, step in steps.items()})
    direct, through = seen
    assert len(direct) >= least_steps
    assert list(through) == list(direct)
    for name in direct:
        # A step that is broken itself, in both sessions, would compare equal.
        assert not any(mistake in direct[name] for mistake in ("TypeError", "ReferenceError"))
        difference = difflib.unified_diff(
            direct[name].splitlines(), through[name].splitlines(), "directly", "through docward", n=6, lineterm=""
        )
        lines = list(difference)[:200]
        assert not lines, "\n".join([name, *lines])
    assert not [line for line in proxy.log if "panicked" in line]


def as_text(step, database, addresses):
    normalized = Normalizer(database, addresses, only_shape=False).normalize(step)
    return json_util.dumps(normalized, json_options=JSON, indent=1)
