"""The pymongo part of tests/chaos: the operations of tests/chaos/workload.rs, as a separate process.

Prints a JSON line for every operation, which tests/chaos/journal.rs reads, and one for every address that the
driver connects to. Ends when its standard input ends.
"""

import json
import random
import sys
import threading
import time

from bson import Int64
from pymongo import MongoClient, ReadPreference, monitoring
from pymongo.errors import OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern

uri, pause = sys.argv[1], float(sys.argv[2])
stopping = threading.Event()
printing = threading.Lock()
base = time.time_ns() // 1000 * 2


def emit(**line):
    with printing:
        print(json.dumps(line), flush=True)


class Addresses(monitoring.ServerListener):
    """Every server that the driver has known: it monitors each, so it connects to each."""

    def opened(self, event):
        host, port = event.server_address
        emit(address=f"{host}:{port}")

    def description_changed(self, event):
        pass

    def closed(self, event):
        pass


class Rejected(Exception):
    """A rule or a filter rejected the operation."""


class Worker(threading.Thread):
    """Repeats one kind of operation with its own client."""

    def __init__(self, kind):
        super().__init__(name=kind)
        self.random = random.Random(kind)
        self.client = MongoClient(uri, event_listeners=[Addresses()], appName="chaos-pymongo")
        self.database = self.client.get_database(
            "chaos", read_preference=ReadPreference.PRIMARY, read_concern=ReadConcern("majority")
        )
        self.count = 0

    def run(self):
        while not stopping.wait(pause):
            self.count += 1
            token = str(base + 2 * self.count) if self.name == "price" else f"p-{self.name}-{self.count}"
            try:
                getattr(self, self.name)(token)
                emit(kind=self.name, token=token, outcome="acknowledged")
            except Rejected:
                emit(kind=self.name, token=token, outcome="rejected")
            except PyMongoError as error:
                code = getattr(error, "code", None)
                text = f"{type(error).__name__} {code}: {str(error)[:900]}"
                emit(kind=self.name, token=token, outcome="unknown", error=text)

    def order(self, token):
        self.database.orders.insert_one({"token": token})

    def batch(self, token):
        self.database.orders.insert_many([{"token": token, "batch": i} for i in range(4)])

    def log(self, token):
        change = {"$inc": {"n": 1}, "$push": {"log": token}}
        self.database.logs.update_one({"_id": f"p-{self.count // 100}"}, change, upsert=True)

    def stock(self, token):
        delta = self.random.choice([-3, -2, -1, 1, 2, 3])
        change = {"$inc": {"available": delta}, "$push": {"moves": {"token": token, "delta": delta}}}
        item = {"_id": self.random.randrange(20)}
        if self.database.stock.update_one(item, change).modified_count == 0:
            raise Rejected

    def article(self, token):
        key = {"_id": self.count // 50 % 100}
        for _ in range(20):
            article = self.database.articles.find_one(key)
            article["tokens"].append(token)
            try:
                self.database.articles.replace_one(key, article)
                return
            except OperationFailure as error:
                if error.code != 112:
                    raise
        raise Rejected

    def price(self, token):
        change = {"$set": {"price": Int64(token), "at": Int64(token)}}
        self.database.prices.update_one({"_id": int(token) // 2 % 20}, change)

    def transfer(self, token):
        giver, taker = self.random.sample(range(10), 2)

        def body(session):
            accounts, transfers = self.database.accounts, self.database.transfers
            accounts.update_one({"_id": giver}, {"$inc": {"balance": -1}}, session=session)
            accounts.update_one({"_id": taker}, {"$inc": {"balance": 1}}, session=session)
            transfers.insert_one({"token": token, "from": giver, "to": taker}, session=session)

        with self.client.start_session() as session:
            session.with_transaction(body)

    def leaf(self, token):
        branch = f"branch-{self.random.randrange(5)}"
        self.database.nodes.insert_one({"_id": token, "token": token, "parent": branch})

    def move(self, token):
        branch = f"branch-{self.random.randrange(5)}"
        change = {"$set": {"parent": branch}, "$push": {"log": token}}
        twig = {"_id": f"twig-{self.random.randrange(10)}"}
        assert self.database.nodes.update_one(twig, change).matched_count == 1


KINDS = ["order", "batch", "log", "stock", "article", "price", "transfer", "leaf", "move"]
workers = [Worker(kind) for kind in KINDS]
for worker in workers:
    worker.start()
sys.stdin.read()
stopping.set()
for worker in workers:
    worker.join()
emit(ended=True)
