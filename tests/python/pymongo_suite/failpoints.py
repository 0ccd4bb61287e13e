"""A pytest plugin for runs through a pool: failpoints of a client's application apply to docward's connections.

The server compares a failpoint's `appName` with the name of a connection, and those of a pool are named `docward`.
Failpoints of hellos stay as they are: docward answers hellos of clients itself. Records which tests make the server
lose a request, as a member does that dies or stops being primary. Does not depend on mongod or docward.
"""

import functools
import os

import pytest
from pymongo.synchronous.database import Database

HELLOS = {"hello", "isMaster", "ismaster"}
STATE_CHANGES = {91, 189, 10058, 10107, 11600, 11602, 13435, 13436}
LOST = ("loses_requests", True)


def data_of(command):
    """What a failpoint is for; empty for other commands."""
    return (isinstance(command, dict) and "configureFailPoint" in command and command.get("data")) or {}


def renamed(command, name):
    """`command` with this `appName`, if it sets a failpoint for the commands of an application."""
    data = data_of(command)
    if "appName" not in data or HELLOS & set(data.get("failCommands", ())):
        return command
    changed = command.copy()
    changed["data"] = {**data, "appName": name}
    return changed


def loses_requests(command):
    """Whether it sets a failpoint by which commands, not hellos, fail like those of a lost member."""
    data = data_of(command)
    codes = {data.get("errorCode"), data.get("writeConcernError", {}).get("code")}
    fails = data.get("closeConnection") or STATE_CHANGES & codes
    return bool(fails and set(data.get("failCommands", ())) - HELLOS)


class Losses:
    """Marks the running test if it sets such a failpoint."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item):
        self.properties = item.user_properties

    def note(self, command):
        if loses_requests(command) and LOST not in self.properties:
            self.properties.append(LOST)


def pytest_configure(config):
    # A test reads the names of the parameters of `command`.
    name, run, losses = os.environ["FAILPOINT_APP_NAME"], Database.command, Losses()
    config.pluginmanager.register(losses, "losses")

    @functools.wraps(run)
    def command(self, command, *arguments, **options):
        losses.note(command)
        return run(self, renamed(command, name), *arguments, **options)

    Database.command = command
