"""`docward record` between pymongo and a server: the capture has each command that the driver reports.

Handshakes, logins and other commands without documents are excluded. Then `docward audit` reads the capture.
"""

import json
import subprocess

import bson
from pymongo import DeleteOne, InsertOne, MongoClient, ReplaceOne, UpdateOne, WriteConcern, monitoring

import servers

# The commands of `traffic` that a capture omits: they neither reach documents nor are needed for a replay.
APART = {"hello", "ping", "endSessions"}
RULES = """
version: 1
rules:
  - { name: no-replace, namespace: "*.orders", except: { apps: [migrator] }, replacement: {} }
"""


class Sent(monitoring.CommandListener):
    """The commands a client has sent."""

    def __init__(self):
        self.commands = []

    def started(self, event):
        if event.command_name not in APART:
            self.commands.append(dict(event.command))

    def succeeded(self, event):
        pass

    def failed(self, event):
        pass


def traffic(uri, app, **options):
    """Uses a collection with every kind of pymongo call; returns the commands that pymongo reports."""
    sent = Sent()
    with MongoClient(uri, appname=app, event_listeners=[sent], **options) as client:
        orders = client[f"recorded_{app}"].orders
        orders.insert_many({"_id": n, "text": "x" * 300} for n in range(300))
        assert len(list(orders.find({}, batch_size=100))) == 300
        orders.replace_one({"_id": 1}, {"status": "paid"})
        orders.update_one({"_id": 2}, {"$set": {"a": 1}}, comment={"at": 5})
        orders.find_one_and_replace({"_id": 3}, {"status": "open"})
        list(orders.aggregate([{"$match": {"a": 1}}]))
        requests = [InsertOne({"_id": 900}), UpdateOne({"_id": 4}, {"$inc": {"n": 1}}), ReplaceOne({"_id": 5}, {"a": 1})]
        orders.bulk_write([*requests, DeleteOne({"_id": 900})], ordered=False)
        with client.start_session() as session, session.start_transaction():
            orders.replace_one({"_id": 6}, {"in": "transaction"}, session=session)
        silent = orders.with_options(write_concern=WriteConcern(w=0))
        silent.update_one({"_id": 7}, {"$set": {"silent": True}})
        client.admin.command("ping")
    return sent.commands


def records(capture):
    with capture.open("rb") as file:
        documents = list(bson.decode_file_iter(file))
    assert documents[0] == {"docward": "capture", "version": 1}
    return documents[1:]


def test_a_capture_has_the_commands_of_pymongo(mongod, tmp_path):
    capture = tmp_path / "traffic.bson"
    recorder = servers.Docward(
        servers.docward_executable(), mongod.uri, arguments=[capture], subcommand="record"
    )
    try:
        sent = {
            "billing": traffic(recorder.uri, "billing", compressors="zlib"),
            "migrator": traffic(recorder.uri, "migrator", directConnection=True),
        }
        assert recorder.terminate() == 0
    finally:
        recorder.close()
    recorded = records(capture)
    for app, commands in sent.items():
        assert [record["command"] for record in recorded if record.get("app") == app] == commands

    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    audit = [servers.docward_executable(), "audit", "--format", "json", "--rules", rules, capture]
    report = json.loads(subprocess.run(audit, check=True, stdout=subprocess.PIPE).stdout)
    counts = report["rules"][0]["counts"]
    assert (counts["reject"], counts["except"], counts["cannot_tell"]) == (4, 4, 0), report
