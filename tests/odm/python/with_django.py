"""Django's save(), by django-mongodb-backend."""

import django
from django.conf import settings

import scenario


def connect(uri, database):
    settings.configure(
        DATABASES={"default": {"ENGINE": "django_mongodb_backend", "HOST": uri, "NAME": database}},
        DATABASE_ROUTERS=["django_mongodb_backend.routers.MongoRouter"],
        USE_TZ=True,
    )
    django.setup()
    from django.db import models
    from django_mongodb_backend.fields import ObjectIdAutoField

    class Fields(models.Model):
        name = models.CharField(max_length=100)
        qty = models.IntegerField()
        note = models.CharField(max_length=100, null=True)

        class Meta:
            abstract = True
            app_label = "shop"

    class Plain(Fields):
        id = models.CharField(max_length=100, primary_key=True, db_column="_id")

        class Meta:
            app_label = "shop"
            db_table = "django_plain"

    class PlainGenerated(Fields):
        id = ObjectIdAutoField(primary_key=True, db_column="_id")

        class Meta:
            app_label = "shop"
            db_table = "django_plain"

    class Versioned(Fields):
        """With a version that Django sends unchanged; docward increments it."""

        id = models.CharField(max_length=100, primary_key=True, db_column="_id")
        version = models.IntegerField(default=1)

        class Meta:
            app_label = "shop"
            db_table = "django_versioned"

    class VersionedGenerated(Fields):
        id = ObjectIdAutoField(primary_key=True, db_column="_id")
        version = models.IntegerField(default=1)

        class Meta:
            app_label = "shop"
            db_table = "django_versioned"

    return [Model("plain", Plain, PlainGenerated), Model("versioned", Versioned, VersionedGenerated)]


def save_of_one_field(model, collection, key, made):
    entity = model.create(key, name="first", qty=1, note="n")
    entity.qty = 2
    entity.save(update_fields=["qty"])


def save_of_an_expression(model, collection, key, made):
    from django.db.models import F

    entity = model.create(key, name="first", qty=1, note="n")
    entity.qty = F("qty") + 1
    entity.save(update_fields=["qty"])


class Model:
    key = "pk"
    more = {each.__name__: each for each in (save_of_one_field, save_of_an_expression)}

    def __init__(self, name, document, generated):
        self.name, self.document, self.generated = name, document, generated
        self.collection = f"django_{name}"

    def new(self, key=None, **fields):
        return self.document(pk=key, **fields) if key else self.generated(**fields)

    def create(self, key=None, **fields):
        entity = self.new(key, **fields)
        entity.save(force_insert=True)
        return entity

    def read(self, key):
        return self.document.objects.get(pk=key)

    def save(self, entity):
        entity.save()

    def remove(self, entity):
        entity.delete()


scenario.run(connect)
