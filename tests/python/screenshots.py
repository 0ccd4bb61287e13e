"""Makes the screenshots of docs/console.md: `make screenshots`.

It runs docward with the rules of rules/ and two more, and sends statements of several applications until the console
has a history to show (DOCWARD_SCREENSHOT_MINUTES, default 15).
"""

import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import threading
import time

import pymongo
from pymongo.errors import PyMongoError

import servers

MINUTES = float(os.environ.get("DOCWARD_SCREENSHOT_MINUTES", "15"))
PAUSE = 1.5  # seconds between rounds

RULES = """version: 1
rules:
  - name: reviews-need-rating
    namespace: shop.reviews
    mode: shadow
    together: [text, rating]
  - name: migration-freeze
    why: The archive moves to another cluster.
    namespace: archive.*
    except: { apps: [migrator-*] }
    deny: { operations: [insert, update, delete] }
"""


def statements(uri):
    """One round of each application. Rejected statements are errors here."""

    def client(name):
        return pymongo.MongoClient(uri, appname=name)

    checkout, warehouse, crm = client("checkout"), client("warehouse"), client("crm")
    library, reviews, migrator, reports = client("library"), client("reviews"), client("migrator-7"), client("reports")
    checkout.shop.orders.update_one({"_id": 1}, {"$set": {"status": "new"}}, upsert=True)
    library.library.books.update_one({"_id": 1}, {"$set": {"title": "Dune", "available": 8, "checkout": []}}, upsert=True)
    lend = {"$inc": {"available": -1}, "$push": {"checkout": {"by": "joe"}}}
    return [
        (3, lambda: checkout.shop.orders.replace_one({"_id": 1}, {"status": "paid"})),
        (1, lambda: warehouse.shop.orders.replace_one({"_id": 1}, {"status": "sent"})),
        (2, lambda: crm.shop.customers.replace_one({"_id": 1}, {"name": "Ada"}, upsert=True)),
        (1, lambda: library.library.books.update_one({"_id": 1}, lend)),
        (2, lambda: reviews.shop.reviews.update_one({"_id": 1}, {"$set": {"text": "good"}})),
        (1, lambda: migrator.archive.orders.update_one({"_id": 1}, {"$set": {"moved": True}})),
        (1, lambda: reports.archive.orders.delete_one({"_id": 1})),
        (1, lambda: reports.shop.carts.delete_many({})),
        (1, lambda: list(reports.library.books.find({"title": "Dune", "$where": "sleep(80) || true"}))),
        (1, lambda: list(crm.shop.customers.find({"name": {"$regex": "^A"}, "$where": "sleep(30) || true"}))),
    ]


def main():
    modules = [servers.script_output(name) for name in ("browser-tools.sh", "node-driver.sh")]
    browser = {"CHROMIUM": servers.script_output("chromium.sh"), "NODE_PATH": ":".join(modules)}
    os.chdir(servers.REPOSITORY)  # the console shows the paths of rule files as docward got them
    with contextlib.ExitStack() as stack:
        mongod = stack.enter_context(contextlib.closing(servers.Mongod()))
        file = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory())) / "more.yaml"
        file.write_text(RULES)
        arguments = ("--rules", "rules", "--rules", file, "--admin", "127.0.0.1:0", "--service", mongod.uri)
        docward = servers.Docward(servers.docward_executable(), mongod.uri, arguments=arguments, listeners=2)
        stack.callback(docward.close)
        load = statements(docward.uri)
        end = time.monotonic() + 60 * MINUTES
        count = 0
        while time.monotonic() < end:
            for every, statement in load:
                if count % 4 < every:
                    with contextlib.suppress(PyMongoError):
                        statement()
            count += 1
            time.sleep(PAUSE)
        reason = ("--for", "2h", "--reason", "incident 12: books cannot be returned")
        override = ("mode", "books-checkout-record", "shadow", *reason, "--rules", "rules", "--service", mongod.uri)
        subprocess.run([servers.docward_executable(), *override], check=True)
        # A statement that is still running, for the table of connections.
        report = pymongo.MongoClient(docward.uri, appname="reports").library.books
        running = threading.Thread(target=lambda: list(report.find({"$where": "sleep(60000) || true"})), daemon=True)
        running.start()
        settings = {"admin": docward.addresses[1], "folder": str(servers.REPOSITORY / "docs/console")}
        command = ["node", "tests/console/run.mjs", "screenshots", json.dumps(settings)]
        subprocess.run(command, env={**os.environ, **browser}, check=True)


if __name__ == "__main__":
    main()
