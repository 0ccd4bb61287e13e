"""What two runs of the suite show about docward, as numbers, differences and text. No processes here."""

from dataclasses import dataclass, replace


@dataclass
class Difference:
    test: str
    direct: object  # Result
    through: object  # Result, or None when the test did not end
    reason: str  # why docward cannot do otherwise, or empty

    @property
    def breaks(self):
        """Whether the test does not fail directly, and does not pass through docward without an explanation."""
        passes = self.through and self.through.outcome == "passed"
        return self.direct.outcome != "failed" and not passes and not self.reason

    def __str__(self):
        through = self.through.outcome if self.through else "missing"
        head = f"{self.test}: {self.direct.outcome} directly, {through} through docward"
        if self.reason:
            return f"{head}\n    explained: {self.reason}"
        text = (self.through.text if self.through else "") or self.direct.text
        return "\n".join([head, *(f"    {line}" for line in text.splitlines()[-25:])])


def differences(direct, through, explained, hides_losses=""):
    """Tests with another outcome through docward than directly. `explained` gives reasons; `hides_losses` is that of tests
    which make the server lose a request, if there is one."""
    found = []
    for test, result in direct.items():
        other = through.get(test)
        if other is None or other.outcome != result.outcome:
            reason = hides_losses if other and other.loses_requests else ""
            found.append(Difference(test, result, other, reason or _reason(test, explained)))
    return found


def of_another_topology(direct, through):
    """`through` with the direct outcome of each test that did not fail: a router makes the suite skip other tests."""
    return {
        test: replace(result, outcome=direct[test].outcome) if test in direct and result.outcome != "failed" else result
        for test, result in through.items()
    }


def matching(tests, pattern):
    return [test for test in tests if _matches(test, pattern)]


def not_needed(differing, explained):
    """Explanations that no differing test needs."""
    return [pattern for pattern in explained if not matching(differing, pattern)]


def by_chance(test, expected, rounds):
    """Whether further runs show that docward itself is not the cause of a difference.

    `expected` is the outcome of the direct run; each round has the results of a direct run, of one through
    docward, and of one through a docward without its worker.
    """
    seen = [[results[test].outcome if test in results else None for results in each] for each in rounds]
    direct, through, alone = (list(outcomes) for outcomes in zip(*seen))
    return any(outcome != expected for outcome in direct) or (
        expected in through and all(outcome == expected for outcome in alone)
    )


def holds_alone(test, expected, rounds):
    """Whether the test ended as `expected` in every further run through a docward without its worker."""
    return all(test in alone and alone[test].outcome == expected for _, _, alone in rounds)


def counts(results):
    """`{"passed": 3, "skipped": 1, "failed": 0}`"""
    outcomes = [result.outcome for result in results.values()]
    return {outcome: outcomes.count(outcome) for outcome in ("passed", "skipped", "failed")}


def _reason(test, explained):
    return next((reason for pattern, reason in explained.items() if _matches(test, pattern)), "")


def _matches(test, pattern):
    """A pattern is an id, or the beginning of ids and a star."""
    return test.startswith(pattern[:-1]) if pattern.endswith("*") else test == pattern
