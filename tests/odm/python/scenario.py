"""The common part of the ODM programs: the same steps for each model, with one line of Extended JSON per step.

A model is an object with `name`, `collection`, `create(**fields)`, `new(**fields)`, `read(key)`, `save(entity)` and `remove(entity)`,
and optional `more` steps.
The other application in the steps is the driver itself, on the same connection string.
"""

import contextlib
import sys
import threading

from bson import json_util
from pymongo import MongoClient


def run(connect):
    """`connect(uri, database)` returns the models.

    The arguments are the connection string, the database's name, and `race` for the steps whose output differs from run to run.
    """
    uri, database = sys.argv[1:3]
    steps = STEPS if "race" not in sys.argv else {**STEPS, race.__name__: race}
    with MongoClient(uri) as client:
        for model in connect(uri, database):
            collection = client[database][model.collection]
            for name, step in {**steps, **model.more}.items():
                client[database].steps.find_one({"_id": f"{model.name} {name}"})  # for the profiler
                outcome, key = {}, {}
                with failure(outcome):
                    step(model, collection, name, key)
                stored = collection.find_one({"_id": key.get("_id", name)})
                line = {"step": f"{model.name} {name}", **outcome, "stored": stored}
                print(json_util.dumps(line, json_options=json_util.RELAXED_JSON_OPTIONS), flush=True)


@contextlib.contextmanager
def failure(outcome):
    try:
        yield
        outcome["error"] = None
    except Exception as error:
        outcome["error"] = type(error).__name__
        outcome["text"] = str(error)


def first_save_with_generated_key(model, collection, key, made):
    entity = model.create(name="first", qty=1)
    made["_id"] = getattr(entity, model.key)


def first_save_with_own_key(model, collection, key, made):
    model.create(key, name="first", qty=1)


def save(model, collection, key, made):
    model.create(key, name="first", qty=1, note="n")
    entity = model.read(key)
    entity.qty = 2
    model.save(entity)


def save_twice(model, collection, key, made):
    entity = model.create(key, name="first", qty=1, note="n")
    for qty in (2, 3):
        entity.qty = qty
        model.save(entity)


def save_after_another_applications_set(model, collection, key, made):
    model.create(key, name="first", qty=1, note="n")
    entity = model.read(key)
    collection.update_one({"_id": key}, {"$set": {"note": "another application's"}})
    entity.qty = 2
    model.save(entity)


def stale_save(model, collection, key, made):
    model.create(key, name="first", qty=1, note="n")
    first, second = model.read(key), model.read(key)
    first.qty = 2
    model.save(first)
    second.note = "second"
    model.save(second)


def save_after_delete(model, collection, key, made):
    model.create(key, name="first", qty=1, note="n")
    entity = model.read(key)
    collection.delete_one({"_id": key})
    entity.qty = 2
    model.save(entity)


def save_of_what_was_never_there(model, collection, key, made):
    entity = model.new(key, name="first", qty=1)
    model.save(entity)


def save_without_a_field(model, collection, key, made):
    model.create(key, name="first", qty=1, note="n")
    entity = model.read(key)
    entity.note = None
    model.save(entity)


def save_with_a_field_it_does_not_know(model, collection, key, made):
    model.create(key, name="first", qty=1, note="n")
    collection.update_one({"_id": key}, {"$set": {"added": 1}})
    entity = model.read(key)
    entity.qty = 2
    model.save(entity)


def delete_after_another_applications_set(model, collection, key, made):
    model.create(key, name="first", qty=1, note="n")
    entity = model.read(key)
    collection.update_one({"_id": key}, {"$set": {"note": "another application's"}})
    model.remove(entity)


def race(model, collection, key, made):
    """Reads and saves, ignoring errors, until another application has finished its increments, and once more."""
    model.create(key, name="first", qty=1, note="n")

    def increments():
        for _ in range(INCREMENTS):
            collection.update_one({"_id": key}, {"$inc": {"qty": 1}})

    other = threading.Thread(target=increments)
    other.start()
    last = False
    while not last:
        last = not other.is_alive()
        with failure({}) if not last else contextlib.nullcontext():
            entity = model.read(key)
            entity.note = "last" if last else entity.note + "n"
            model.save(entity)


INCREMENTS = 50

STEPS = {
    each.__name__: each
    for each in (
        first_save_with_generated_key,
        first_save_with_own_key,
        save,
        save_twice,
        save_after_another_applications_set,
        stale_save,
        save_after_delete,
        save_of_what_was_never_there,
        save_without_a_field,
        save_with_a_field_it_does_not_know,
        delete_after_another_applications_set,
    )
}
