"""The console in a browser, with a real mongod and a real driver: the scenarios of tests/console.

Each runs in its own Chromium, with its own docward.
"""

import contextlib
import json
import os
import subprocess

import pytest
from pymongo import MongoClient

import servers

TIMEOUT = 5 * servers.TIMEOUT  # seconds; a scenario needs a few
NO_CHROMIUM = 3
TOKEN = "0123456789abcdef"

RULES = """version: 1
rules:
  - name: whole
    why: A save of a whole order overwrites the fields that others changed.
    namespace: shop.orders
    replacement: { policy: reject }

  # The next rule is only tried.
  - name: tried
    namespace: shop.items
    mode: shadow
    together: [a, b]
  - name: merged
    namespace: shop.customers
    replacement: { policy: merge }
  - name: kept
    namespace: shop.orders
    except: { apps: [migrator-*] }
    deny: { operations: [delete] }
"""

HOSTILE_RULES = """version: 1
rules:
  - name: hostile
    why: "</p><img src=x onerror=hacked=1>\\"><script>hacked=1</script>\\u202Egnp.exe"
    namespace: hostile.*
    deny: { operations: [insert] }   # <img src=x onerror=hacked=1> \u202egnp.exe
"""

STOPPING_RULES = """version: 1
rules:
  - { name: stock, namespace: shop.books, bounds: { field: n, min: 0 } }
  - name: saves
    namespace: shop.books
    replacement: { policy: check_version, version: v, count_updates: false }
"""

THROTTLING_RULES = """version: 1
rules:
  - { name: limited, namespace: shop.reports, throttle: { per: app, concurrent: 1, wait: 8s } }
"""

COPYING_RULES = """version: 1
rules:
  - { name: names, namespace: shop.users, copies: [{ into: shop.posts, key: user, fields: { name: user_name } }] }
"""

PATTERNS_RULES = """version: 1
rules:
  - { name: versions, namespace: shop.customers, schema_version: { field: v, current: 3, minimum: 2 } }
  - { name: history, namespace: shop.orders, history: { into: orders_history, keep: 7 } }
  - { name: small, namespace: shop.devices, limits: { items: { events: 2 } } }
  - { name: turns, namespace: shop.reports, throttle: { per: app, concurrent: 1, wait: 1s } }
"""

SCENARIOS = {
    "capture": RULES,
    "decisions": RULES,
    "flood": "",
    "hostile": HOSTILE_RULES,
    "layout": RULES,
    "life": RULES,
    "mode": RULES,
    "patterns": PATTERNS_RULES,
    "playground": RULES,
    "queue": "",
    "throttle": THROTTLING_RULES,
    "token": RULES,
    "watch": STOPPING_RULES,
}


@pytest.fixture(scope="module")
def browser():
    """The environment variables with the paths of a browser and its automation packages."""
    script = servers.REPOSITORY / "scripts/chromium.sh"
    found = subprocess.run([script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if found.returncode == NO_CHROMIUM:
        pytest.skip(f"the console is not tested in a browser: {found.stderr.strip()}")
    assert found.returncode == 0, found.stderr
    modules = [servers.script_output(name) for name in ("browser-tools.sh", "node-driver.sh")]
    return {"CHROMIUM": found.stdout.strip(), "NODE_PATH": ":".join(modules)}


@pytest.fixture
def admin(mongod, tmp_path):
    """Starts a docward with an admin address."""
    started = []

    def start(rules, *arguments):
        arguments = ("--admin", "127.0.0.1:0", *arguments)
        executable = servers.docward_executable()
        started.append(servers.Docward(executable, mongod.uri, rules, arguments, listeners=2))
        return started[-1]

    yield start
    for docward in started:
        docward.close()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_console(scenario, browser, admin, tmp_path):
    token = tmp_path / "token"
    token.write_text(TOKEN)
    arguments = ["--admin-token-file", token] if scenario in ("capture", "mode", "token", "watch") else []
    arguments += ["--pool-size", "2", "--pool-max-wait", "20s"] if scenario == "queue" else []
    docward = admin(SCENARIOS[scenario], *arguments)
    settings = {
        "uri": docward.uri,
        "admin": docward.addresses[1],
        "rules": str(docward.folder / "rules.yaml"),
        "pid": docward.pid,
        "token": TOKEN,
    }
    run_scenario(scenario, settings, browser, docward)


def run_scenario(scenario, settings, browser, docward):
    done = subprocess.run(
        ["node", servers.REPOSITORY / "tests/console/run.mjs", scenario, json.dumps(settings)],
        env={**os.environ, **browser},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, "\n".join([done.stdout, *docward.log[-20:]])
    assert not [line for line in docward.log if "panicked" in line]


def test_the_summary_of_a_deployment(browser, tmp_path):
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "40", "-subj", "/CN=localhost"]
    subprocess.run([*new, "-keyout", key, "-out", certificate], check=True, stderr=subprocess.DEVNULL)
    dates = ["openssl", "x509", "-in", certificate, "-noout", "-enddate", "-dateopt", "iso_8601"]
    expiry = subprocess.run(dates, check=True, stdout=subprocess.PIPE, text=True).stdout.split("=")[1][:10]
    with contextlib.ExitStack() as stack:
        members = stack.enter_context(contextlib.closing(servers.ReplicaSet()))
        arguments = ["--tls-certificate", certificate, "--tls-key", key, "--admin", "127.0.0.1:0"]
        executable = servers.docward_executable()
        docward = servers.Docward(executable, members.uri, COPYING_RULES, arguments, listeners=4)
        stack.callback(docward.close)
        primary = members.primary()
        settings = {
            "admin": docward.addresses[-1],
            "primary": primary,
            "secondary": next(member.address for member in members.members if member.address != primary),
            "expiry": expiry,
        }
        run_scenario("deployment", settings, browser, docward)


def test_the_report_of_a_replay(browser, mongod, docward_factory, tmp_path):
    capture, report = tmp_path / "traffic.bson", tmp_path / "report.html"
    executable = servers.docward_executable()
    recorder = servers.Docward(executable, mongod.uri, arguments=[capture], subcommand="record")
    with contextlib.closing(recorder), MongoClient(recorder.uri) as client:
        for n in range(50):
            client.replayed.orders.replace_one({"_id": n}, {f"field_{m}": n for m in range(30)}, upsert=True)
        client.close()
        assert recorder.terminate() == 0
    # A target has a long name. The data of the other differ; the examples of this are long.
    again = f"{mongod.uri}&appName=the-{'very-' * 20}long-name"
    with contextlib.closing(servers.Mongod()) as other:
        second = docward_factory(RULES.replace("shop.", "replayed."), upstream=other.uri)
        targets = ["--to", again, "--compare", second.uri, "--allow-same-deployment"]
        assert subprocess.run([executable, "replay", capture, *targets, "--report", report]).returncode == 2
    run_scenario("report", {"report": str(report)}, browser, recorder)


def test_every_scenario_is_run():
    files = {path.stem for path in (servers.REPOSITORY / "tests/console").glob("*.mjs")}
    assert files == SCENARIOS.keys() | {"deployment", "harness", "report", "run", "screenshots"}
