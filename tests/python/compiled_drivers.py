"""MongoDB's drivers for Go and Java behave the same with docward as with mongod: a scenario of each (`make drivers`).

The scenarios are tests/go and tests/java. They run on a replica set and on a standalone, with logins, TLS, compression,
rules, stepdowns and hand-overs.
"""

import re
import shutil
import subprocess
import time
from contextlib import closing

import pytest
from bson import json_util
from pymongo import MongoClient

import servers
import scenarios
import test_error_codes
from pymongo_suite.suite import unrelated_rules
from topologies import Way

RULES = """
version: 1
rules:
  - { name: orders, namespace: "*.orders", why: Fields of others., replacement: { policy: reject } }
  - { name: devices, namespace: "*.devices", timestamps: { source: at, hide: true } }
  - { name: books, namespace: "*.books", bounds: { field: available, min: 0 } }
"""
LEAST_STEPS = 32
SKIPPED = 77  # exit status of a script without its toolchain
PASSWORD = "secret"


class Go:
    # The error types of single writes, bulk writes and commands, with the prefix of their texts.
    WRITE, BULK, COMMAND = "mongo.WriteException", "mongo.BulkWriteException", "mongo.CommandError"

    def __init__(self):
        self.program = built("go-program.sh")

    def command(self, mode, uri, database, authority=None):
        return [self.program, mode, uri + (f"&tlsCAFile={authority.certificate}" if authority else ""), database]


class Java:
    WRITE, BULK, COMMAND = (
        f"com.mongodb.Mongo{kind}Exception" for kind in ("Write", "BulkWrite", "Command")
    )

    def __init__(self):
        self.class_path = built("java-scenario.sh")

    def command(self, mode, uri, database, authority=None):
        trust = {"": authority.store, "Password": PASSWORD} if authority else {}
        properties = [f"-Djavax.net.ssl.trustStore{name}={value}" for name, value in trust.items()]
        return ["java", *properties, "-cp", self.class_path, "Scenario", mode, uri, database]


def built(script, *arguments):
    done = subprocess.run([servers.REPOSITORY / "scripts" / script, *arguments], capture_output=True, text=True)
    if done.returncode == SKIPPED:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module", params=[Go, Java], ids=["go", "java"])
def language(request):
    return request.param()


@pytest.fixture(scope="module")
def standalone():
    with closing(servers.Mongod(standalone=True)) as server:
        yield server


class Authority:
    """A self-signed certificate for 127.0.0.1, in all file formats that servers and drivers need."""

    def __init__(self, folder):
        self.certificate, self.key = folder / "authority.pem", folder / "key.pem"
        self.both, self.store = folder / "both.pem", folder / "trust.p12"
        execute(
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=docward test"),
            *("-addext", "basicConstraints=CA:FALSE", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", self.key, "-out", self.certificate),
        )
        self.both.write_text(self.key.read_text() + self.certificate.read_text())
        if shutil.which("keytool"):
            execute(
                *("keytool", "-importcert", "-noprompt", "-alias", "authority", "-storetype", "PKCS12"),
                *("-file", self.certificate, "-keystore", self.store, "-storepass", PASSWORD),
            )


def execute(*command):
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    if not shutil.which("openssl"):
        pytest.skip("openssl is needed to make a certificate, and there is none on the PATH")
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def protected(authority, tmp_path_factory):
    """A replica set with access control and TLS, and its only user."""
    key_file = tmp_path_factory.mktemp("protected") / "key"
    key_file.write_text("docward" * 10)
    key_file.chmod(0o600)
    tls = ("--tlsMode", "preferTLS", "--tlsCertificateKeyFile", authority.both, "--tlsCAFile", authority.certificate)
    arguments = (*tls, "--tlsAllowConnectionsWithoutCertificates", "--keyFile", key_file)
    with closing(servers.Mongod(arguments=arguments)) as server:
        with MongoClient(server.address, directConnection=True) as client:
            mechanisms = ["SCRAM-SHA-1", "SCRAM-SHA-256"]
            client.admin.command("createUser", "ada", pwd=PASSWORD, roles=["root"], mechanisms=mechanisms)
        yield server


def ways(server, docward, options="replicaSet=rs0"):
    return Way(server.addresses, [options]), Way(docward.addresses, [options], [docward])


def assert_same_scenario(language, direct, through, *options, authority=None):
    def scenario(uri, database):
        return scenarios.run(language.command("steps", uri, database, authority))

    user = f"ada:{PASSWORD}@" if authority else ""
    scenarios.compare(scenario, direct, through, LEAST_STEPS, *options, user=user)


def test_a_replica_set(language, topology):
    assert_same_scenario(language, topology.direct, topology.through(unrelated_rules()))


def test_a_standalone(language, standalone, proxy_factory):
    # `copies` and `tree` need a replica set.
    docward = proxy_factory(RULES.replace("*.", "elsewhere."), upstream=standalone.uri)
    assert_same_scenario(language, *ways(standalone, docward, "retryWrites=true"))


@pytest.mark.parametrize("compressor", ["zstd", "zlib", "snappy"])
def test_compression(language, compressor, mongod, proxy_factory):
    def compressed():
        with MongoClient(mongod.uri) as client:
            network = client.admin.command("serverStatus")["network"]["compression"][compressor]
        return network["compressor"]["bytesIn"], network["decompressor"]["bytesOut"]

    docward = proxy_factory(unrelated_rules())
    before = compressed()
    assert_same_scenario(language, *ways(mongod, docward), f"compressors={compressor}")
    # The server's compressed bytes exceed those of one of the two scenarios.
    sent, received = (after - past for past, after in zip(before, compressed()))
    assert sent > 80_000_000 and received > 60_000_000, (sent, received)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-1", "SCRAM-SHA-256"])
def test_a_login_by_tls(language, mechanism, protected, authority, docward_factory):
    options = ("authSource=admin", f"authMechanism={mechanism}", "tls=true")
    docward = docward_factory(
        RULES.replace("*.", "elsewhere."),
        *("--tls-certificate", authority.certificate, "--tls-key", authority.key),
        upstream=f"{protected.uri}&tls=true&tlsCAFile={authority.certificate}",
    )
    assert_same_scenario(language, *ways(protected, docward), *options, authority=authority)


def test_rejections_and_rewriting(language, topology):
    seen = scenarios.run(language.command("rules", topology.through(RULES).uri(), "under_rules"))
    outcomes = {name: step["outcome"]["result"] for name, step in seen.items()}

    rejection, refusal = outcomes["rejected"], outcomes["rejected_by_the_server"]
    for kind, expected in (
        ("single", language.WRITE),
        ("found", language.COMMAND),
        ("ordered", language.BULK),
        ("unordered", language.BULK),
        ("transaction", language.WRITE),
    ):
        by_docward, by_the_server = error_of(rejection[kind]), error_of(refusal[kind])
        assert by_docward["type"] == by_the_server["type"] == expected, kind
        assert list(by_docward) == list(by_the_server), kind
        for key in ("labels", "timeout", "duplicate", "code", "codes", "name", "result"):
            assert by_docward.get(key) == by_the_server.get(key), (kind, key)
        for each, other in zip(by_docward.get("writes", []), by_the_server.get("writes", []), strict=True):
            assert (each["code"], each.get("index")) == (121, other.get("index")), kind
            assert each["message"].startswith("docward rule 'orders' rejects this replacement"), kind
            assert "Why: Fields of others." in each["message"]
            assert each["details"]["docward"]["rule"] == "orders"
        assert "docward rule 'orders'" in by_docward["text"], kind
    for key in ("attempts", "lost"):
        assert rejection[key] == refusal[key], key
    assert (rejection["attempts"], rejection["lost"]) == (1, 0)

    assert outcomes["rejected_without_acknowledgement"][-1] == [{"_id": 1}]
    (device,) = outcomes["timestamps"][-1]
    assert device["level"] == 3
    assert outcomes["bounds"][-1] == [{"_id": 1, "available": 0}]
    first, second = outcomes["bounds"][:2]
    assert first != second


def test_the_text_of_every_code_is_shown(language, mongod):
    codes = test_error_codes.sent_codes()
    uri = f"mongodb://{mongod.address}/?replicaSet=rs0&appName=error-codes"
    command = language.command("codes", uri, "error_codes")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        with MongoClient(mongod.address, directConnection=True) as client:
            shown = []
            for code in codes:
                test_error_codes.failing(client, code)
                program.stdin.write(f"{code}\n")
                program.stdin.flush()
                for line in (json_util.loads(program.stdout.readline()) for _ in range(4)):
                    shown.append([code, line["operation"], line["text"], line["seconds"]])
            client.admin.command("configureFailPoint", "failCommand", mode="off")
        program.stdin.close()
    assert not test_error_codes.hidden(shown)


def error_of(outcome):
    """The error of an outcome; a bulk write's outcome may also have its counts."""
    return outcome[-1] if isinstance(outcome, list) else outcome


class Load:
    """A scenario that works until `stop` is called."""

    def __init__(self, command):
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.child.stdout.readline()
        assert line and json_util.loads(line)["working"], "the scenario did not begin"

    def stop(self):
        try:
            out, _ = self.child.communicate(timeout=servers.TIMEOUT)
        finally:
            self.child.kill()
        return json_util.loads(out)


def members(docward):
    # Fewer connections than the load has workers, so that they wait for connections.
    return f"mongodb://{','.join(docward.addresses)}/?replicaSet=rs0&w=majority&maxPoolSize=5"


def test_no_operation_fails_during_hand_overs(language, replica_set, tmp_path):
    def start():
        arguments = ("--hand-over", str(tmp_path / "hand-over.sock"))
        return servers.Docward(servers.docward_executable(), replica_set.uri, RULES, arguments, listeners=3)

    docward = start()
    try:
        load = Load(language.command("load", members(docward), f"handed_{type(language).__name__}"))
        for _ in range(4):
            time.sleep(1)
            after = start()
            assert docward.child.wait(servers.TIMEOUT) == 0
            docward.close()
            docward = after
        time.sleep(1)
        done = load.stop()
        assert not [line for line in docward.log if "panicked" in line]
    finally:
        docward.close()
    assert done["failures"] == {}
    assert done["stored"] == [done["done"]["insert"], 2 * done["done"]["transaction"]]


def test_no_write_is_lost_during_stepdowns(language, replica_set):
    docward = servers.Docward(servers.docward_executable(), replica_set.uri, RULES, listeners=3)
    with closing(docward):
        load = Load(language.command("load", members(docward), f"elected_{type(language).__name__}"))
        for _ in range(3):
            time.sleep(1)
            replica_set.step_down()
        time.sleep(1)
        done = load.stop()
        assert not [line for line in docward.log if "panicked" in line]
    # Without docward too, the drivers' single retry often goes to the member that has just stepped down.
    assert all(re.search("not primary|interrupted|stepped down", each) for each in done["texts"]), done
    inserted, committed = done["stored"]
    for kind, stored in (("insert", inserted), ("transaction", committed / 2)):
        assert done["done"][kind] <= stored <= done["done"][kind] + done["failures"].get(kind, 0)
    assert committed % 2 == 0
