"""The pattern `throttle` with a real driver: what an application sees when its command waited too long (error 462)."""

import threading
import time

import pytest
from pymongo import MongoClient, monitoring
from pymongo.errors import OperationFailure

RULES = """
version: 1
rules:
  - { name: share, namespace: "shop.*", throttle: { concurrent: 1, per: app, wait: 200ms } }
"""


class Attempts(monitoring.CommandListener):
    """The commands that the driver sends, and the labels of errors."""

    def __init__(self):
        self.names, self.failures = [], []

    def started(self, event):
        self.names.append(event.command_name)

    def succeeded(self, event):
        pass

    def failed(self, event):
        self.failures.append(event.failure)


def slow(uri, milliseconds):
    """Holds the only permit of the application `report` for so long."""
    client = MongoClient(uri, appName="report")
    where = f"sleep({milliseconds}) || true"
    thread = threading.Thread(target=lambda: list(client.shop.items.find({"$where": where})))
    thread.start()
    return thread


@pytest.mark.parametrize("write", [False, True])
def test_the_driver_retries_an_overload_error_and_then_names_the_rule(mongod, docward_factory, write):
    docward = docward_factory(RULES)
    direct = MongoClient(mongod.uri).shop.items
    direct.delete_many({})
    direct.insert_one({"_id": 1, "n": 0})
    attempts = Attempts()
    items = MongoClient(docward.uri, appName="report", event_listeners=[attempts]).shop.items
    items.find_one()

    def work():
        if write:
            return items.update_one({"_id": 1}, {"$inc": {"n": 1}}).modified_count
        return items.find_one({"_id": 1})["_id"]

    # The permit is never free: the error reaches the application, and names the rule.
    holder = slow(docward.uri, 6000)
    time.sleep(0.5)
    attempts.names.clear()
    began = time.monotonic()
    with pytest.raises(OperationFailure) as failed:
        work()
    took = time.monotonic() - began
    error = failed.value
    assert error.code == 462, error
    assert error.has_error_label("RetryableError") and error.has_error_label("SystemOverloadedError"), error.details
    assert error.details["errInfo"]["docward"]["rule"] == "share"
    # Client Backpressure: the driver sends it again, with a pause, and not without end.
    assert len(attempts.names) == 3, attempts.names
    assert 0.6 < took < 5, took
    holder.join()
    # Nothing of it was executed, and the next one is.
    assert direct.find_one()["n"] == 0
    assert work() == 1
    # A permit that becomes free meanwhile: the application sees no error.
    attempts.failures.clear()
    holder = slow(docward.uri, 700)
    time.sleep(0.3)
    assert work() == 1
    assert len(attempts.failures) >= 1
    holder.join()
    assert direct.find_one()["n"] == (2 if write else 0)
