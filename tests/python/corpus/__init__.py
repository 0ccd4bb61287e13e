"""The corpus of the transparency test: the operations of applications, one function each.

A function takes a handle of a fresh database and returns its results. Every run of it must
be the same; it has no other restrictions. Add one to the file of its kind.
"""

from dataclasses import dataclass, field
from typing import Callable

OPERATIONS = []


@dataclass
class Operation:
    name: str
    run: Callable
    only_shape: bool = False  # compare field names and types, not numbers
    unclear: bool = False  # its target cannot be determined, so docward with rules must reject it
    options: dict = field(default_factory=dict)  # of the MongoClient


def operation(run=None, *, only_shape=False, unclear=False, **options):
    """Adds a function to the corpus."""
    if run is None:
        return lambda run: operation(run, only_shape=only_shape, unclear=unclear, **options)
    assert all(other.name != run.__name__ for other in OPERATIONS), run.__name__
    OPERATIONS.append(Operation(run.__name__, run, only_shape, unclear, options))
    return run


def people(db, count=5):
    """A small collection to work on."""
    db.people.insert_many(
        [
            {"_id": i, "name": f"name{i}", "age": 20 + i, "tags": ["a", f"t{i}"]}
            for i in range(count)
        ]
    )
    return db.people


def contents(collection):
    return list(collection.find().sort("_id"))


from . import (  # noqa: E402,F401  (they use the names above)
    administration,
    batches,
    failures,
    reading,
    streams,
    transactions,
    writing,
)
