"""A pytest plugin for runs through a pool: failpoints of a client's application apply to docward's connections.

The server compares a failpoint's `appName` with the name of a connection, and those of a pool are named `docward`.
Failpoints of hellos stay as they are: docward answers hellos of clients itself. Does not depend on mongod or docward.
"""

import functools
import os

from pymongo.synchronous.database import Database

HELLOS = {"hello", "isMaster", "ismaster"}


def renamed(command, name):
    """`command` with this `appName`, if it sets a failpoint for the commands of an application."""
    data = command.get("data") if isinstance(command, dict) and "configureFailPoint" in command else None
    if not data or "appName" not in data or HELLOS & set(data.get("failCommands", ())):
        return command
    return type(command)(command, data={**data, "appName": name})


def pytest_configure(config):
    name, run = os.environ["FAILPOINT_APP_NAME"], Database.command

    @functools.wraps(run)  # a test reads the names of its parameters
    def command(self, command, *arguments, **options):
        return run(self, renamed(command, name), *arguments, **options)

    Database.command = command
