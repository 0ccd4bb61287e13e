"""Every alert of deploy/prometheus/alerts.yaml with the fault that it is for (`make try-alerts`).

Prometheus scrapes docwards in front of a replica set, with the alerts as they are, except that their windows, `for` and
`offset` are shorter by `FASTER`. First nothing is wrong, and no alert may fire. Then each fault begins, its alerts
must fire, it ends, and no alert may fire any more. Comparisons with last week are in alerts.test.yaml.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from pymongo import MongoClient
from pymongo.errors import PyMongoError

import servers

FASTER = 60
SCRAPE = 1  # seconds
HEALTHY = 30  # seconds without a fault, longer than every shortened window, and than every `for` but that of eight hours
TIMEOUT = 500  # seconds until an alert must fire or end
SLOW = "DocwardOverrideForgotten"  # fires after eight hours, so its fault begins first and ends last
SERVICE = "docward service"  # the appName of docward's own connections
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}

RULES = """version: 1
rules:
  - { name: versions, namespace: shop.carts, replacement: { policy: check_version, version: version } }
  - { name: whole, namespace: shop.orders, replacement: {} }
  - { name: kept, namespace: shop.ledger, except: { apps: [migrator] }, deny: { operations: [delete] } }
  - { name: spare, namespace: shop.spare, deny: { operations: [delete] } }
  - { name: numbers, namespace: shop.bills, sequence: { field: number, counter: bills, block: 1 } }
  - { name: past, namespace: shop.invoices, history: { into: invoices_history, keep: 100 } }
  - { name: turns, namespace: shop.reports, throttle: { concurrent: 1, per: app, wait: 2s } }
  - { name: turns-tried, namespace: shop.plans, mode: shadow, throttle: { concurrent: 1, per: app, wait: 2s } }
"""
MORE = "  - { name: more, namespace: shop.more, deny: { operations: [delete] } }\n"
SLOW_FIND = {"$where": "sleep(1500) || true"}

FAULTS = []


def fault(*alerts):
    """A function that begins a fault, yields, and ends it; its comment describes the fault. These alerts must fire; if
    there are none, no alert may."""
    return lambda function: FAULTS.append((function, alerts))


def shortened(text):
    """The alert rules with all durations of windows, `for` and `offset` divided by `FASTER`."""

    def shorter(found):
        return f"{found[1]}{int(found[2]) * UNITS[found[3]] * 1000 // FASTER}ms"

    return re.sub(r"(\[|\boffset |\bfor: )(\d+)([smhdw])\b", shorter, text)


class Prometheus(servers.Process):
    """Prometheus with the shortened alerts; `jobs` are the addresses that it scrapes, by job."""

    def __init__(self, jobs):
        self.port = servers.free_port()
        self.jobs = jobs
        super().__init__("docward-prometheus-", self._command, stderr=subprocess.DEVNULL)

    def _command(self, folder):
        alerts = (servers.REPOSITORY / "deploy/prometheus/alerts.yaml").read_text()
        (folder / "alerts.yaml").write_text(shortened(alerts))
        self.targets = folder / "targets.json"
        self.scrape(self.jobs)
        intervals = {"scrape_interval": f"{SCRAPE}s", "evaluation_interval": f"{SCRAPE}s"}
        scrapes = {"job_name": "none", "file_sd_configs": [{"files": ["targets.json"]}]}
        # JSON is YAML too.
        configuration = {"global": intervals, "rule_files": ["alerts.yaml"], "scrape_configs": [scrapes]}
        (folder / "prometheus.yaml").write_text(json.dumps(configuration))
        return [
            os.environ["PROMETHEUS"],
            *("--config.file", folder / "prometheus.yaml", "--storage.tsdb.path", folder / "data"),
            *("--web.listen-address", f"127.0.0.1:{self.port}"),
        ]

    def scrape(self, jobs):
        targets = [{"targets": addresses, "labels": {"job": job}} for job, addresses in jobs.items()]
        scratch = self.targets.with_suffix(".new")
        scratch.write_text(json.dumps(targets))
        scratch.rename(self.targets)

    def ask(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}") as reply:
            return json.load(reply)["data"]

    def await_start(self):
        """Waits until it scrapes: it reads the targets some seconds after its start."""
        deadline = time.monotonic() + servers.TIMEOUT
        while True:
            with suppress(OSError):
                if self.ask("query?query=up==1")["result"] and not self.firing():
                    return
            assert time.monotonic() < deadline and not self.ended, "Prometheus does not scrape"
            time.sleep(0.1)

    def names(self):
        """The names of all alerts."""
        return [rule["name"] for group in self.ask("rules")["groups"] for rule in group["rules"]]

    def firing(self):
        """The names of the alerts that fire."""
        alerts = self.ask("alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


class Scene:
    """A replica set; docwards `a` and `b` with the same rules; `pooled` with a pool of one connection; `edge`, with TLS,
    a limit of connections, and a listener for only two of the three members."""

    def __init__(self, stack):
        self.folder = Path(stack.enter_context(TemporaryDirectory()))
        self.set = stack.enter_context(closing(servers.ReplicaSet(3)))
        self.admins = {name: f"127.0.0.1:{servers.free_port()}" for name in ("a", "b", "pooled", "edge")}
        self.docwards = {}
        stack.callback(lambda: [docward.close() for docward in self.docwards.values()])
        self.listeners = [f"127.0.0.1:{servers.free_port()}" for _ in self.set.members]
        self.certify(90)
        self.name_members(2)
        for name in self.admins:
            self.start(name)
        self.prometheus = stack.enter_context(closing(Prometheus(self.jobs())))
        self.prometheus.await_start()
        shop = self.client("a", "shop")
        shop.carts.insert_one({"_id": 1})
        shop.reports.insert_one({"_id": 1})
        shop.plans.insert_one({"_id": 1})

    def start(self, name):
        if name == "edge":
            arguments, rules, listeners = ("--config", self.folder / "edge.yaml"), "", 3
        elif name == "pooled":
            arguments, rules, listeners = ("--pool-size", "2", "--pool-max-wait", "2s"), "", 4  # one is for transactions
        else:
            arguments, rules, listeners = ("--service", self.set.uri), RULES, 4
        admin = ("--admin", self.admins[name])
        self.docwards[name] = servers.Docward(
            servers.docward_executable(), self.set.uri, rules, (*admin, *arguments), listeners
        )

    def kill(self, name):
        self.docwards.pop(name).close()

    def jobs(self):
        """The addresses of the admin servers, by the job that Prometheus gives them."""
        alone = {f"docward-{name}": [self.admins[name]] for name in ("pooled", "edge")}
        return {"docward": [self.admins["a"], self.admins["b"]], **alone}

    def certify(self, days):
        """A new certificate of `edge`."""
        new = self.folder / "new.pem"
        request = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        files = ("-keyout", self.folder / "key.pem", "-out", self.folder / "certificate.pem")
        subject = ("-subj", "/CN=docward", "-days", str(days))
        subprocess.run(["openssl", *request, *files, *subject], check=True, stderr=subprocess.DEVNULL)
        new.write_bytes((self.folder / "key.pem").read_bytes() + (self.folder / "certificate.pem").read_bytes())
        new.rename(self.folder / "edge.pem")

    def name_members(self, count):
        """Gives `edge` listeners for this many members."""
        members = zip(self.set.members[:count], self.listeners)
        (self.folder / "edge.yaml").write_text(
            f"tls: {{ certificate: {self.folder}/edge.pem }}\nlimits: {{ connections: 4 }}\nmembers:\n"
            + "".join(f"  '{member.address}': {{ listen: '{listener}' }}\n" for member, listener in members)
        )

    def rules_of_b(self, text):
        (self.docwards["b"].folder / "rules.yaml").write_text(text)

    def client(self, name, app):
        """The database `shop` through a docward."""
        members = ",".join(self.docwards[name].addresses[:3])
        return MongoClient(f"mongodb://{members}/?replicaSet=rs0", appname=app, serverSelectionTimeoutMS=2000).shop

    @contextmanager
    def failing(self, **data):
        """docward's own commands at the primary fail or wait."""
        with MongoClient(self.set.primary(), directConnection=True) as primary:
            point = {"configureFailPoint": "failCommand", "data": {"appName": SERVICE, **data}}
            primary.admin.command({**point, "mode": "alwaysOn"})
            yield
            primary.admin.command({**point, "mode": "off"})


@contextmanager
def repeated(operation, threads=1, pause=0.02):
    """Repeats an operation that may fail."""
    ended = threading.Event()

    def repeat():
        while not ended.wait(pause):
            with suppress(PyMongoError, OSError):
                operation()

    started = [threading.Thread(target=repeat) for _ in range(threads)]
    for thread in started:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in started:
            thread.join()


@contextmanager
def stopped(processes):
    """These processes do nothing, and close nothing."""
    for process in processes:
        os.kill(process.pid, signal.SIGSTOP)
    yield
    for process in processes:
        os.kill(process.pid, signal.SIGCONT)


def freeze(member, seconds):
    """The secondary does not become primary in this time."""
    with MongoClient(member.address, directConnection=True) as client:
        client.admin.command("replSetFreeze", seconds)


def secondaries(scene):
    primary = scene.set.primary()
    return [member for member in scene.set.members if member.address != primary]


@fault()
def nothing_wrong(scene):
    """no fault"""
    yield


@fault("DocwardPrimaryWithoutListener")
def hidden_primary(scene):
    """a member that `members` does not name becomes primary; then it is named"""
    freeze(scene.set.members[1], 60)
    assert scene.set.step_down() == scene.set.members[2].address
    yield
    freeze(scene.set.members[1], 0)
    scene.name_members(3)


@fault()
def shadow_throttle(scene):
    """no fault: commands would wait for a rule in shadow mode"""
    plans = scene.client("a", "planner").plans
    with repeated(lambda: list(plans.find({"$where": "sleep(2000 + 3000 * Math.random()) || true"})), 30):
        yield


@fault("DocwardDown", "DocwardNoneReady")
def killed(scene):
    """the only docward of a job is killed"""
    scene.kill("pooled")
    yield
    scene.start("pooled")


@fault("DocwardNoneReady")
def no_target(scene):
    """Prometheus finds no docward, as without pods"""
    scene.prometheus.scrape({})
    yield
    scene.prometheus.scrape(scene.jobs())


@fault("DocwardNotReady", "DocwardNoneReady")
def all_members_silent(scene):
    """no member replies"""
    with stopped(scene.set.members):
        yield


@fault("DocwardMemberDown")
def member_silent(scene):
    """a secondary does not reply"""
    with stopped(secondaries(scene)[:1]):
        yield


@fault("DocwardNoPrimary")
def no_primary(scene):
    """the primary steps down, and no member may be elected"""
    for member in secondaries(scene):
        freeze(member, TIMEOUT)
    with MongoClient(scene.set.primary(), directConnection=True) as primary:
        primary.admin.command("replSetStepDown", TIMEOUT, force=True)
    yield
    for member in scene.set.members:
        freeze(member, 0)
    scene.set.primary()


@fault("DocwardReloadFailed")
def wrong_rules(scene):
    """a rule file has a mistake"""
    scene.rules_of_b(RULES + "  - { name: wrong }\n")
    yield
    scene.rules_of_b(RULES)


@fault("DocwardRuleSetsDiffer")
def other_rules(scene):
    """one of two docwards has another rule file"""
    scene.rules_of_b(RULES + MORE)
    yield
    scene.rules_of_b(RULES)


@fault("DocwardRejectionsRise")
def rejections(scene):
    """an application sends what a rule denies"""
    ledger = scene.client("a", "janitor").ledger
    with repeated(lambda: ledger.delete_one({"_id": 1})):
        yield


@fault("DocwardRejectionsRise")
def conflicts(scene):
    """an application saves what another one has changed"""
    carts = scene.client("a", "checkout").carts
    with repeated(lambda: carts.replace_one({"_id": 1}, {"version": 999})):
        yield


@fault("DocwardChecksRise")
def checks(scene):
    """an application sends statements that must be checked"""
    orders = scene.client("a", "batch").orders
    with repeated(lambda: orders.update_one({"_id": 1}, [{"$replaceWith": {"_id": 1, "total": 1}}])):
        yield


@fault("DocwardExceptUsed")
def exempt(scene):
    """an exempt application sends one statement, the first one"""
    scene.client("a", "migrator").ledger.delete_one({"_id": 1})
    yield


@fault("DocwardSlow")
def slow(scene):
    """docward gets a fifth of the processor time"""
    carts, docward = scene.client("a", "busy").carts, scene.docwards["a"]

    def stop_and_continue():
        with stopped([docward]):
            time.sleep(0.04)

    with repeated(lambda: carts.find_one({"_id": 1}), threads=8, pause=0), repeated(stop_and_continue, pause=0.01):
        yield


@fault("DocwardConnectionsRefused")
def too_many_connections(scene):
    """a client opens more connections than the limit"""
    host, port = scene.listeners[0].split(":")
    opened = []

    def connect():
        opened.append(socket.create_connection((host, port)))

    with repeated(connect):
        yield
    for connection in opened:
        connection.close()


@fault("DocwardPoolWaits", "DocwardPoolRejectsRequests")
def busy_pool(scene):
    """many slow finds share a pool of one connection"""
    plans = scene.client("pooled", "reports").plans
    with repeated(lambda: list(plans.find(SLOW_FIND)), 30):
        yield


@fault("DocwardConnectionsFail")
def not_mongodb(scene):
    """a client sends what is no message of MongoDB"""
    host, port = scene.docwards["a"].address.split(":")

    def send():
        with socket.create_connection((host, port)) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            connection.recv(1)

    with repeated(send):
        yield


@fault("DocwardLookupsFail")
def no_numbers(scene):
    """docward's own user may not reserve numbers"""
    with scene.failing(failCommands=["findAndModify"], errorCode=13):
        yield


@fault("DocwardCertificateExpires")
def old_certificate(scene):
    """a certificate is valid for 13 more days; then it is renewed"""
    scene.certify(13)
    yield
    scene.certify(90)


@fault("DocwardWorkerMissing")
def no_worker(scene):
    """docward's own user may not follow changes"""
    with scene.failing(failCommands=["aggregate", "getMore"], errorCode=13):
        yield


@fault("DocwardWorkerLags")
def slow_worker(scene):
    """entries of the history are not written"""
    wait = {"blockConnection": True, "blockTimeMS": 100_000}
    with scene.failing(failCommands=["insert", "update", "bulkWrite"], namespace="shop.invoices_history", **wait):
        yield


@fault("DocwardHistoryUnknown")
def no_pre_images(scene):
    """a document changes while pre-images are off, before docward switches them on again"""
    shop = scene.set.client.shop
    shop.command("collMod", "invoices", changeStreamPreAndPostImages={"enabled": False})
    shop.invoices.update_one({"_id": 1}, {"$inc": {"total": 1}})
    yield


@fault("DocwardThrottleWaits", "DocwardThrottleRejects")
def throttled(scene):
    """an application sends more slow commands than its rule allows"""
    reports = scene.client("a", "reports").reports
    with repeated(lambda: list(reports.find(SLOW_FIND)), 30):
        yield


@fault(SLOW)
def forgotten(scene):
    """a mode stays overridden; then the override is ended"""
    yield
    override(scene, "--clear")


def override(scene, *wanted):
    connections = ("--service", scene.set.uri, "--rules", scene.docwards["a"].folder / "rules.yaml")
    subprocess.run([servers.docward_executable(), "mode", "spare", *wanted, *connections], check=True)


@contextmanager
def traffic(scene):
    """What applications do while nothing is wrong, and during the faults."""
    shop, other = scene.client("a", "shop"), scene.client("pooled", "shop")

    def operations():
        for operation in (
            lambda: shop.carts.update_one({"_id": 1}, {"$inc": {"items": 1}}),
            lambda: shop.invoices.update_one({"_id": 1}, {"$inc": {"total": 1}}, upsert=True),
            lambda: shop.bills.insert_one({}),
            lambda: shop.reports.find_one({"_id": 1}),
            lambda: other.orders.find_one({"_id": 1}),
        ):
            with suppress(PyMongoError):
                operation()

    with repeated(operations, pause=0.2):
        yield


def watch(scene, what, is_over, least=0):
    """Watches the firing alerts for `least` seconds and until `is_over`; returns when each was first and last seen."""
    began = time.monotonic()
    first, last = {}, {}
    while True:
        firing = scene.prometheus.firing()
        now = time.monotonic() - began
        for alert in firing:
            first.setdefault(alert, now)
            last[alert] = now
        if now >= least and is_over(first, firing):
            return first, last
        assert now < TIMEOUT, f"{what}: after {TIMEOUT} s these fire: {firing}"
        time.sleep(SCRAPE / 8)


def try_fault(scene, function, alerts):
    name = function.__name__
    with contextmanager(function)(scene):
        fired, _ = watch(scene, name, lambda first, _: first.keys() >= set(alerts), 0 if alerts else HEALTHY)
    _, ended = watch(scene, f"the end of {name}", lambda _, firing: firing <= {SLOW} - set(alerts))
    others = (fired.keys() | ended.keys()) - {*alerts, SLOW}
    assert alerts or not others, f"{name}: {others}"
    for alert in alerts or ["none"]:
        times = f"{fired[alert]:.0f} s | {ended.get(alert, 0):.0f} s" if alerts else "|"
        print(f"| {alert} | {function.__doc__} | {times} | {', '.join(sorted(others))} |", flush=True)


def main():
    wanted = set(sys.argv[1:])  # names of functions; none: all
    with ExitStack() as stack:
        scene = Scene(stack)
        tried = {alert for _, alerts in FAULTS for alert in alerts}
        assert tried == set(scene.prometheus.names()), tried ^ set(scene.prometheus.names())
        stack.enter_context(traffic(scene))
        override(scene, "shadow", "--for", "12h", "--reason", "tried")
        watch(scene, "the start", lambda _, firing: not firing, HEALTHY / 3)
        print("| alert | fault | fires after | ends after | other alerts |\n|---|---|---|---|---|", flush=True)
        for function, alerts in FAULTS:
            if not wanted or function.__name__ in wanted:
                try_fault(scene, function, alerts)


if __name__ == "__main__":
    main()
