"""Node's driver and mongosh behave the same with docward as with mongod: a scripted scenario of each.

The scenarios are tests/node/scenario.js and tests/mongosh/scenario.js.
"""

import os

import pytest

import servers
import scenarios
from pymongo_suite.suite import unrelated_rules


def node(uri, database):
    modules = servers.script_output("node-driver.sh")
    scenario = servers.REPOSITORY / "tests/node/scenario.js"
    return scenarios.run(["node", scenario, uri, database], NODE_PATH=modules)


def mongosh(uri, database):
    # The scenario's failpoints apply to this application name only.
    uri = uri.replace("/?", f"/{database}?") + "&appName=mongosh-scenario"
    scenario = servers.REPOSITORY / "tests/mongosh/scenario.js"
    shell = os.environ.get("MONGOSH") or servers.script_output("mongosh.sh")
    return scenarios.run([shell, "--quiet", "--norc", uri, "--file", scenario])


@pytest.mark.parametrize("scenario, least_steps", [(node, 30), (mongosh, 20)])
def test_a_scenario_is_the_same_through_docward(scenario, least_steps, topology):
    scenarios.compare(scenario, topology.direct, topology.through(unrelated_rules()), least_steps)
