"""Every fenced block of the book is tried here, or LANGUAGES and ELSEWHERE have what tries it.

Commands in `sh` blocks run in a folder with the files that they name, with addresses of this machine instead of those of
the book. Statements in `js` blocks run in mongosh. The tests in tests/source/documentation/ take the blocks marked
`yaml` and `console`.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import threading
import time

import pytest
from pymongo import MongoClient

import servers

PAGES = [servers.REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES += sorted((servers.REPOSITORY / "docs").rglob("*.md"))

# What tries the blocks of a language.
LANGUAGES = {
    "sh": "this file",
    "js": "this file",
    "yaml": "tests/source/documentation/rules.rs loads it as a rule file, a test file or a configuration",
    "console": "tests/source/documentation.rs runs the commands and compares their output",
    "text": "output, shown after the command that prints it",
    "json": "output, or settings of another program",
    "ini": "settings of systemd, which `make try-systemd` installs",
    "java": "what an application declares; `make odm` runs the ODMs",
    "py": "what an application declares; `make odm` runs the ODMs",
    "ts": "what an application declares; `make odm` runs the ODMs",
    "yml": "settings of another program",
}

# How commands begin that are not run here, and why.
ELSEWHERE = {
    "make ": "tests/source/documentation/contributing.rs: the targets exist",
    "cargo ": "builds docward: .ci/run does",
    "UPDATE_EXPECT=1 cargo ": "rewrites files of the repository",
    "DOCWARD_": "an environment variable before a target of make",
    "sudo ": "`make try-dist` and `make try-systemd` install the package with these",
    "docker ": "needs a container engine; `make dist` builds the same image",
    "kubectl ": "needs a cluster; tests/operations/deployment/kubernetes.rs reads the manifests",
    "systemctl ": "needs systemd; `make try-systemd` runs the package under one",
    "mongosh ": "tests/python/test_mongosh.py runs mongosh; tests/protocol/tls.rs connects with such certificates",
    "mongodump ": "a tool of MongoDB that cannot be had here",
    "mongorestore ": "a tool of MongoDB that cannot be had here",
    "pkill ": "would reach the docwards of other tests; tests/operations/reload.rs sends the signals",
    "npx mongosh ": "tests/python/test_mongosh.py runs mongosh through docward",
    "docward completions bash > ": "writes to a folder of the system; tests/command_line/arguments.rs runs it",
    "docward man --out /usr": "writes to a folder of the system; `make deb` runs it",
}

# Rules of pages that commands of others name.
RULES = """
version: 1
rules:
  - { name: mails-with-lease, namespace: work.mails, queue: { lease: 5m } }
  - { name: orders-versions, namespace: shop.orders, replacement: { policy: check_version, version: version } }
  - { name: orders-keep-fields, namespace: shop.carts, replacement: { policy: merge } }
"""

# Commands that fail here, each with what they print then.
ANSWERS = {
    "docward validators --config docward.yaml --remove": "changed ",
    "docward validators ": "there is no such collection: create it",
    "docward history shop.orders 'ObjectId": "states are kept for 7776000s only",
}

# Pages whose statements are samples of what is sent, not commands to enter.
SAMPLES = {"odm.md", "statements.md"}


def blocks():
    """(place, language, text) of each fenced block with a language."""
    for page in PAGES:
        text = page.read_text()
        for block in re.finditer(r"(?ms)^( *)```(\w+)\n(.*?)^ *```", text):
            line = text[: block.start()].count("\n") + 1
            content = "\n".join(line.removeprefix(block[1]) for line in block[3].splitlines())
            yield f"{page.relative_to(servers.REPOSITORY)}:{line}", block[2], content


def commands():
    """(place, command) of each command in a `sh` block, without its comment."""
    for place, language, text in blocks():
        for command in text.replace("\\\n", " ").splitlines() if language == "sh" else ():
            command = re.sub(r"(^|\s+)# .*", "", command).strip()
            if command:
                yield place, command


def elsewhere(command):
    return next((start for start in ELSEWHERE if command.startswith(start)), None)


def test_every_language_is_tried():
    used = {language for _, language, _ in blocks()}
    assert used <= LANGUAGES.keys(), used - LANGUAGES.keys()


def test_every_exception_is_needed():
    used = {elsewhere(command) for _, command in commands()}
    assert used >= ELSEWHERE.keys(), ELSEWHERE.keys() - used


class Desk:
    """A folder with the files that commands of the book name, a replica set, two other servers, and a running docward."""

    def __init__(self, folder):
        self.folder = folder
        self.executable = servers.docward_executable()
        self.mongod = servers.Mongod()
        self.copies = [servers.Mongod(standalone=True) for _ in range(2)]
        self.admin = f"127.0.0.1:{servers.free_port()}"
        shutil.copytree(servers.REPOSITORY / "rules", folder / "rules")
        shutil.copy(servers.REPOSITORY / "docs/examples/mongod.log", folder)
        (folder / "rules/replacement.yaml").write_text(RULES)
        (folder / "rules.yaml").write_text(RULES)
        (folder / "token").write_text("0123456789abcdef0123456789abcdef\n")
        (folder / "token").chmod(0o600)
        settings = f"listen: 127.0.0.1:0\nupstream: {self.mongod.uri}\nrules: [rules/]\n"
        (folder / "serving.yaml").write_text(settings)
        settings += f"admin: {self.admin}\nadmin_token_file: token\n"
        (folder / "docward.yaml").write_text(settings)
        with MongoClient(self.mongod.uri) as client:
            client.admin.command("createUser", "dba", pwd="secret", roles=["root"])
            client.shop.orders.insert_one({"_id": 17, "status": "new", "version": 1})
            client.shop.mails.insert_one({"kind": "mail", "locked": False})
        arguments = ["--config", folder / "docward.yaml"]
        self.docward = servers.Docward(self.executable, self.mongod.uri, arguments=arguments, listeners=2)
        self.ended = threading.Event()
        self.worker = threading.Thread(target=self.work)
        self.worker.start()
        # The history needs its worker.
        with MongoClient(self.mongod.uri) as client:
            deadline = time.monotonic() + servers.TIMEOUT
            while not client.shop.orders_history.find_one({"_id.of": 17}):
                assert time.monotonic() < deadline, "no history"
                time.sleep(0.1)

    def work(self):
        """An application."""
        with MongoClient(self.docward.uri) as client:
            while not self.ended.wait(0.05):
                client.shop.orders.update_one({"_id": 17}, {"$inc": {"total": 1, "version": 1}})

    def here(self, command):
        """The command with what there is on this machine."""
        replica_set = f"{self.mongod.address}/?replicaSet=rs0"
        serves = command.startswith("docward serve")
        for shown, real in [
            (r"--for 10m", "--for 1s"),
            (r"docward\.yaml", "serving.yaml" if serves else "docward.yaml"),
            (r"127\.0\.0\.1:9216", "127.0.0.1:0" if serves else self.admin),
            (r"(127\.0\.0\.1|db1?\.example\.com)(:27017)?/\?replicaSet=rs0", replica_set),
            (r"127\.0\.0\.1:27017", self.mongod.address),
            (r"(staging|a|copy1)\.example\.com(:\d+)?", self.copies[0].address),
            (r"docward(-test)?\.example\.com(:\d+)?", self.copies[1].address),
            (r"mode --all \w+", r"\g<0> --yes"),
            (r"127\.0\.0\.1:27018", "127.0.0.1:0"),
            (r"/etc/docward/(tls/)?|/run/docward/", ""),
            (r" \.\.\.$", ""),
        ]:
            command = re.sub(shown, real, command)
        return command + (" --listen 127.0.0.1:0" if serves and not re.search("--(listen|config)", command) else "")

    def start(self, command):
        environment = os.environ | {"PATH": f"{os.path.dirname(self.executable)}:{os.environ['PATH']}"}
        return subprocess.Popen(
            ["bash", "-c", f"exec {command}" if command.startswith("docward ") else command],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=(self.folder / "errors").open("w"),
            text=True,
        )

    def fault(self, command):
        """What a command printed, if it failed."""
        child = self.start(self.here(command))
        alarm = threading.Timer(servers.TIMEOUT, child.kill)
        alarm.start()
        try:
            if re.match("docward (serve|record --listen)", command):
                next((line for line in child.stdout if line.startswith("listening on ")), None)
                child.terminate()
            printed = child.communicate()[0]
        finally:
            alarm.cancel()
        printed += (self.folder / "errors").read_text()
        answer = next((ANSWERS[start] for start in ANSWERS if command.startswith(start)), None)
        right = answer in printed if answer else child.returncode == 0
        return None if right else f"exit {child.returncode}: {printed}"

    def close(self):
        self.ended.set()
        self.worker.join()
        for process in [self.docward, *self.copies, self.mongod]:
            process.close()


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    desk = Desk(tmp_path_factory.mktemp("book"))
    yield desk
    desk.close()


def test_every_command_works(desk):
    tried = [(place, command) for place, command in commands() if not elsewhere(command)]
    faults = [f"{place}: {command}: {fault}" for place, command in tried if (fault := desk.fault(command))]
    assert not faults, "\n".join(faults)
    assert len(tried) >= 40


def test_every_statement_works(desk):
    """One mongosh runs all blocks, because it takes seconds to start."""
    tried = [block for block in blocks() if block[1] == "js" and pathlib.Path(block[0].split(":")[0]).name not in SAMPLES]
    script = []
    for at, (place, _, text) in enumerate(tried):
        file = desk.folder / f"block{at}.js"
        file.write_text(text.replace("passwordPrompt()", '"secret"'))
        script.append(f"try {{ load({json.dumps(str(file))}) }} catch (error) {{ print({json.dumps(place)}, error.message) }}\n")
    (desk.folder / "all.js").write_text("".join(script) + 'print("end")\n')
    command = [servers.script_output("mongosh.sh"), "--quiet", desk.mongod.uri.replace("/?", "/shop?"), desk.folder / "all.js"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=servers.TIMEOUT, check=False)
    assert (done.stdout, done.stderr) == ("end\n", "")
    assert len(tried) >= 15
