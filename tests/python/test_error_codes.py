"""Drivers show docward's own text with every code that docward sends, and do not retry.

Some codes have a meaning of their own for drivers: Node's, for example, replaces the text of code 20 on writes. The server
fails commands with each code by a failpoint; its text stands for docward's.
"""

import json
import os
import re
import subprocess
import time

import pymongo
import pytest

import servers

# Codes that docward only handles.
HANDLED = {
    "BAD_VALUE",
    "CONFLICTING_OPERATION_IN_PROGRESS",
    "DUPLICATE_KEY",
    "ILLEGAL_OPERATION",
    "IMMUTABLE_FIELD",
    "NO_SUCH_TRANSACTION",
    "PATH_NOT_VIABLE",
    "TRANSACTION_COMMITTED",
    "TYPE_MISMATCH",
}
TEXT = "Failing command via 'failCommand' failpoint"
# Seconds in which a driver reports an error that it does not retry.
AT_ONCE = 5


def sent_codes():
    source = (servers.REPOSITORY / "crates/protocol/src/command/mod.rs").read_text()
    codes = dict(re.findall(r"pub const ([A-Z_]+): i32 = ([0-9_]+);", source))
    assert HANDLED < codes.keys()
    # The failpoint cannot send it: 121 must have errInfo. The tests of rules cover it.
    others = HANDLED | {"DOCUMENT_VALIDATION_FAILURE"}
    return [int(code) for name, code in codes.items() if name not in others]


def failing(client, code):
    """Fails each command of the operations with this code, for clients with the application name `error-codes`."""
    data = {"failCommands": ["insert", "find", "findAndModify"], "errorCode": code, "appName": "error-codes"}
    client.admin.command({"configureFailPoint": "failCommand", "mode": "alwaysOn", "data": data})


def hidden(shown):
    """The errors without docward's text, and those that the driver retries: [[code, operation, text, seconds], ...]."""
    return [each for each in shown if TEXT not in each[2] or each[3] > AT_ONCE]


def with_pymongo(uri, codes):
    with pymongo.MongoClient(uri) as client:
        things = client.error_codes.things
        operations = {
            "insert": lambda: things.insert_one({"a": 1}),
            "bulk": lambda: things.bulk_write([pymongo.InsertOne({"a": 1})]),
            "find": things.find_one,
            "findAndModify": lambda: things.find_one_and_update({"_id": 1}, {"$set": {"a": 1}}),
        }
        shown = []
        for code in codes:
            failing(client, code)
            for name, operation in operations.items():
                began = time.monotonic()
                with pytest.raises(pymongo.errors.PyMongoError) as error:
                    operation()
                shown.append([code, name, str(error.value), time.monotonic() - began])
        client.admin.command("configureFailPoint", "failCommand", mode="off")
        return shown


def script(command, **environment):
    done = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120, env=environment or None
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def with_node(uri, codes):
    modules = servers.script_output("node-driver.sh")
    source = servers.REPOSITORY / "tests/node/error_codes.js"
    return script(["node", source, uri, json.dumps(codes)], **{**os.environ, "NODE_PATH": modules})


def with_mongosh(uri, codes):
    shell = os.environ.get("MONGOSH") or servers.script_output("mongosh.sh")
    source = servers.REPOSITORY / "tests/mongosh/error_codes.js"
    evaluated = ["--eval", f"var codes = {json.dumps(codes)};", "--file", source]
    return script([shell, "--quiet", "--norc", uri, *evaluated])


@pytest.mark.parametrize("driver", [with_pymongo, with_node, with_mongosh])
def test_a_driver_shows_the_text_of_every_code(driver, mongod):
    codes = sent_codes()
    shown = driver(f"mongodb://{mongod.address}/?replicaSet=rs0&appName=error-codes", codes)
    assert len(shown) >= 4 * len(codes)
    assert not hidden(shown)
