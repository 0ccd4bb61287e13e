"""A pytest plugin, loaded into the suite's own process: one JSON line for each test that ended.

The file is named by the environment variable RECORD. Does not depend on mongod or docward.
"""

import json
import os

from pymongo import pool_options

# A test has up to three reports (setup, call, teardown); the worst one counts.
LONGEST_LINE = 500  # some messages show documents of megabytes
SEVERITY = {"passed": 0, "skipped": 1, "failed": 2}


class Recorder:
    def __init__(self, path):
        self.file = open(path, "a", buffering=1)
        self.worst = {}

    def pytest_runtest_logreport(self, report):
        nothing_yet = {"test": report.nodeid, "outcome": "passed", "seconds": 0, "text": "", "loses_requests": False}
        result = self.worst.setdefault(report.nodeid, nothing_yet)
        result.update(report.user_properties)
        result["seconds"] += report.duration
        if SEVERITY[report.outcome] > SEVERITY[result["outcome"]]:
            result.update(outcome=report.outcome, text=text_of(report))

    def pytest_runtest_logfinish(self, nodeid):
        print(json.dumps(self.worst.pop(nodeid)), file=self.file)

    def pytest_unconfigure(self):
        self.file.close()


def text_of(report):
    if report.skipped and isinstance(report.longrepr, tuple):
        return report.longrepr[2]
    return "\n".join(line[:LONGEST_LINE] for line in report.longreprtext.splitlines())


def pytest_configure(config):
    # The driver reports to the server that it runs in a container, which the suite does not expect.
    pool_options.DOCKER_ENV_PATH = os.path.join(os.devnull, "no-such-file")
    config.pluginmanager.register(Recorder(os.environ["RECORD"]), "recorder")
