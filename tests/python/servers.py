"""The processes of the Python tests: a real mongod, and docward in front of it.

None of them outlives the test run, however it ends: scripts/watchdog.sh waits for the
end of a pipe that only this process holds.
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
from pymongo.errors import ConnectionFailure, OperationFailure
from pymongo.read_preferences import Secondary

REPOSITORY = Path(__file__).resolve().parents[2]
TIMEOUT = 120  # seconds; a slower server is an error


class Process:
    """A child process with its own temporary folder; both are removed on `close` or when this process dies."""

    def __init__(self, prefix, command, **options):
        self.folder = Path(tempfile.mkdtemp(prefix=prefix))
        self._start = lambda: subprocess.Popen(
            command(self.folder), stdin=subprocess.DEVNULL, start_new_session=True, **options
        )
        self.watchdog = None
        self.start()

    def start(self):
        """Starts it again after `kill`, in the same folder."""
        if self.watchdog:
            self.watchdog.communicate(b"stand down\n")
        self.child = self._start()
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
        """SIGKILL, like a machine failure."""
        self.child.kill()
        self.child.wait()

    def terminate(self):
        """SIGTERM; waits for the end and returns the exit status."""
        self.child.send_signal(signal.SIGTERM)
        return self.child.wait(TIMEOUT)

    def close(self):
        self.kill()
        self.watchdog.communicate(b"stand down\n")
        shutil.rmtree(self.folder, ignore_errors=True)


class Mongod(Process):
    """A member of a replica set named rs0, with failpoints enabled; `initiate` creates the set with this member only.

    `cache` is the maximum size of WiredTiger's cache in GB. A transaction must fit into a fifth of it, and into the
    free part while the previous one is not on disk yet. A `standalone` is not part of a replica set.
    `arguments` are passed to mongod; with authentication there is no user yet.
    """

    def __init__(self, cache=1, initiate=True, standalone=False, arguments=()):
        self.cache = cache
        self.standalone = standalone
        self.arguments = arguments
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.addresses = [self.address]
        self.uri = f"mongodb://{self.address}/" + ("" if standalone else "?replicaSet=rs0")
        super().__init__("docward-mongod-", self._command, stdout=subprocess.DEVNULL)
        try:
            self.await_answer("ping")
            if standalone or not initiate:
                return
            self.initiate([{"_id": 0, "host": self.address}])
        except BaseException:
            self.close()
            raise

    def _command(self, folder):
        return [
            script_output("mongod.sh"),
            *("--bind_ip", "127.0.0.1", "--port", str(self.port), "--nounixsocket"),
            *("--dbpath", folder, "--logpath", folder / "mongod.log"),
            *(() if self.standalone else ("--replSet", "rs0", "--oplogSize", "512")),
            *("--wiredTigerCacheSizeGB", str(self.cache)),
            *("--setParameter", "enableTestCommands=1"),
            *("--setParameter", "diagnosticDataCollectionEnabled=false"),
            *self.arguments,
        ]

    def await_answer(self, *command, accepted=lambda reply: True):
        """Repeats a command until its reply is accepted."""
        deadline = time.monotonic() + TIMEOUT
        with MongoClient(self.address, directConnection=True, serverSelectionTimeoutMS=500) as client:
            while True:
                try:
                    if accepted(client.admin.command(*command)):
                        return
                except ConnectionFailure:
                    pass
                if self.ended or time.monotonic() > deadline:
                    log = (self.folder / "mongod.log").read_text().splitlines()
                    raise RuntimeError("\n".join(["mongod did not start:", *log[-20:]]))
                time.sleep(0.02)

    def initiate(self, members, **settings):
        """Creates a replica set of these members; waits until this one is its primary."""
        configuration = {"_id": "rs0", "members": members, "settings": settings}
        self.await_answer("replSetInitiate", configuration)
        self.await_answer("hello", accepted=lambda hello: hello["isWritablePrimary"])


class ReplicaSet:
    """A replica set named rs0 of several members; `close` kills them.

    Members that miss heartbeats because the machine is slow start no election for five seconds.
    """

    def __init__(self, size=3):
        self.members = []
        try:
            self.members += (Mongod(initiate=False) for _ in range(size))
            configured = [{"_id": i, "host": m.address} for i, m in enumerate(self.members)]
            self.members[0].initiate(
                configured, electionTimeoutMillis=5000, heartbeatIntervalMillis=300
            )
            self.client = MongoClient(self.uri)
            self.client.admin.command("ping", read_preference=Secondary())
        except BaseException:
            self.close()
            raise

    @property
    def addresses(self):
        return [member.address for member in self.members]

    @property
    def uri(self):
        return f"mongodb://{','.join(self.addresses)}/?replicaSet=rs0"

    def primary(self):
        """The address of the primary; waits for one."""
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            try:
                hello = self.client.admin.command("hello")
                if hello["isWritablePrimary"]:
                    return hello["me"]
            except ConnectionFailure:
                pass  # drivers do not retry hello after an election closes its connection
            time.sleep(0.02)
        raise RuntimeError("no primary")

    def step_down(self):
        """Makes the primary step down and waits for another one."""
        before = self.primary()
        deadline = time.monotonic() + TIMEOUT
        with MongoClient(before, directConnection=True) as client:
            while True:
                try:
                    client.admin.command("replSetStepDown", 30, secondaryCatchUpPeriodSecs=10)
                    break
                except OperationFailure:  # fails while no secondary has caught up
                    assert time.monotonic() < deadline, "the primary does not step down"
        while self.primary() == before:
            assert time.monotonic() < deadline, "no other primary"
            time.sleep(0.05)
        with MongoClient(before, directConnection=True) as client:
            client.admin.command("replSetFreeze", 0)
        return self.primary()

    def close(self):
        if hasattr(self, "client"):
            self.client.close()
        for member in self.members:
            member.close()


class Docward(Process):
    """`docward serve`, or another subcommand, in front of `upstream`, with one rule file of this content (none if empty).

    It prints `listeners` lines; `address` is the first, `addresses` are all.
    """

    def __init__(self, executable, upstream, rules="", arguments=(), listeners=1, subcommand="serve"):
        self.executable = executable
        self.subcommand = subcommand
        self.listeners = listeners
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
            self.addresses = self._await_listening()
            self.address = self.addresses[0]
        except BaseException:
            self.close()
            raise
        self.uri = f"mongodb://{self.address}/"

    def _command(self, folder):
        upstream = self.upstream
        has_pool = pool_size() and self.subcommand == "serve" and "--pool-size" not in self.arguments
        if has_pool or "router" in self.arguments:
            # docward's own operations get another name than the connections of the pool, so that they use up none of
            # the failpoints for these.
            upstream += ("&" if "?" in upstream else "?") + "appName=docward-own"
        command = [self.executable, self.subcommand, "--upstream", upstream]
        if not {"--listen", "--member", "--config"} & set(self.arguments):
            command += ["--listen", "127.0.0.1:0"]
        if self.rules:
            file = folder / "rules.yaml"
            file.write_text(self.rules)
            command += ["--rules", file]
        if has_pool:
            command += ["--pool-size", pool_size()]
        return [*command, *self.arguments]

    def _collect_log(self):
        for line in self.child.stderr:
            self.log.append(line.rstrip("\n"))

    def _await_listening(self):
        # A docward that hangs before it listens is killed, which ends this loop.
        alarm = threading.Timer(TIMEOUT, self.child.kill)
        alarm.start()
        try:
            addresses = []
            for line in self.child.stdout:
                if line.startswith("listening on "):
                    addresses.append(line.split()[2])
                if len(addresses) == self.listeners:
                    return addresses
        finally:
            alarm.cancel()
        self._logger.join()
        raise RuntimeError("\n".join(["docward did not start:", *self.log]))


HAPROXY_DEFAULTS = (REPOSITORY / "deploy/haproxy/docward.cfg").read_text().split("\nlisten ")[0]

HAPROXY_LISTEN = """
listen docward
  balance {algorithm}
  bind 127.0.0.1:{port}
  server a 127.0.0.1:{listeners[0]} port {admins[0]}
  server b 127.0.0.1:{listeners[1]} port {admins[1]}
"""


class Haproxy(Process):
    """HAProxy in front of two docwards, with the settings of deploy/haproxy; `admins` are the ports of their health checks."""

    def __init__(self, algorithm, listeners, admins):
        # PyMongo's own suite looks for a second mongos at the next port.
        self.port, _ = neighbours()
        self.address = f"127.0.0.1:{self.port}"
        self.text = HAPROXY_DEFAULTS + HAPROXY_LISTEN.format(algorithm=algorithm, port=self.port, listeners=listeners, admins=admins)
        super().__init__("docward-haproxy-", self._command, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + TIMEOUT
        with socket.socket() as probe:
            while probe.connect_ex(("127.0.0.1", self.port)):
                assert not self.ended and time.monotonic() < deadline, "HAProxy did not start"
                time.sleep(0.02)

    def _command(self, folder):
        (folder / "haproxy.cfg").write_text(self.text)
        return ["haproxy", "-db", "-f", folder / "haproxy.cfg"]


def pool_size():
    """The number of shared server connections with which `POOL=2 make compat` and `make drivers` run, or empty."""
    return os.environ.get("DOCWARD_TEST_POOL", "")


def script_output(name):
    """The output of a script in scripts/: a path, which the script downloads if necessary."""
    script = REPOSITORY / "scripts" / name
    done = subprocess.run([script], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


# Other test processes start at another offset.
_ports = (10_000 + (os.getpid() * 131 + given) % 10_000 for given in range(10_000))


def free_port():
    """A TCP port of the loopback interface that is and stays free.

    It is below the system's range for outgoing connections and port 0, and this process returns it only once.
    """
    for port in _ports:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass
    raise RuntimeError("no port is free")


def neighbours():
    """Two such ports, one after the other: PyMongo's own suite finds a second mongos so."""
    first = free_port()
    while (second := free_port()) != first + 1:
        first = second
    return first, second


def docward_executable():
    """The binary in DOCWARD_BIN, which `make test` sets. A missing one is an error, never a skip."""
    executable = os.environ.get("DOCWARD_BIN", "")
    if not os.access(executable, os.X_OK):
        raise RuntimeError(f"DOCWARD_BIN={executable!r} is no executable file; use `make test`")
    return executable
