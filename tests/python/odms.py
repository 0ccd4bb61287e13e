"""What ODMs' save() does directly and through docward (`make odm`), with no rule, and with those of docs/odm.md.

The programs are in tests/odm, one for each ODM; all take the same steps. What cannot be installed is skipped, by name.
"""

import re
import subprocess
from dataclasses import dataclass

import pytest
from pymongo import MongoClient

import servers
import sessions
from pymongo_suite.suite import unrelated_rules

PROGRAMS = servers.REPOSITORY / "tests/odm"
PAGE = servers.REPOSITORY / "docs/odm.md"
LEAST_STEPS = 20
OTHERS = "another application's"


def python(name):
    interpreter = installed("python-env.sh", "tests/odm/python/requirements.txt")
    return [interpreter, PROGRAMS / f"python/with_{name}.py"], {}


def node(name):
    return ["node", PROGRAMS / f"node/with_{name}.js"], {"NODE_PATH": installed("odm-node.sh")}


def java(name):
    return ["java", "-cp", installed("java-session.sh", "tests/odm/java"), f"With{name}"], {}


def installed(script, *arguments):
    done = subprocess.run([servers.REPOSITORY / "scripts" / script, *arguments], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(done.stderr.strip())
    return done.stdout.strip()


ODMS = {
    "spring": (java, "SpringData"),
    "mongoose": (node, "mongoose"),
    "mongoengine": (python, "mongoengine"),
    "beanie": (python, "beanie"),
    "django": (python, "django"),
    "typeorm": (node, "typeorm"),
    "mikro_orm": (node, "mikro_orm"),
}


class Odm:
    def __init__(self, name):
        self.name = name
        language, program = ODMS[name]
        self.command, self.environment = language(program)

    def run(self, uri, database):
        return sessions.run([*self.command, uri, database], **self.environment)


@pytest.fixture(scope="module", params=ODMS)
def odm(request):
    return Odm(request.param)


@dataclass
class Expected:
    """What a model's saves give with the rule that the page has for it, where that differs from what they give directly."""

    # The error of a save that would erase what another application wrote; None: the save leaves it alone.
    conflict: str | None
    # The error of a save after a delete, and of a delete after another application's write.
    after_delete: str | None = None
    delete: str | None = None
    # An entity that was saved must be read again before it is saved again.
    twice: str | None = None


EXPECTED = {
    "spring_versioned": Expected("OptimisticLockingFailureException", "OptimisticLockingFailureException", "OptimisticLockingFailureException"),
    "spring_counted": Expected("DataIntegrityViolationException", twice="DataIntegrityViolationException"),
    "mongoose_plain": Expected(None, "DocumentNotFoundError"),
    "mongoose_optimistic": Expected("VersionError", "VersionError"),
    "mongoengine_versioned": Expected(None),
    "beanie_state": Expected(None, "AttributeError"),
    "beanie_revision_state": Expected(None, "RevisionIdWasChanged"),
    "beanie_versioned": Expected("OperationFailure"),
    "django_versioned": Expected("DatabaseError"),
    "typeorm_versioned": Expected("MongoServerError"),
    "mikro_orm_versioned": Expected("OptimisticLockError", "OptimisticLockError"),
}


def rules():
    """The rules of the page, by the collection of the model that each is for: `spring-versioned` is for `spring_versioned`."""
    named = {}
    for rule in re.findall(r"```yaml\n(- name: .*?)```", PAGE.read_text(), re.DOTALL):
        collection = re.match(r"- name: (\S+)", rule)[1].replace("-", "_")
        named[collection] = re.sub(r"namespace: \S+", f'namespace: "*.{collection}"', rule)
    return named


def test_nothing_differs_without_a_rule(odm, mongod, proxy_factory):
    through = proxy_factory(unrelated_rules())
    ways = ((f"{each.uri.split('?')[0]}?directConnection=true", [each.address]) for each in (mongod, through))
    sessions.compare(odm.run, *ways, LEAST_STEPS)
    assert not [line for line in through.log if "panicked" in line]


def test_no_update_is_lost_with_the_rule(odm, mongod, docward_factory):
    docward = docward_factory("version: 1\nrules:\n" + "".join(rules().values()))
    seen = odm.run(f"{docward.uri}?directConnection=true", f"ruled_{odm.name}")
    directly = odm.run(f"{mongod.uri.split('?')[0]}?directConnection=true", f"unruled_{odm.name}")
    models = [each for each in EXPECTED if each.startswith(odm.name)]
    assert models
    wrong = [line for model in models for line in differences(odm.name, model, EXPECTED[model], seen, directly)]
    assert not wrong, "\n".join(wrong)
    assert not [line for line in docward.log if "panicked" in line]


def differences(odm, model, expected, seen, directly):
    """What is not as expected, a line for each step."""
    name = model.removeprefix(f"{odm}_")
    conflict = {"qty": 1, "note": OTHERS} if expected.conflict else {"qty": 2, "note": OTHERS}
    special = {
        "save_after_another_applications_set": (expected.conflict, conflict),
        "stale_save": (expected.conflict, {"qty": 2, "note": "n" if expected.conflict else "second"}),
        "save_after_delete": (expected.after_delete, None),
        "delete_after_another_applications_set": (expected.delete, conflict if expected.delete else None),
        "save_twice": (expected.twice, {"qty": 2 if expected.twice else 3, "note": "n"}),
    }
    for step, line in seen.items():
        if step.split()[0] != name:
            continue
        plain = directly[step]
        error, stored = special.get(step.split()[1], (plain["error"], plain["stored"]))
        here = {key: (line["stored"] or {}).get(key) for key in stored or ()}
        same = {key: value for key, value in (stored or {}).items() if key in ("qty", "note", "name")}
        if line["error"] != error or any(here[key] != value for key, value in same.items()):
            yield f"{odm} {step}: {line['error']} ({line.get('text', '')[:300]}), stored {line['stored']}; expected {error}, {same}"
