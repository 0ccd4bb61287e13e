"""The effect of ODMs' save() directly and through docward (`make odm`): without rules, and with those of docs/odm.md.

The programs are in tests/odm, one for each ODM; all run the same steps. Programs that cannot be installed are skipped, with their name.
"""

import datetime
import re
import subprocess
from dataclasses import dataclass
from typing import Optional

import pytest
from bson import json_util
from bson.binary import Binary
from bson.int64 import Int64
from pymongo import MongoClient

import servers
import scenarios
from pymongo_suite.suite import unrelated_rules

PROGRAMS = servers.REPOSITORY / "tests/odm"
PAGE = servers.REPOSITORY / "docs/odm.md"
LEAST_STEPS = 20
AFTER_RACE = 51  # `qty` after the increments of the race in tests/odm
PLAIN_KEY = re.compile(r"[$\w]+")
OTHERS = "another application's"


def python(name):
    interpreter = installed("python-env.sh", "tests/odm/python/requirements.txt")
    return [interpreter, PROGRAMS / f"python/with_{name}.py"], {}


def node(name):
    return ["node", PROGRAMS / f"node/with_{name}.js"], {"NODE_PATH": installed("odm-node.sh")}


def java(name):
    # A compilation error does not skip the test.
    return ["java", "-cp", installed("java-scenario.sh", "tests/odm/java", skipping=(77,)), f"With{name}"], {}


def installed(script, *arguments, skipping=(1, 77)):
    done = subprocess.run([servers.REPOSITORY / "scripts" / script, *arguments], capture_output=True, text=True)
    if done.returncode in skipping:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# By the prefix of the models' collections: the heading on the page, the language and the name of the program.
ODMS = {
    "spring": ("Spring Data MongoDB", java, "SpringData"),
    "mongoose": ("Mongoose", node, "mongoose"),
    "mongoengine": ("MongoEngine", python, "mongoengine"),
    "beanie": ("Beanie", python, "beanie"),
    "django": ("Django", python, "django"),
    "typeorm": ("TypeORM", node, "typeorm"),
    "mikro_orm": ("MikroORM", node, "mikro_orm"),
}


class Odm:
    def __init__(self, name):
        self.name = name
        self.title, language, program = ODMS[name]
        self.command, self.environment = language(program)

    def run(self, uri, database, *also):
        """The results of its steps, by "model step"."""
        return scenarios.run([*self.command, uri, database, *also], **self.environment)


@pytest.fixture(scope="module", params=ODMS)
def odm(request):
    return Odm(request.param)


@dataclass
class Expected:
    """The results of a model's saves with the page's rule, as far as they differ from the direct ones."""

    # The error of a save that would erase another application's write; None: the save does not touch it.
    conflict: Optional[str]
    # The error of a save after a delete.
    after_delete: Optional[str] = None
    # The error of a delete after another application's write.
    delete: Optional[str] = None
    # The error of the second save of an entity that is not reloaded in between.
    twice: Optional[str] = None
    # The errors of the model's own steps.
    others: tuple = ()
    # The save erases another application's $set, because that does not change the version.
    erases: bool = False
    # Fields that the save omits stay, whether its class lacks them or the value is null.
    merges: bool = False
    # A save after a delete that has no error inserts the document again.
    inserts_after_delete: bool = True


EXPECTED = {
    "spring_versioned": Expected(*["OptimisticLockingFailureException"] * 3),
    "spring_plain": Expected(None, erases=True, merges=True),
    "spring_counted": Expected("DataIntegrityViolationException", inserts_after_delete=False, twice="DataIntegrityViolationException"),
    "mongoose_plain": Expected(None, "DocumentNotFoundError"),
    "mongoose_optimistic": Expected("VersionError", "VersionError"),
    "mongoose_timestamps": Expected(None, "DocumentNotFoundError"),
    "mongoengine_versioned": Expected(None, others=(("save_of_a_new_object_over_a_stored_one", "OperationError"),)),
    "beanie_state": Expected(None, "AttributeError"),
    "beanie_revision": Expected("RevisionIdWasChanged", erases=True),
    "beanie_versioned": Expected("OperationFailure"),
    "beanie_versioned_replaced": Expected("WriteError", "DocumentNotFound", twice="WriteError"),
    "django_versioned": Expected("DatabaseError", twice="DatabaseError"),
    "typeorm_versioned": Expected("MongoServerError", twice="MongoServerError"),
    "mikro_orm_versioned": Expected("OptimisticLockError", "OptimisticLockError"),
}


def section(title):
    """The page's section on an ODM."""
    return PAGE.read_text().split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def rules():
    """The page's rules, each for the collection of its model: `spring-versioned` is for `spring_versioned`."""
    named = []
    for rule in re.findall(r"```yaml\n(- name: .*?)```", PAGE.read_text(), re.DOTALL):
        collection = re.match(r"- name: (\S+)", rule)[1].replace("-", "_")
        assert collection in EXPECTED, collection
        named.append(re.sub(r"namespace: \S+", f'namespace: "*.{collection}"', rule))
    assert len(named) == len(EXPECTED), named
    return "version: 1\nrules:\n" + "".join(named)


def test_no_result_differs_without_a_rule(odm, topology):
    scenarios.compare(odm.run, topology.direct, topology.through(unrelated_rules()), LEAST_STEPS)


def test_no_update_is_lost_with_the_rule(odm, topology):
    through = topology.through(rules())
    seen = odm.run(through.uri(), f"ruled_{odm.name}_{topology.name}", "race")
    directly = odm.run(topology.direct.uri(), f"unruled_{odm.name}_{topology.name}")
    models = [model for model in EXPECTED if model.startswith(f"{odm.name}_")]
    assert models
    wrong = [line for model in models for line in differences(odm.name, model, seen, directly)]
    assert not wrong, "\n".join(wrong)
    through.assert_sound()


def differences(odm, model, seen, directly):
    """The unexpected results, one line per step."""
    expected, name = EXPECTED[model], model.removeprefix(f"{odm}_")
    by_others = {"qty": 1 if expected.conflict else 2, "note": OTHERS}
    special = {
        "save_after_delete": (expected.after_delete, {"qty": 2} if expected.inserts_after_delete and not expected.after_delete else None),
        "save_twice": (expected.twice, {"qty": 2 if expected.twice else 3, "note": "n"}),
        "delete_after_another_applications_set": (expected.delete, by_others if expected.delete else None),
        "save_older_than_another_applications_set": (None, {"qty": 9}),
        **{step: (error, {"qty": 1}) for step, error in expected.others},
    }
    if expected.conflict:
        special["stale_save"] = (expected.conflict, {"qty": 2, "note": "n"})
    if not expected.erases:
        special["save_after_another_applications_set"] = (expected.conflict, by_others)
        special["race"] = (None, {"qty": AFTER_RACE, "note": "last"})
    if expected.merges:
        special["save_with_a_field_it_does_not_know"] = (None, {"qty": 2, "added": 1})
        special["save_without_a_field"] = (None, {"qty": 1, "note": "n"})
    for step, line in seen.items():
        if step.split()[0] != name:
            continue
        plain = directly.get(step, line)  # the direct run has no race
        compared = {key: value for key, value in (plain["stored"] or {}).items() if key in ("name", "qty", "note", "tags", "seen", "added")}
        error, stored = special.get(step.split()[1], (plain["error"], compared if plain["stored"] else None))
        here = line["stored"] and {key: line["stored"].get(key) for key in stored or ()}
        if (line["error"], here) != (error, stored):
            yield f"{odm} {step}: {line['error']} ({line.get('text', '')[:400]}), stored {line['stored']}; expected {error}, {stored}"


def test_the_page_shows_the_sent_statements(odm, mongod):
    shown = re.findall(r"(?m)^db\.orders\..*$", "\n".join(re.findall(r"```js\n(.*?)```", section(odm.title), re.DOTALL)))
    assert shown
    sent = set(statements(odm, mongod))
    missing = [line for line in shown if line not in sent]
    assert not missing, "\n".join(["Not sent:", *missing, "Sent:", *sorted(sent)])


def statements(odm, mongod):
    """All updates of documents with _id 7 from the ODM and the other application, in shell syntax."""
    with MongoClient(mongod.uri) as client:
        database = client[f"sent_by_{odm.name}"]
        database.create_collection("system.profile", capped=True, size=64 << 20)  # the default is one megabyte
        database.command("profile", 2)
        seen = odm.run(mongod.uri, database.name)
        database.command("profile", 0)
        keys = {line["stored"]["_id"] for line in seen.values() if line["stored"]} | {step.split()[1] for step in seen}
        written = database["system.profile"].find({"$or": [{"op": "update"}, {"command.findAndModify": {"$exists": True}}]})
        return [Shell(keys).statement(each["command"]) for each in written]


class Shell:
    """Writes a statement in shell syntax; values that differ from run to run are made equal."""

    def __init__(self, keys):
        self.keys = keys
        self.uuids = {}

    def statement(self, command):
        found = "findAndModify" in command
        query, update = (command["query"], command["update"]) if found else (command["q"], command["u"])
        operators = isinstance(update, list) or next(iter(update), "").startswith("$")
        many = "Many" if command.get("multi") else "One"
        method = ("findOneAnd" if found else "") + ("update" if operators else "replace") + ("" if found else many)
        method = re.sub("And(.)", lambda letter: "And" + letter[1].upper(), method)
        options = {key: True for key in ("upsert",) if command.get(key)}
        if command.get("new"):
            options["returnDocument"] = "after"
        arguments = [self.value(each) for each in (query, update, *([options] if options else []))]
        return f"db.orders.{method}({', '.join(arguments)})"

    def value(self, value, field=None):
        if isinstance(value, dict):
            return "{" + ", ".join(f"{self.key(key)}: {self.value(each, key)}" for key, each in value.items()) + "}"
        if isinstance(value, list):
            return f"[{', '.join(map(self.value, value))}]"
        if field == "_class":
            return '"shop.Order"'
        if field == "_id" and value in self.keys:
            return "7"
        if isinstance(value, Int64):
            return f'Long("{value}")'
        if isinstance(value, Binary):
            return self.uuids.setdefault(value, 'UUID("%s-…")' % (8 * "abc"[len(self.uuids)]))
        if isinstance(value, datetime.datetime):
            return 'ISODate("…")'
        return json_util.dumps(value)

    @staticmethod
    def key(key):
        return key if PLAIN_KEY.fullmatch(key) else json_util.dumps(key)
