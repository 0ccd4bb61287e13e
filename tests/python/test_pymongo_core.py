"""The core of pymongo's own test suite passes through docward exactly if it passes directly.

`make compat` compares the whole suite. No rule here needs docward's worker, because that is another client of the
server and would sometimes trigger a test's failpoint.
"""

from contextlib import closing

import pytest

from pymongo_suite import COMPRESSED, CORE, SLOW, compare, suite

ROUNDS = 3  # repetitions, on both paths, of a test with different results


@pytest.fixture(scope="module")
def paths():
    rules = suite.unrelated_rules(without=["copies", "history"])
    with closing(suite.Target("directly")) as direct, closing(suite.Target("through-docward", rules)) as through:
        yield direct, through


@pytest.mark.parametrize(
    "tests, compressors, least_passed",  # a smaller number means that tests did not run
    [
        (CORE["crud"], None, 420),
        (CORE["writes"], None, 330),
        (CORE["reads"], None, 560),
        (COMPRESSED, "zlib", 90),
    ],
    ids=[*CORE, "compressed"],
)
def test_the_suite_passes_if_it_passes_directly(tests, compressors, least_passed, paths, tmp_path):
    through = suite.run(paths[1], tests, tmp_path, compressors, SLOW)
    assert compare.counts(through)["passed"] >= least_passed
    # A test that passes through docward needs no direct run; most of the others are skipped on both paths.
    rest = [test for test, result in through.items() if result.outcome != "passed"]
    direct = suite.run(paths[0], rest, tmp_path, compressors)
    doubtful = compare.differences(direct, through, {})
    again = [each.test for each in doubtful]
    rounds = [[suite.run(path, again, tmp_path, compressors) for path in paths] for _ in range(ROUNDS) if again]
    # A difference counts only if further runs repeat it.
    rounds = [(direct, through, through) for direct, through in rounds]
    found = [each for each in doubtful if not compare.by_chance(each.test, each.direct.outcome, rounds)]
    assert not found, "\n".join(str(each) for each in found)
    assert not [line for line in paths[1].log if "panicked" in line]
