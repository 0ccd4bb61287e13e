"""Beanie's save()."""

import asyncio
from typing import Optional, Union

import beanie
from beanie import PydanticObjectId
from pydantic import Field
from pymongo import AsyncMongoClient

import scenario

loop = asyncio.new_event_loop()


class Fields(beanie.Document):
    id: Optional[Union[PydanticObjectId, str]] = Field(default=None, alias="_id")
    name: str
    qty: int
    note: Optional[str] = None


class Plain(Fields):
    class Settings:
        name = "beanie_plain"


class State(Fields):
    class Settings:
        name = "beanie_state"
        use_state_management = True


class Revision(Fields):
    class Settings:
        name = "beanie_revision"
        use_revision = True


class RevisionReplaced(Fields):
    class Settings:
        name = "beanie_revision_replaced"
        use_revision = True


class RevisionState(Fields):
    class Settings:
        name = "beanie_revision_state"
        use_revision = True
        use_state_management = True


class Versioned(Fields):
    """With a version that Beanie sends unchanged; docward increments it."""

    version: int = 1

    class Settings:
        name = "beanie_versioned"


class VersionedReplaced(Fields):
    version: int = 1

    class Settings:
        name = "beanie_versioned_replaced"


SAVE = {
    Plain: "save",
    State: "save_changes",
    Revision: "save",
    RevisionReplaced: "replace",
    RevisionState: "save_changes",
    Versioned: "save",
    VersionedReplaced: "replace",
}


class Model:
    key = "id"
    more = {}

    def __init__(self, document, method):
        self.document, self.method = document, method
        self.collection = document.Settings.name
        self.name = self.collection.removeprefix("beanie_")

    def new(self, key=None, **fields):
        return self.document(id=key, **fields) if key else self.document(**fields)

    def create(self, key=None, **fields):
        return loop.run_until_complete(self.new(key, **fields).insert())

    def read(self, key):
        return loop.run_until_complete(self.document.get(key))

    def save(self, entity):
        loop.run_until_complete(getattr(entity, self.method)())

    def remove(self, entity):
        loop.run_until_complete(entity.delete())


def connect(uri, database):
    loop.run_until_complete(beanie.init_beanie(AsyncMongoClient(uri)[database], document_models=list(SAVE)))
    return [Model(document, method) for document, method in SAVE.items()]


scenario.run(connect)
