"""Runs one operation of the corpus and records everything that a client can see:
its result or error, and every reply that the driver got, as text for comparing two runs.

Values that differ from run to run (times, generated ids, cursor ids, ports, durations) are
replaced by their kind; everything else stays, including types and field order.
"""

import datetime
import hashlib
import re
import uuid

import bson
from bson import json_util
from bson.binary import Binary
from bson.code import Code
from bson.dbref import DBRef
from bson.int64 import Int64
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from pymongo import MongoClient
from pymongo.errors import PyMongoError
from pymongo.monitoring import CommandListener

CLIENT_OPTIONS = {
    "appname": "transparency",
    "uuidRepresentation": "standard",
    "heartbeatFrequencyMS": 500,  # how soon a driver checks the server again after an error
}
LONG = 4096  # longer strings and binaries are compared by length and digest

# Numbers that depend on other load on the machine.
VOLATILE_NUMBERS = {
    "executionTimeMillis",
    "executionTimeMillisEstimate",
    "executionTimeMicros",
    "millis",
    "timeMillis",
    "durationMillis",
    "keysExaminedBySizeInBytes",
    "connectionId",
    "optimizationTimeMillis",
    "needYield",
    "saveState",
    "restoreState",
}
CURSOR_IDS = {"cursorsKilled", "cursorsNotFound", "cursorsAlive", "cursorsUnknown"}
# `you` is the reply to whatsmyuri, `slots` the state of a plan, with the time, in the order of a hash table; `opTime` of a
# write that changes nothing is that of the connection's last one.
TOKENS = {"_data", "signature", "you", "slots", "opTime"}
TEXT_PATTERNS = [
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"<uuid> - [A-Za-z0-9+/=]{44} - [A-Za-z0-9+/=]* -"), "<session>"),
    (re.compile(r"<uuid> - +[A-Za-z0-9+/=]{44}"), "<session>"),
    (re.compile(r"ObjectId\('[0-9a-f]{24}'\)"), "<object id>"),
    (re.compile(r"Timestamp\(\d+, \d+\)"), "<timestamp>"),
    (re.compile(r"\b(collection|index)-\d+-"), r"\1-<n>-"),  # files of WiredTiger
    (re.compile(r"cursor id:? \d+"), "cursor id <n>"),
    (re.compile(r"txnNumber: \d+"), "txnNumber: <n>"),  # of the session that the driver's pool had
    (re.compile(r"\b\d{15,}\b"), "<long number>"),
]


class Recorder(CommandListener):
    """Collects the replies of all commands, in order of arrival."""

    def __init__(self):
        self.replies = []

    def started(self, event):
        pass

    def succeeded(self, event):
        self._record(event.command_name, event.reply)

    def failed(self, event):
        failure = event.failure
        # The driver's text for a lost connection has addresses and times; only its kind is compared.
        if "errtype" in failure:
            failure = {"errtype": failure["errtype"]}
        self._record(event.command_name, failure)

    def _record(self, name, reply):
        if name == "configureFailPoint":
            reply = {"ok": reply.get("ok")}  # the other fields count all uses since mongod started
        reply = bson.decode(reply.raw) if isinstance(reply, RawBSONDocument) else reply
        # Whether a waiting cursor first returns an empty batch depends on timing.
        cursor = reply.get("cursor")
        waiting = isinstance(cursor, dict) and cursor.get("nextBatch") == [] and cursor["id"]
        if not waiting:
            if name == "listCollections":  # in the order of a hash table
                cursor["firstBatch"] = sorted(cursor["firstBatch"], key=lambda each: each["name"])
            self.replies.append({"command": name, "reply": reply})


def observe(operation, uri, database, addresses):
    """Runs `operation` on a fresh `database` at `uri` and returns everything visible as text.

    `addresses` are those of mongod and docward, which are treated as equal.
    """
    recorder = Recorder()
    options = {**CLIENT_OPTIONS, **operation.options}
    with MongoClient(uri, event_listeners=[recorder], **options) as client:
        try:
            outcome = {"result": operation.run(client[database])}
        except PyMongoError as error:
            outcome = {"error": describe(error)}
        seen = {"outcome": outcome, "replies": list(recorder.replies)}
    with MongoClient(uri) as client:
        client.drop_database(database)
    normalized = Normalizer(database, addresses, operation.only_shape).normalize(seen)
    return json_util.dumps(normalized, json_options=json_util.CANONICAL_JSON_OPTIONS, indent=1)


def describe(error):
    """All properties of a driver's error that an application can read."""
    return {
        "type": type(error).__name__,
        "code": getattr(error, "code", None),
        "details": getattr(error, "details", None),
        "labels": sorted(getattr(error, "_error_labels", [])),
        "timeout": error.timeout,
    }


class Normalizer:
    """Replaces values that differ from run to run; equal values get equal replacements."""

    def __init__(self, database, addresses, only_shape):
        self.replacements = [(database, "<database>"), *((each, "<address>") for each in addresses)]
        self.only_shape = only_shape
        self.names = {}
        now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
        self.recent = (now - datetime.timedelta(hours=1), now + datetime.timedelta(hours=1))

    def normalize(self, value, key=None):
        if key in TOKENS and isinstance(value, (str, bytes, dict, Timestamp)):
            return f"<{key}>"
        if key in VOLATILE_NUMBERS and isinstance(value, (int, float)):
            return f"<{type(value).__name__}>"
        if isinstance(value, RawBSONDocument):
            value = bson.decode(value.raw)
        if isinstance(value, dict):
            return self.normalize_document(value)
        if isinstance(value, (list, tuple)):
            items = value[:1] if self.only_shape else value
            return [self.normalize(item, key) for item in items]
        return self.normalize_scalar(value, key)

    def normalize_document(self, document):
        result = {}
        for name, value in document.items():
            if name == "id" and "ns" in document and isinstance(value, Int64):
                result[name] = "<cursor id>" if value else value  # 0: the cursor is exhausted
            else:
                result[self.text(name)] = self.normalize(value, name)
        return result

    def normalize_scalar(self, value, key):
        if isinstance(value, ObjectId):
            return self.name("object id", value)
        if isinstance(value, uuid.UUID) or isinstance(value, Binary) and value.subtype == 4:
            return self.name("uuid", bytes(getattr(value, "bytes", value)))
        if isinstance(value, Timestamp):
            return value if value.time < 1 << 20 else "<timestamp>"
        if isinstance(value, datetime.datetime):
            recent = self.recent[0] < value.replace(tzinfo=None) < self.recent[1]
            return "<time>" if recent else value
        if key in CURSOR_IDS and isinstance(value, int):
            return "<cursor id>"
        if isinstance(value, (Code, DBRef)):
            return value
        if isinstance(value, (str, bytes)):
            return self.long(self.text(value) if isinstance(value, str) else value)
        if self.only_shape and isinstance(value, (int, float)) and not isinstance(value, bool):
            return "<number>"
        return value

    def name(self, kind, value):
        """Numbers generated ids in order of appearance, so that references stay visible."""
        number = self.names.setdefault((kind, value), len(self.names))
        return f"<{kind} {number}>"

    def text(self, text):
        if len(text) > LONG:
            return text
        for old, new in self.replacements:
            text = text.replace(old, new)
        for pattern, new in TEXT_PATTERNS:
            text = pattern.sub(new, text)
        return text

    def long(self, value):
        if len(value) <= LONG:
            return value
        data = value.encode() if isinstance(value, str) else bytes(value)
        return f"<{type(value).__name__} of {len(value)}: {hashlib.sha256(data).hexdigest()}>"


def digest(document):
    """For results too large to print: the length and digest of a document's BSON."""
    data = bson.encode(document)
    return {"length": len(data), "sha256": hashlib.sha256(data).hexdigest()}
