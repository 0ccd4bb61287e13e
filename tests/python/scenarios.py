"""Sessions of drivers other than pymongo: programs that print a line of Extended JSON for each step.

Each runs once directly and once through docward; values that differ from run to run (ids, times, cursors) are
removed before comparing.
"""

import difflib
import os
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


def compare(scenario, direct, through, least_steps):
    """Runs `scenario(uri, database)` with two connection strings, each given with its addresses, and compares the results."""
    addresses = [*direct[1], *through[1]]
    seen = []
    # The connections of a pool have docward's name, so failpoints for a scenario's commands must name it.
    pool = {"FAILPOINT_APP_NAME": "docward"} if servers.pool_size() else {}
    # Database names of equal length, because some replies contain the length.
    for (uri, _), database, environment in ((direct, "session_d", {}), (through, "session_t", pool)):
        with patch.dict(os.environ, environment):
            steps = scenario(uri, database)
        seen.append({name: as_text(step, database, addresses) for name, step in steps.items()})
    direct, through = seen
    assert len(direct) >= least_steps
    assert list(through) == list(direct)
    differences = []
    for name in direct:
        # A step with the same error in both scenarios would compare as equal.
        broken = ("TypeError", "ReferenceError", "NullPointerException", "runtime.boundsError")
        assert not any(mistake in direct[name] for mistake in broken), direct[name]
        difference = difflib.unified_diff(
            direct[name].splitlines(), through[name].splitlines(), "directly", "through docward", n=6, lineterm=""
        )
        lines = list(difference)[:200]
        differences += [name, *lines] if lines else []
    assert not differences, "\n".join(differences)


def as_text(step, database, addresses):
    normalized = Normalizer(database, addresses, only_shape=False).normalize(step)
    return json_util.dumps(normalized, json_options=JSON, indent=1)
