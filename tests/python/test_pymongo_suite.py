"""The conclusions of `make compat` from given results, without running anything."""

from dataclasses import replace

import pytest
from bson.son import SON

from pymongo_suite import compare
from pymongo_suite.failpoints import loses_requests, renamed
from pymongo_suite.suite import RULE_FILES, Result, unrelated_rules

PASSED, FAILED, SKIPPED = (Result(outcome, 0.1, "") for outcome in ("passed", "failed", "skipped"))


@pytest.mark.parametrize(
    "direct, through, explained, breaks",
    [
        (PASSED, FAILED, {}, [True]),
        (PASSED, SKIPPED, {}, [True]),
        (PASSED, None, {}, [True]),
        (PASSED, FAILED, {"test/a.py::t": "why"}, [False]),
        (PASSED, FAILED, {"test/a.py::*": "why"}, [False]),
        (PASSED, FAILED, {"test/a.py::": "why"}, [True]),
        (FAILED, PASSED, {}, [False]),
        (SKIPPED, FAILED, {}, [True]),
        (SKIPPED, PASSED, {}, [False]),
        (PASSED, PASSED, {}, []),
        (FAILED, FAILED, {}, []),
    ],
)
def test_only_tests_that_do_not_fail_directly_can_break(direct, through, explained, breaks):
    results = {"test/a.py::t": through} if through else {}
    found = compare.differences({"test/a.py::t": direct}, results, explained)
    assert [each.breaks for each in found] == breaks


def test_through_a_router_the_suite_may_skip_other_tests():
    direct = {"a": PASSED, "b": SKIPPED, "c": PASSED}
    through = compare.of_another_topology(direct, {"a": SKIPPED, "b": PASSED, "c": replace(FAILED, loses_requests=True)})
    assert [each.test for each in compare.differences(direct, through, {}) if each.breaks] == ["c"]
    assert not [each for each in compare.differences(direct, through, {}, "why") if each.breaks]


@pytest.mark.parametrize(
    "rounds, by_chance",
    [
        # each: directly, through docward, through docward without its worker
        ([(PASSED, PASSED, PASSED), (PASSED, PASSED, PASSED)], True),
        ([(PASSED, FAILED, FAILED), (PASSED, FAILED, FAILED)], False),
        ([(PASSED, PASSED, PASSED), (PASSED, FAILED, FAILED)], False),
        ([(PASSED, PASSED, PASSED), (PASSED, SKIPPED, SKIPPED)], False),
        ([(PASSED, PASSED, PASSED), (PASSED, FAILED, PASSED)], True),
        ([(PASSED, FAILED, PASSED), (PASSED, FAILED, PASSED)], False),
        ([(FAILED, FAILED, FAILED), (PASSED, FAILED, FAILED)], True),
    ],
)
def test_a_random_difference_does_not_repeat(rounds, by_chance):
    rounds = [[{"t": result} for result in each] for each in rounds]
    assert compare.by_chance("t", "passed", rounds) == by_chance


def test_all_rules_get_databases_of_their_own():
    rules = unrelated_rules()
    for file in RULE_FILES:
        names = [line.strip() for line in file.read_text().splitlines() if "- name: " in line]
        assert names
        assert all(name in rules for name in names)
    assert "namespace: unrelated_shop.orders" in rules
    assert "into: unrelated_social.people" in rules
    assert "friends-names" not in unrelated_rules(without=["copies"])


@pytest.mark.parametrize(
    "data, becomes",
    [
        ({"failCommands": ["find"], "appName": "mine"}, {"failCommands": ["find"], "appName": "docward"}),
        ({"failCommands": ["find"]}, {"failCommands": ["find"]}),
        ({"failCommands": ["find", "hello"], "appName": "mine"}, {"failCommands": ["find", "hello"], "appName": "mine"}),
        (None, None),
    ],
)
def test_failpoints_for_commands_of_an_application_get_the_name_of_connections_of_a_pool(data, becomes):
    command = {"configureFailPoint": "failCommand", "mode": "alwaysOn"} | ({"data": data} if data else {})
    for kind in dict, SON:
        assert renamed(kind(command), "docward") == command | ({"data": becomes} if becomes else {})
    assert renamed({"insert": "a", "data": data}, "docward") == {"insert": "a", "data": data}


@pytest.mark.parametrize(
    "data, loses",
    [
        ({"failCommands": ["find"], "closeConnection": True}, True),
        ({"failCommands": ["find"], "errorCode": 10107}, True),
        ({"failCommands": ["insert"], "writeConcernError": {"code": 91}}, True),
        ({"failCommands": ["hello"], "closeConnection": True}, False),
        ({"failCommands": ["find"], "errorCode": 2}, False),
        (None, False),
    ],
)
def test_failpoints_that_make_the_server_lose_requests(data, loses):
    assert loses_requests({"configureFailPoint": "failCommand", "mode": "alwaysOn"} | ({"data": data} if data else {})) == loses
