"""MongoEngine's save()."""

import mongoengine

import scenario


class Plain(mongoengine.Document):
    id = mongoengine.DynamicField(primary_key=True)
    name = mongoengine.StringField()
    qty = mongoengine.IntField()
    note = mongoengine.StringField()
    meta = {"collection": "mongoengine_plain"}


class Generated(mongoengine.Document):
    name = mongoengine.StringField()
    qty = mongoengine.IntField()
    note = mongoengine.StringField()
    meta = {"collection": "mongoengine_plain"}


class Versioned(mongoengine.Document):
    """With a version that MongoEngine only stores; docward increments it."""

    id = mongoengine.DynamicField(primary_key=True)
    name = mongoengine.StringField()
    qty = mongoengine.IntField()
    note = mongoengine.StringField()
    version = mongoengine.IntField()
    meta = {"collection": "mongoengine_versioned"}


class GeneratedVersioned(mongoengine.Document):
    name = mongoengine.StringField()
    qty = mongoengine.IntField()
    note = mongoengine.StringField()
    version = mongoengine.IntField()
    meta = {"collection": "mongoengine_versioned"}


def save_with_a_condition(model, collection, key, made):
    entity = model.create(key, name="first", qty=1, note="n", version=3)
    collection.update_one({"_id": key}, {"$inc": {"version": 1}})
    entity.qty = 2
    entity.save(save_condition={"version": 3})


def save_of_a_new_object_over_a_stored_one(model, collection, key, made):
    model.create(key, name="first", qty=1, note="n")
    collection.update_one({"_id": key}, {"$set": {"note": "another application's"}})
    model.new(key, name="second", qty=2).save()


class Model:
    key = "id"

    def __init__(self, name, document, generated):
        self.name, self.document, self.generated = name, document, generated
        self.collection = f"mongoengine_{name}"
        self.more = {save_of_a_new_object_over_a_stored_one.__name__: save_of_a_new_object_over_a_stored_one}
        if name == "versioned":
            self.more[save_with_a_condition.__name__] = save_with_a_condition

    def new(self, key=None, **fields):
        return self.document(id=key, **fields) if key else self.generated(**fields)

    def create(self, key=None, **fields):
        return self.new(key, **fields).save()

    def read(self, key):
        return self.document.objects.get(id=key)

    def save(self, entity):
        entity.save()

    def remove(self, entity):
        entity.delete()


def connect(uri, database):
    mongoengine.connect(database, host=uri)
    return [Model("plain", Plain, Generated), Model("versioned", Versioned, GeneratedVersioned)]


scenario.run(connect)
