"""Sessions of drivers other than pymongo: programs that print a line of Extended JSON for each step.

Each runs once directly and once through docward; values that differ from run to run (ids, times, cursors) are
removed before comparing.
"""

import difflib
import os
import secrets
import subprocess
from unittest.mock import patch

from bson import json_util

import servers
from observe import Normalizer

TIMEOUT = 5 * servers.TIMEOUT  # seconds; a scenario needs a quarter of a minute
JSON = json_util.CANONICAL_JSON_OPTIONS


def run(command, **environment):
    """Runs a scenario; returns its output lines by step."""
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    steps = [json_util.loads(line, json_options=JSON) for line in done.stdout.splitlines()]
    return {each.pop("step"): each for each in steps}


def same_outcome(direct, through):
    return direct["outcome"] == through["outcome"]


def succeeds(direct, through):
    return "error" in direct["outcome"] and "error" not in through["outcome"]


def shows_no_set(direct, through):
    return "rs0" in str(direct) and "rs0" not in str(through)


# Steps that differ through a router, and what holds for their results.
THROUGH_A_ROUTER = {
    # docward sends the commands again, so the driver gets no error, or docward's.
    "retried_write_and_read": same_outcome,
    "commit_whose_reply_is_lost": same_outcome,
    # The driver sends it twice, docward four times.
    "write_that_fails_twice": succeeds,
    # Without monitors, Node does not know how many statements a command may have.
    "bulk_write_of_more_than_one_message": same_outcome,
    "large_results": same_outcome,
    # Behind a balancer, Node closes the change stream of the step before on the connection whose reply it still awaits, and
    # does not match replies to requests.
    "grid_fs": same_outcome,
    # Drivers take a router for a mongos, or for a service behind a load balancer.
    "what_the_driver_knows_of_the_servers": shows_no_set,
    "replica_set": shows_no_set,
}


def compare(scenario, direct, through, least_steps, *options, user=""):
    """Runs `scenario(uri, database)` in two ways, with these options in the connection string, and compares the results."""
    addresses = [*direct.addresses, *through.addresses]
    seen = []
    # The connections of a pool have docward's name, so failpoints for a scenario's commands must name it.
    pool = {"FAILPOINT_APP_NAME": "docward"} if through.router or servers.pool_size() else {}
    # New databases, with names of equal length, because some replies contain the length.
    unused = secrets.token_hex(4)
    for way, database, environment in ((direct, f"direct_{unused}", {}), (through, f"routed_{unused}", pool)):
        with patch.dict(os.environ, environment):
            steps = scenario(way.uri(*options, user=user), database)
        seen.append({name: Normalizer(database, addresses, only_shape=False).normalize(step) for name, step in steps.items()})
    through.assert_sound()
    special = THROUGH_A_ROUTER if through.router else {}
    direct, through = seen
    assert len(direct) >= least_steps
    assert list(through) == list(direct)
    differences = []
    for name in direct:
        texts = [json_util.dumps(each[name], json_options=JSON, indent=1) for each in seen]
        # A step with the same error in both scenarios would compare as equal.
        broken = ("TypeError", "ReferenceError", "BSONError", "NullPointerException", "runtime.boundsError")
        assert not any(mistake in texts[0] for mistake in broken), texts[0]
        if name in special and special[name](direct[name], through[name]):
            continue
        lines = difflib.unified_diff(*(each.splitlines() for each in texts), "directly", "through docward", n=6, lineterm="")
        differences += [name, *list(lines)[:200]] if texts[0] != texts[1] else []
    assert not differences, "\n".join(differences)
