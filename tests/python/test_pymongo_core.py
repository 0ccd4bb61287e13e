"""The core of pymongo's own test suite passes through docward exactly where it passes directly.

`make compat` compares all of it. Here no rule needs docward's worker, which as one more client of the
server would use up a test's failpoints now and then.
"""

from contextlib import closing

import pytest

from pymongo_suite import COMPRESSED, CORE, SLOW, compare, suite

ROUNDS = 3  # how often a test that ended differently is run again on both indirect_writes


@pytest.fixture(scope="module")
def indirect_writes():
    rules = suite.unrelated_rules(without=["copies"])
    with closing(suite.Road("directly")) as direct, closing(suite.Road("through-docward", rules)) as through:
        yield direct, through


@pytest.mark.parametrize(
    "tests, compressors, least_passed",  # fewer would mean that something keeps them from running
    [
        (CORE["crud"], None, 420),
        (CORE["writes"], None, 330),
        (CORE["reads"], None, 560),
        (COMPRESSED, "zlib", 90),
    ],
    ids=[*CORE, "compressed"],
)
def test_the_suite_passes_where_it_passes_directly(tests, compressors, least_passed, indirect_writes, tmp_path):
    through = suite.run(indirect_writes[1], tests, tmp_path, compressors, SLOW)
    assert compare.counts(through)["passed"] >= least_passed
    # What passes through docward needs no direct run; of the rest, most is skipped either way.
    rest = [test for test, result in through.items() if result.outcome != "passed"]
    direct = suite.run(indirect_writes[0], rest, tmp_path, compressors)
    doubtful = compare.differences(direct, through, {})
    again = [each.test for each in doubtful]
    rounds = [[suite.run(indirect_write, again, tmp_path, compressors) for indirect_write in indirect_writes] for _ in range(ROUNDS) if again]
    # A difference counts if further runs do not say that it came by chance.
    rounds = [(direct, through, through) for direct, through in rounds]
    found = [each for each in doubtful if not compare.by_chance(each.test, each.direct.outcome, rounds)]
    assert not found, "\n".join(str(each) for each in found)
    assert not [line for line in indirect_writes[1].docward.log if "panicked" in line]
