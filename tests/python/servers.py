"""The processes the Python tests run against: a real mongod, and docward before it.

None of them outlives the test run, however it ends: scripts/watchdog.sh waits for the
end of a pipe that only this process holds. Knows nothing of what is tested.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from pymongo import MongoClient
from pymongo.errors import ConnectionFailure

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE = 60  # seconds; a server that needs longer is broken


class Process:
    """A child in a scratch folder of its own; both go when it is closed or we die."""

    def __init__(self, prefix, command, **options):
        self.folder = Path(tempfile.mkdtemp(prefix=prefix))
        self.child = subprocess.Popen(
            command(self.folder), stdin=subprocess.DEVNULL, start_new_session=True, **options
        )
        self.watchdog = subprocess.Popen(
            [REPOSITORY / "scripts/watchdog.sh", str(self.child.pid), self.folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self):
        return self.child.pid

    @property
    def ended(self):
        return self.child.poll() is not None

    def kill(self):
        """SIGKILL, as when the machine fails."""
        self.child.kill()
        self.child.wait()

    def terminate(self):
        """SIGTERM; waits for the end and returns the exit status."""
        self.child.send_signal(signal.SIGTERM)
        return self.child.wait(PATIENCE)

    def close(self):
        self.kill()
        self.watchdog.communicate(b"stand down\n")
        shutil.rmtree(self.folder, ignore_errors=True)


class Mongod(Process):
    """A replica set named rs0 of one member, with failpoints enabled.

    `cache` is WiredTiger's, in GB; a transaction must fit into a fifth of it.
    """

    def __init__(self, cache=0.25):
        self.cache = cache
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.uri = f"mongodb://{self.address}/?replicaSet=rs0"
        super().__init__("docward-mongod-", self._command, stdout=subprocess.DEVNULL)
        try:
            self._initiate()
        except BaseException:
            self.close()
            raise

    def _command(self, folder):
        return [
            script_output("mongod.sh"),
            *("--bind_ip", "127.0.0.1", "--port", str(self.port), "--nounixsocket"),
            *("--dbpath", folder, "--logpath", folder / "mongod.log"),
            *("--replSet", "rs0", "--oplogSize", "512", "--wiredTigerCacheSizeGB", str(self.cache)),
            *("--setParameter", "enableTestCommands=1"),
            *("--setParameter", "diagnosticDataCollectionEnabled=false"),
        ]

    def _initiate(self):
        member = {"_id": 0, "host": self.address}
        initiated = False
        deadline = time.monotonic() + PATIENCE
        with MongoClient(
            self.address, directConnection=True, serverSelectionTimeoutMS=500
        ) as client:
            while True:
                try:
                    if not initiated:
                        client.admin.command("replSetInitiate", {"_id": "rs0", "members": [member]})
                        initiated = True
                    if client.admin.command("hello")["isWritablePrimary"]:
                        return
                except ConnectionFailure:
                    pass
                if self.ended or time.monotonic() > deadline:
                    log = (self.folder / "mongod.log").read_text().splitlines()
                    raise RuntimeError("\n".join(["mongod did not start:", *log[-20:]]))
                time.sleep(0.02)


class Docward(Process):
    """`docward serve` before `upstream`, with one rule file of this content (none if empty)."""

    def __init__(self, executable, upstream, rules="", arguments=()):
        self.executable = executable
        self.upstream = upstream
        self.rules = rules
        self.arguments = arguments
        self.log = []
        super().__init__(
            "docward-test-",
            self._command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        try:
            self._logger = threading.Thread(target=self._collect_log, daemon=True)
            self._logger.start()
            self.address = self._await_listening()
        except BaseException:
            self.close()
            raise
        self.uri = f"mongodb://{self.address}/"

    def _command(self, folder):
        command = [self.executable, "serve", "--listen", "127.0.0.1:0", "--upstream", self.upstream]
        if self.rules:
            file = folder / "rules.yaml"
            file.write_text(self.rules)
            command += ["--rules", file]
        return [*command, *self.arguments]

    def _collect_log(self):
        for line in self.child.stderr:
            self.log.append(line.rstrip("\n"))

    def _await_listening(self):
        # A docward that hangs before it listens is ended, which ends this loop.
        alarm = threading.Timer(PATIENCE, self.child.kill)
        alarm.start()
        try:
            for line in self.child.stdout:
                if line.startswith("listening on "):
                    return line.removeprefix("listening on ").strip()
        finally:
            alarm.cancel()
        self._logger.join()
        raise RuntimeError("\n".join(["docward did not start:", *self.log]))


def script_output(name):
    """What a script of scripts/ prints: the path of something that it fetches if need be."""
    script = REPOSITORY / "scripts" / name
    done = subprocess.run([script], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def free_port():
    """A TCP port of the loopback interface that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def docward_executable():
    """What DOCWARD_BIN names; `make test` sets it. A missing one is an error, never a skip."""
    executable = os.environ.get("DOCWARD_BIN", "")
    if not os.access(executable, os.X_OK):
        raise RuntimeError(f"DOCWARD_BIN={executable!r} is no executable file; use `make test`")
    return executable
