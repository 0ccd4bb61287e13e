"""What two runs of the suite say about docward, as numbers, differences and text. No processes here."""

from dataclasses import dataclass


@dataclass
class Difference:
    test: str
    direct: object  # Result
    through: object  # Result, or None when the test did not end
    reason: str = ""  # why docward cannot do otherwise

    @property
    def breaks(self):
        """Whether docward takes something away for which there is no reason."""
        return self.direct.outcome == "passed" and not self.reason

    def __str__(self):
        through = self.through.outcome if self.through else "missing"
        head = f"{self.test}: {self.direct.outcome} directly, {through} through docward"
        if self.reason:
            return f"{head}\n    explained: {self.reason}"
        text = (self.through.text if self.through else "") or self.direct.text
        return "\n".join([head, *(f"    {line}" for line in text.splitlines()[-25:])])


def differences(direct, through, explained):
    """Tests with another outcome through docward than directly. `explained` gives reasons."""
    found = []
    for test, result in direct.items():
        other = through.get(test)
        if other is None or other.outcome != result.outcome:
            found.append(Difference(test, result, other, _reason(test, explained)))
    return found


def not_needed(direct, through, explained):
    """Explanations of which no test of these runs has need."""
    differing = {each.test for each in differences(direct, through, {})}
    return [pattern for pattern in explained if not any(_matches(test, pattern) for test in differing)]


def by_chance(test, rounds):
    """Whether further runs, pairs of direct and through, say that docward was not the cause of a difference."""
    pairs = [(direct.get(test), through.get(test)) for direct, through in rounds]
    right = [through is not None and through.outcome != "failed" for _, through in pairs]
    return all(right) or any(direct is not None and direct.outcome == "failed" for direct, _ in pairs)


def counts(results):
    """`{"passed": 3, "skipped": 1, "failed": 0}`"""
    outcomes = [result.outcome for result in results.values()]
    return {outcome: outcomes.count(outcome) for outcome in ("passed", "skipped", "failed")}


def _reason(test, explained):
    return next((reason for pattern, reason in explained.items() if _matches(test, pattern)), "")


def _matches(test, pattern):
    """A pattern is an id, or the beginning of ids and a star."""
    return test.startswith(pattern[:-1]) if pattern.endswith("*") else test == pattern
