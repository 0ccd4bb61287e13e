"""`make compat`: the whole suite, or the given files or tests of it, on both roads, and what differs.

Ends with 1 if a test passes directly and not through docward without an explanation.
"""

import argparse
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from . import compare, suite
from .explained import EXPLAINED

ROUNDS = 3  # how often tests with two outcomes are run again, on both roads
PROGRESS = 60  # seconds


def main():
    arguments = parse_arguments()
    shutil.rmtree(arguments.results, ignore_errors=True)
    started = time.monotonic()
    roads = [suite.Road("directly")]
    try:
        roads.append(suite.Road("through-docward", suite.unrelated_rules()))
        direct, through = run_both(roads, arguments.tests, arguments)
        flaky = settle(roads, direct, through, arguments)
        broken = [line for line in roads[1].docward.log if "panicked" in line]
        (arguments.results / "docward.log").write_text("\n".join(roads[1].docward.log))
    finally:
        for road in roads:
            road.close()
    found = compare.differences(direct, through, EXPLAINED)
    report(direct, through, found, flaky, arguments)
    print(f"\n{(time.monotonic() - started) / 60:.1f} minutes; logs are in {arguments.results}")
    for line in broken:
        print(f"docward panicked: {line}")
    return 1 if broken or any(each.breaks for each in found) else 0


def parse_arguments():
    parser = argparse.ArgumentParser(prog="make compat", description=__doc__)
    parser.add_argument("--results", type=Path, required=True, help="a folder for logs")
    parser.add_argument("--compressors", help="what the driver offers, for example zlib,zstd")
    parser.add_argument("tests", nargs="*", default=["test"])
    return parser.parse_args()


def run_both(roads, tests, arguments):
    """Both at the same time: most tests wait for something more than they compute."""
    with ThreadPoolExecutor(len(roads)) as pool:
        runs = [
            pool.submit(suite.run, road, tests, arguments.results, arguments.compressors)
            for road in roads
        ]
        while wait(runs, timeout=PROGRESS).not_done:
            done = (f"{len(suite.read(suite.record(road, arguments.results)))} {road.name}" for road in roads)
            print(f"tests so far: {', '.join(done)}", flush=True)
        return [run.result() for run in runs]


def settle(roads, direct, through, arguments):
    """Runs tests with two outcomes again, one road after the other; returns those that differed by chance.

    That takes a test that goes wrong directly too, or that then goes right through docward every time.
    """
    suspects = [each.test for each in compare.differences(direct, through, EXPLAINED) if not each.reason]
    if not suspects:
        return []
    print(f"running {len(suspects)} tests again that ended differently", flush=True)
    rounds = []
    for number in range(1, ROUNDS + 1):
        folder = arguments.results / f"again-{number}"
        rounds.append([suite.run(road, suspects, folder, arguments.compressors) for road in roads])
    by_chance = [test for test in suspects if compare.by_chance(test, rounds)]
    for test in by_chance:
        through[test] = direct[test]
    return by_chance


def report(direct, through, found, flaky, arguments):
    for name, results in (("directly", direct), ("through docward", through)):
        numbers = ", ".join(f"{count} {outcome}" for outcome, count in compare.counts(results).items())
        seconds = sum(result.seconds for result in results.values())
        print(f"{name:16} {len(results)} tests: {numbers} ({seconds:.0f} s)")
    for title, chosen in (
        ("pass directly and not through docward", [each for each in found if each.breaks]),
        ("differ, and are explained", [each for each in found if each.reason]),
        ("differ, and do not pass directly", [each for each in found if not each.breaks and not each.reason]),
    ):
        print(f"\n{len(chosen)} tests {title}")
        for each in chosen:
            print(f"  {each}")
    print(f"\n{len(flaky)} tests ended differently once, and equally in {ROUNDS} further runs of each")
    for test in flaky:
        print(f"  {test}")
    if arguments.tests == ["test"]:
        for pattern in compare.not_needed(direct, through, EXPLAINED):
            print(f"\nexplained.py has {pattern!r}, which passes: take it out")


sys.exit(main())
