"""`make compat`: the whole suite, or the given files or tests of it, against both targets, and what differs.

Ends with 1 if a test passes directly and not through docward without an explanation.
"""

import argparse
import shutil
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path
from subprocess import TimeoutExpired

from topologies import TOPOLOGIES

from . import compare, suite
from .explained import BY_WORKER, HIDDEN, ON_PURPOSE, WITH_POOL, WITH_ROUTER

ROUNDS = 3  # how often tests with two outcomes are run again on every target
PROGRESS = 60  # seconds


def main():
    arguments = parse_arguments()
    shutil.rmtree(arguments.results, ignore_errors=True)
    started = time.monotonic()
    with ExitStack() as stack:
        targets = [
            stack.enter_context(closing(suite.Target(name, rules, arguments.topology)))
            for name, rules in (
                ("directly", None),
                ("through-docward", suite.unrelated_rules()),
                ("without-worker", suite.unrelated_rules(without=["copies", "history"])),
            )
        ]
        direct, ended = run_both(targets[:2], arguments)
        routed = targets[1].has_router
        through = compare.of_another_topology(direct, ended) if routed else ended
        doubtful = [each.test for each in compare.differences(direct, through, {})]
        rounds = run_again(targets, doubtful, arguments)
        broken = [line for target in targets[1:] for line in target.log if "panicked" in line]
        (arguments.results / "docward.log").write_text("\n".join(targets[1].log))
    by_chance = [test for test in doubtful if compare.by_chance(test, direct[test].outcome, rounds)]
    on_purpose = ON_PURPOSE | (WITH_POOL if targets[1].has_pool else {}) | (WITH_ROUTER if routed else {})
    believed = on_purpose | {
        pattern: reason
        for pattern, reason in BY_WORKER.items()
        if all(compare.holds_alone(test, direct[test].outcome, rounds) for test in compare.matching(doubtful, pattern))
    }
    all_found = compare.differences(direct, through, believed, HIDDEN if routed else "")
    found = [each for each in all_found if each.test not in by_chance]
    report(direct, ended, found, by_chance)
    if arguments.tests == ["test"]:
        for pattern in compare.not_needed(doubtful, on_purpose | BY_WORKER):
            print(f"\nexplained.py has {pattern}, which made no difference this time")
    for line in broken:
        print(f"\ndocward panicked: {line}")
    print(f"\n{(time.monotonic() - started) / 60:.1f} minutes; logs are in {arguments.results}")
    return 1 if broken or any(each.breaks for each in found) else 0


def parse_arguments():
    parser = argparse.ArgumentParser(prog="make compat", description=__doc__)
    parser.add_argument("--results", type=Path, required=True, help="a folder for logs")
    parser.add_argument("--topology", choices=TOPOLOGIES, default="members")
    parser.add_argument("--compressors", help="what the driver offers, for example zlib,zstd")
    parser.add_argument("tests", nargs="*", default=["test"])
    return parser.parse_args()


def run_both(targets, arguments):
    """Both at the same time: most tests wait for something more than they compute."""
    with ExitStack() as stack:
        runs = [
            stack.enter_context(
                closing(suite.Run(target, arguments.tests, arguments.results, arguments.compressors))
            )
            for target in targets
        ]
        for run in runs:
            while not run.ended:
                try:
                    run.wait(PROGRESS)
                except TimeoutExpired:
                    done = (f"{len(each.results())} {each.target.name}" for each in runs)
                    print(f"tests so far: {', '.join(done)}", flush=True)
        return [run.wait() for run in runs]


def run_again(targets, tests, arguments):
    """Runs tests that ended differently again, one target after the other; the results of each round."""
    if not tests:
        return []
    print(f"running {len(tests)} tests again that ended differently", flush=True)
    folders = [arguments.results / f"again-{number}" for number in range(1, ROUNDS + 1)]
    rounds = [[suite.run(target, tests, folder, arguments.compressors) for target in targets] for folder in folders]
    if targets[1].has_router:
        return [[direct, *(compare.of_another_topology(direct, each) for each in others)] for direct, *others in rounds]
    return rounds


def report(direct, through, found, by_chance):
    for name, results in (("directly", direct), ("through docward", through)):
        numbers = ", ".join(f"{count} {outcome}" for outcome, count in compare.counts(results).items())
        seconds = sum(result.seconds for result in results.values())
        print(f"{name:16} {len(results)} tests: {numbers} ({seconds:.0f} s)")
    for title, chosen in (
        ("pass directly and not through docward", [each for each in found if each.breaks]),
        ("differ, and are explained", [each for each in found if each.reason]),
        ("differ, and do not pass directly", [each for each in found if not each.breaks and not each.reason]),
        ("ended differently by chance, as further runs show", by_chance),
    ):
        print(f"\n{len(chosen)} tests {title}")
        for each in chosen:
            print(f"  {each}")


sys.exit(main())
