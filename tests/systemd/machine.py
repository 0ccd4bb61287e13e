"""Helpers of the systemd test for its machine, which is a separate container."""

import collections
import contextlib
import socket
import struct
import subprocess
import threading
import time

import bson
from pymongo import MongoClient
from pymongo.errors import PyMongoError

PORT = 27018
CONFIGURATION = "/etc/docward/docward.yaml"
RULES = "/etc/docward/rules/shop.yaml"
AUTHORITY = "/etc/docward/tls/authority.pem"


def run(command, code=0):
    """The output of a command, which ends with `code`."""
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120)
    output = done.stdout + done.stderr
    assert code in (None, done.returncode), f"{command}: {done.returncode}\n{output}"
    return output


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def state(unit="docward"):
    return run(f"systemctl show --value --property ActiveState {unit}").strip()


def wait_for(condition, what, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.1)


def journal(since, *options):
    return run(f"journalctl --sync; journalctl --unit docward --no-pager --output cat --since @{since} {' '.join(options)}")


def now():
    # journalctl accepts at most microseconds.
    return f"{time.time():.6f}"


def client(uri="mongodb://127.0.0.1:27018/?replicaSet=rs0", **options):
    return MongoClient(uri, serverSelectionTimeoutMS=20_000, **options)


def direct():
    return MongoClient("127.0.0.1", 27017, directConnection=True, serverSelectionTimeoutMS=20_000)


def install(package):
    run(f"DEBIAN_FRONTEND=noninteractive apt-get install --yes {package}")


@contextlib.contextmanager
def setting(path, text):
    """A file that exists inside the block; systemd reloads its units."""
    write(path, text)
    run("systemctl daemon-reload")
    try:
        yield
    finally:
        run(f"rm {path}; systemctl daemon-reload")


class Load:
    """Clients that write, that reconnect, and that only send hello, until the end of the block; collects their failures."""

    def __init__(self):
        self.ended = threading.Event()
        self.done = collections.Counter()
        self.failed = collections.Counter()
        clients = [self.writer, self.writer, self.new_client, self.hello_sender, self.hello_sender]
        self.threads = [threading.Thread(target=self.repeat, args=(one,)) for one in clients]

    def repeat(self, client):
        for step in client():
            try:
                step()
                self.done[client.__name__] += 1
            except (OSError, PyMongoError, AssertionError) as error:
                self.failed[f"{client.__name__}: {type(error).__name__} {str(error)[:200]}"] += 1
            if self.ended.is_set():
                return

    def writer(self):
        connected = client()
        while True:
            yield lambda: connected.load.written.insert_one({})

    def new_client(self):
        while True:
            yield lambda: client().load.written.find_one({"_id": 0})

    def hello_sender(self):
        """Sends hello without a driver's retries and waits for each reply, so that a connection that is not accepted fails."""
        body = bson.encode({"hello": 1, "$db": "admin"})
        hello = struct.pack("<iiiiIB", 21 + len(body), 1, 0, 2013, 0, 0) + body

        def send_hello():
            with socket.create_connection(("127.0.0.1", PORT), 20) as connection:
                connection.sendall(hello)
                assert connection.recv(100), "closed without an answer"

        while True:
            yield send_hello
            time.sleep(0.002)

    def __enter__(self):
        self.before = direct().load.written.estimated_document_count()
        for thread in self.threads:
            thread.start()
        time.sleep(1)
        return self

    def __exit__(self, *raised):
        time.sleep(1)
        self.ended.set()
        for thread in self.threads:
            thread.join()
        if raised[0] is None:
            assert not self.failed, dict(self.failed)
            stored = direct().load.written.count_documents({}) - self.before
            assert stored == self.done["writer"] > 0, (stored, dict(self.done))
            assert min(self.done[one] for one in ("new_client", "hello_sender")) > 0, dict(self.done)
