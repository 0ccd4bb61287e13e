"""The patterns in mongosh: it runs the commands, and the tests check its printed results.

One mongosh runs all SCRIPTS one after the other, because it takes seconds to start.
"""

import json
import os
import re
import subprocess

import pytest

import servers

RULES = """
version: 1
rules:
  - name: orders-no-blind-replace
    why: Two services save whole orders; the second erases the first one's fields.
    namespace: "*.orders"
    replacement: { policy: reject }
  - name: customers-merge
    namespace: "*.customers"
    replacement: { policy: merge }
  - name: carts-optimistic
    namespace: "*.carts"
    replacement: { policy: check_version, version: version }
  - name: invoice-numbers
    namespace: "*.invoices"
    sequence: { field: no, counter: no, start: 100 }
  - name: devices-last-writer-wins
    namespace: "*.devices"
    timestamps: { source: published_at, hide: true }
"""

MESSAGE = (
    "docward rule 'orders-no-blind-replace' rejects this replacement on shell.orders: "
    "it replaces the whole document and would erase fields that others wrote. "
    "Why: Two services save whole orders; the second erases the first one's fields. "
    "What to do: Use updateOne with $set for the fields you change."
)
END = "--- end of answer ---"


# Prints the value of one script of SCRIPTS as Extended JSON, or its error. Loops rather than
# callbacks: mongosh rewrites functions that wait for the server.
PROGRAM = """
try {
    const answer = (() => { SCRIPT })();
    print(EJSON.stringify(answer === undefined ? null : answer));
} catch (e) {
    const errors = [];
    for (const each of [].concat(e.writeErrors || [])) errors.push([each.index, each.code]);
    print(EJSON.stringify({error: e.message, code: e.code, name: e.name, details: e.errInfo || null, errors}));
}
print("END");
"""


def run_in_mongosh(uri, scripts):
    """The printed results of all scripts, in order."""
    mongosh = os.environ.get("MONGOSH") or servers.script_output("mongosh.sh")
    program = "".join(PROGRAM.replace("SCRIPT", each).replace("END", END) for each in scripts)
    done = subprocess.run(
        [mongosh, "--quiet", "--norc", uri, "--eval", program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=servers.TIMEOUT,
    )
    answers = done.stdout.split(END)[:-1]
    assert len(answers) == len(scripts), done.stdout
    return [json.loads(answer) for answer in answers]


@pytest.fixture(scope="module")
def docward(docward_factory):
    return docward_factory(RULES)


@pytest.fixture(scope="module")
def answers(docward):
    """The output of mongosh for each of SCRIPTS, from one run."""
    printed = run_in_mongosh(f"{docward.uri}shell", SCRIPTS.values())
    return dict(zip(SCRIPTS, printed))


SCRIPTS = {
    "start": "return db.dropDatabase().ok",
    # replacement: policy: reject
    "insert order": 'return db.orders.insertOne({_id: 1, status: "new", total: 5})',
    "replaceOne": 'return db.orders.replaceOne({_id: 1}, {status: "paid"})',
    "updateOne": 'return db.orders.updateOne({_id: 1}, {$set: {status: "paid"}})',
    "order": "return db.orders.findOne()",
    "findOneAndReplace": 'return db.orders.findOneAndReplace({_id: 1}, {status: "paid"})',
    "bulkWrite": """return db.orders.bulkWrite([
        {insertOne: {document: {_id: 2}}},
        {replaceOne: {filter: {_id: 1}, replacement: {a: 1}}},
        {updateOne: {filter: {_id: 2}, update: {$set: {a: 1}}}}], {ordered: false})""",
    "orders": "return db.orders.find().sort({_id: 1}).toArray()",
    # merge and check_version
    "insert customer": "return db.customers.insertOne({_id: 1, name: 'Ada', points: 7}).acknowledged",
    "merge": "return db.customers.replaceOne({_id: 1}, {name: 'Ada', city: 'London'})",
    "customer": "return db.customers.findOne()",
    "insert cart": "return db.carts.insertOne({_id: 1, items: [], version: 3}).acknowledged",
    "protected": """const cart = db.carts.findOne(); cart.items.push('book');
        return db.carts.replaceOne({_id: 1}, cart)""",
    "lost race": "return db.carts.replaceOne({_id: 1}, {items: [], version: 3})",
    "cart": "return db.carts.findOneAndReplace({_id: 1}, {items: ['pen'], version: 4}, {returnDocument: 'after'})",
    # sequence
    "insertOne": "return db.invoices.insertOne({_id: 'a'}).insertedId",
    "insertMany": "return Object.keys(db.invoices.insertMany([{_id: 'b'}, {_id: 'c', no: 7}, {_id: 'd'}]).insertedIds).length",
    "invoices": "return db.invoices.find().sort({_id: 1}).toArray()",
    "counter": "return db.counters.findOne()",
    # timestamps
    "on time": """return db.devices.updateOne({_id: 1},
        {$set: {t: 20, published_at: ISODate('2026-01-02')}}, {upsert: true})""",
    "late": "return db.devices.updateOne({_id: 1}, {$set: {t: 10, published_at: ISODate('2026-01-01')}}, {upsert: true})",
    "device": "return db.devices.findOne()",
    "timestamps": "return db.devices.findOne({}, {last_modified: 1})",
    "without time": "return db.devices.updateOne({_id: 1}, {$set: {t: 30}})",
    # a transaction
    "transaction": """const session = db.getMongo().startSession();
        const orders = session.getDatabase('shell').orders;
        session.startTransaction();
        orders.updateOne({_id: 1}, {$set: {status: 'lost'}});
        let error;
        try { orders.replaceOne({_id: 1}, {status: 'lost'}) } catch (e) { error = e.code }
        try { session.commitTransaction(); return 'committed' } catch (e) { return [error, e.codeName] }""",
    "good transaction": """const session = db.getMongo().startSession();
        session.startTransaction();
        session.getDatabase('shell').orders.updateOne({_id: 1}, {$set: {status: 'sent'}});
        session.getDatabase('shell').invoices.insertOne({_id: 'e'});
        session.commitTransaction();
        return [db.orders.findOne({_id: 1}).status, db.invoices.findOne({_id: 'e'}).no]""",
    "out": "return db.customers.aggregate([{$out: 'orders'}]).toArray()",
    "unprotected": "return db.anything.replaceOne({_id: 1}, {a: 1}, {upsert: true}).upsertedCount",
}


def test_a_rejected_replacement_shows_its_rule_and_a_hint(answers):
    rejected = answers["replaceOne"]
    assert rejected["error"] == MESSAGE
    assert rejected["code"] == 121
    assert rejected["name"] == "MongoServerError"
    assert rejected["details"]["docward"]["rule"] == "orders-no-blind-replace"
    assert answers["findOneAndReplace"]["error"] == MESSAGE
    assert answers["findOneAndReplace"]["code"] == 121


def test_forwarded_statements_print_their_usual_results(answers):
    assert answers["insert order"] == {"acknowledged": True, "insertedId": 1}
    assert answers["updateOne"] == update_result(matched=1, modified=1)
    assert answers["order"] == {"_id": 1, "status": "paid", "total": 5}
    assert answers["unprotected"] == 1


def test_a_bulk_write_reports_the_rejected_operation_by_its_index(answers):
    assert answers["bulkWrite"]["errors"] == [[1, 121]]
    assert answers["orders"] == [{"_id": 1, "status": "paid", "total": 5}, {"_id": 2, "a": 1}]


def test_a_merged_replacement_keeps_fields_unknown_to_the_writer(answers):
    assert answers["merge"] == update_result(matched=1, modified=1)
    assert answers["customer"] == {"_id": 1, "name": "Ada", "points": 7, "city": "London"}


def test_checked_replacements_increment_versions_and_report_lost_races(answers):
    assert answers["protected"] == update_result(matched=1, modified=1)
    assert answers["lost race"]["code"] == 112
    assert re.search("carts-optimistic.*conflict", answers["lost race"]["error"])
    assert answers["cart"] == {"_id": 1, "items": ["pen"], "version": 5}


def test_inserted_documents_get_their_numbers(answers):
    assert answers["insertOne"] == "a"
    assert answers["insertMany"] == 3
    numbers = {each["_id"]: each["no"] for each in answers["invoices"]}
    assert numbers == {"a": 100, "b": 101, "c": 7, "d": 102}
    assert answers["counter"]["_id"] == "no"


def test_a_late_event_changes_nothing_and_is_not_an_error(answers):
    assert answers["on time"]["upsertedCount"] == 1
    assert answers["late"] == update_result(matched=1, modified=0)
    assert answers["device"] == {"_id": 1, "t": 20, "published_at": {"$date": "2026-01-02T00:00:00Z"}}
    assert set(answers["timestamps"]["last_modified"]) == {"t", "published_at"}
    assert answers["without time"]["code"] == 121


def test_a_rejection_ends_a_transaction_and_the_next_one_works(answers):
    assert answers["transaction"] == [121, "NoSuchTransaction"]
    assert answers["good transaction"] == ["sent", 103]


def test_an_aggregation_cannot_write_to_a_protected_collection(answers):
    assert answers["out"]["code"] == 121
    assert "orders-no-blind-replace" in answers["out"]["error"]


def update_result(matched, modified):
    return {
        "acknowledged": True,
        "insertedId": None,
        "matchedCount": matched,
        "modifiedCount": modified,
        "upsertedCount": 0,
    }
