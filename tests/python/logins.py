"""What applications see when a server that has no room ends their logins (`make logins`).

Drivers work through a relay in front of a mongod with access control. It passes the first two logins of a driver, ends the
next ones, and passes the rest. Prints for each driver and each way to end a login whether the driver gave up the
connections that it had, and which operations failed.
"""

import os
import re
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path

import bson
from pymongo import MongoClient

import servers
from drains import Load, drivers

PASSED, ENDED = 2, 6  # logins
AFTER = 3  # seconds of load after the last login was ended
LABELS = ["SystemOverloadedError", "RetryableError", "NoWritesPerformed"]
ERROR = bson.encode({"ok": 0.0, "errmsg": "no room", "code": 462, "codeName": "IngressRequestRateLimitExceeded", "errorLabels": LABELS})
OP_QUERY, OP_REPLY, OP_MSG = 2004, 1, 2013
ENDINGS = ["closed before the hello's reply", "error in the hello", "closed in SASL", "error in SASL"]


def frame(connection):
    """The next message; empty if the connection was closed."""
    received = b""
    length = 16
    while len(received) < length:
        part = connection.recv(65536 if len(received) >= 16 else 16 - len(received))
        if not part:
            return b""
        received += part
        if len(received) >= 4:
            length = struct.unpack("<i", received[:4])[0]
    return received


def error_reply(request):
    _, number, _, operation = struct.unpack("<iiii", request[:16])
    if operation == OP_QUERY:
        body, operation = struct.pack("<iqii", 0, 0, 0, 1) + ERROR, OP_REPLY
    else:
        body = struct.pack("<iB", 0, 0) + ERROR
    return struct.pack("<iiii", 16 + len(body), 1, number, operation) + body


class Relay:
    """A relay that ends some logins. `given_up`: connections that the driver closed within a second after that."""

    def __init__(self, server, ending):
        self.server, self.ending = server, ending
        self.lock, self.logins, self.ended_at, self.given_up = threading.Lock(), 0, None, 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.listener.close()

    def _accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    @staticmethod
    def _copy(server, client):
        """Monitors get several replies to a hello."""
        try:
            while part := server.recv(65536):
                client.sendall(part)
        except OSError:
            pass

    def _is_ended(self):
        with self.lock:
            self.logins += 1
            is_ended = PASSED < self.logins <= PASSED + ENDED
            if is_ended:
                self.ended_at = time.monotonic()
            return is_ended

    def _end(self, client, request, place, how):
        """Ends the login if it is to end here."""
        if self.ending not in (f"closed {place}", f"error {how}"):
            return False
        if self.ending.startswith("error"):
            client.sendall(error_reply(request))
            frame(client)
        client.close()
        return True

    def _serve(self, client):
        with closing(client), closing(socket.create_connection(self.server)) as server:
            ends, is_login = False, False
            threading.Thread(target=self._copy, args=(server, client), daemon=True).start()
            try:
                while request := frame(client):
                    if not is_login and (b"speculativeAuthenticate" in request or b"saslSupportedMechs" in request):
                        is_login, ends = True, self._is_ended()
                        if ends and self._end(client, request, "before the hello's reply", "in the hello"):
                            return
                    if ends and (b"saslContinue" in request or b"saslStart" in request[:60]):
                        if self._end(client, request, "in SASL", "in SASL"):
                            return
                    server.sendall(request)
            except OSError:
                pass
            if is_login and not ends and self.ended_at and time.monotonic() - self.ended_at < 1:
                with self.lock:
                    self.given_up += 1


def observed(mongod, name, command, environment, ending):
    relay = Relay((("127.0.0.1"), mongod.port), ending)
    with closing(relay):
        uri = f"mongodb://app:secret@{relay.address}/?directConnection=true&authSource=admin"
        with closing(Load(name, [*command, uri, re.sub(r"\W", "", f"{name}{ENDINGS.index(ending)}")], environment)) as load:
            load.await_working()
            deadline = time.monotonic() + servers.TIMEOUT
            while relay.logins < PASSED + ENDED and time.monotonic() < deadline:
                time.sleep(0.1)
            time.sleep(AFTER)
            result = load.stop()
    failed = ", ".join(f"{count} {kind}" for kind, count in result["failures"].items()) or "0"
    texts = Counter(re.sub(r"127\.0\.0\.1:\d+|\{.*", "…", text)[:120] for text in result["texts"]).most_common(2)
    longest = max(result["longest"].values())
    shown = "; ".join(text.replace("|", "/") for text, _ in texts)
    print(f"| {name} | {ending} | {relay.given_up} | {failed} of {sum(result['done'].values())} | {longest:.1f} s | {shown} |", flush=True)


def main():
    commands = drivers()
    if older := os.environ.get("PYMONGO_OLDER"):
        command, environment = commands["pymongo"]
        commands["pymongo-older"] = ([older, *command[1:]], environment)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        key = folder / "key"
        key.write_text("docward" * 4)
        key.chmod(0o600)
        mongod = stack.enter_context(closing(servers.Mongod(initiate=False, arguments=("--keyFile", key))))
        with MongoClient(mongod.address, directConnection=True) as client:
            client.admin.command("replSetInitiate", {"_id": "rs0", "members": [{"_id": 0, "host": mongod.address}]})
            while not client.admin.command("hello")["isWritablePrimary"]:
                time.sleep(0.1)
            client.admin.command("createUser", "app", pwd="secret", roles=["root"])
        uri = f"mongodb://app:secret@{mongod.address}/?directConnection=true"
        with MongoClient(uri) as client:
            for name in commands:
                for number in range(len(ENDINGS)):
                    client[re.sub(r"\W", "", f"{name}{number}")].many.insert_many([{"_id": each} for each in range(200)])
        print("| driver | a login without room is | connections given up | failed | longest | errors |\n|---|---|---|---|---|---|")
        for name, (command, environment) in commands.items():
            for ending in ENDINGS:
                observed(mongod, name, command, environment, ending)


if __name__ == "__main__":
    main()
