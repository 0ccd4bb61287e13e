//! Writes an update's operators as one `$set` stage in which each field checks whether the write is stale.
//!
//! The stage has the same result as the operators. It never creates a path through a scalar or an array: the server
//! fails the statement, as it does for the operator. `$unset` creates no parents. All values are literals. Dotted paths
//! need `$setField`, so mongod 5.0 or later. All expressions of a stage see the document before the update, so
//! timestamps and fields change together.
//!
//! A stage sets a path through an array in each of its elements, so in none of `[]`. A document around timestamps is
//! therefore written by an expression, which replaces any other value there with a document.

use super::super::literal;
use super::increment::write_add;
use super::settings::{TimestampBytes, TimestampScope, TimestampType};
use super::template::{Filling, NUMBER_HOLE, TEXT_HOLE, Template, VALUE_HOLE};
use super::writes::{Child, NewValue, PathChange, PathWrite, PathWrites, WriteTree};
use crate::command::expressions::{cond, failure, field, has_type};
use crate::document::{CowDocument, Document, Kind, Value, ValueSlot, Writer};

/// The usual length in bytes of a written field or a timestamp in the stage, as a capacity.
const FIELD_LENGTH: usize = 256;

/// The expressions that depend only on a register's path, the write's time and a value. They are written when the rule
/// is loaded.
#[derive(Debug, Clone)]
pub(super) struct RegisterExpressions {
    per: TimestampScope,
    timestamp_type: TimestampType,
    /// The start of a timestamp's path: the field of the timestamps, with a dot if each register has its own.
    store: String,
    /// True if the timestamp is newer than the write. A timestamp of another type is ignored: the rule's `type` was
    /// changed.
    stale: Template,
    /// The timestamp after the write.
    timestamp: Template,
    /// A register after the write.
    register: Template,
    /// A register after the write of a value that could be an expression.
    literal: Template,
}

impl RegisterExpressions {
    pub(super) fn new(store: &str, per: TimestampScope, timestamp_type: TimestampType) -> Self {
        let time = timestamp_type.of_bits(NUMBER_HOLE);
        let time = time.as_value();
        let (store, timestamp) = match per {
            TimestampScope::Document => (store.to_owned(), ["$", store].concat()),
            TimestampScope::Field => ([store, "."].concat(), ["$", store, ".", TEXT_HOLE].concat()),
        };
        let stale = |slot: ValueSlot<'_>| {
            slot.nested(|w| {
                w.array("$and", |a| {
                    a.nested(|w| has_type(w, |slot| slot.string(&timestamp), timestamp_type.name()));
                    a.nested(|w| {
                        w.array("$gt", |a| {
                            a.string(&timestamp);
                            a.value(time);
                        });
                    });
                });
            });
        };
        Self {
            per,
            timestamp_type,
            stale: Template::new(stale),
            timestamp: Template::new(|slot| cond(slot, stale, |slot| slot.string(&timestamp), |slot| slot.value(time))),
            register: Template::new(|slot| {
                cond(slot, stale, |slot| field(slot, TEXT_HOLE), |slot| slot.value(VALUE_HOLE))
            }),
            literal: Template::new(|slot| {
                cond(
                    slot,
                    stale,
                    |slot| field(slot, TEXT_HOLE),
                    |slot| slot.nested(|w| w.value("$literal", VALUE_HOLE)),
                );
            }),
            store,
        }
    }
}

/// Writes the stages of one rule.
#[derive(Debug, Clone, Copy)]
pub(super) struct StageWriter<'r> {
    forms: &'r RegisterExpressions,
}

/// A written register and its time.
#[derive(Debug, Clone, Copy)]
pub(super) struct FieldTimestamp<'u> {
    pub(super) path: &'u str,
    pub(super) time: TimestampBytes,
}

impl FieldTimestamp<'_> {
    fn is_top_level(&self) -> bool {
        !self.path.contains('.')
    }
}

impl<'r> StageWriter<'r> {
    pub(super) fn new(forms: &'r RegisterExpressions) -> Self {
        Self { forms }
    }

    /// Returns `{$set: {...}}` for the writes of `tree` and the timestamps of `protected`. It sets the timestamps of
    /// `given` only in a document that an upsert inserts without an `_id`.
    pub(super) fn update<'a>(
        self,
        tree: WriteTree<'_>,
        protected: &[FieldTimestamp<'_>],
        given: &[FieldTimestamp<'_>],
    ) -> CowDocument<'a> {
        let whole = protected.first().map(|timestamp| FieldTimestamp { path: "", time: timestamp.time });
        let timestamped = match self.forms.per {
            TimestampScope::Field => protected,
            TimestampScope::Document => whole.as_slice(),
        };
        CowDocument::build_of(FIELD_LENGTH * (tree.len() + timestamped.len()), |w| {
            w.nested("$set", |w| {
                tree.children().for_each(|(name, child)| self.child(w.slot(name), name, child));
                for FieldTimestamp { path, time } in timestamped.iter().filter(|one| one.is_top_level()) {
                    self.forms
                        .timestamp
                        .write(w.prefixed_slot(&self.forms.store, path), filling(path, *time, VALUE_HOLE));
                }
                for FieldTimestamp { path, time } in given.iter().filter(|one| one.is_top_level()) {
                    self.given_timestamp(w.prefixed_slot(&self.forms.store, path), path, *time);
                }
                self.nested_timestamps(w, timestamped, given);
            });
        })
    }

    /// Writes the timestamps that are in documents inside the store.
    fn nested_timestamps(self, w: &mut Writer<'_>, protected: &[FieldTimestamp<'_>], given: &[FieldTimestamp<'_>]) {
        let nested = protected.iter().chain(given).filter(|one| !one.is_top_level());
        let writes = nested.map(|FieldTimestamp { path, time }| {
            let value = self.forms.timestamp_type.value(time);
            PathWrite { path, change: PathChange::ProtectedPut(NewValue::Value(value), *time) }
        });
        // Protected paths are distinct and do not contain each other.
        let Ok(writes) = PathWrites::new(writes.collect()) else { return };
        for (name, child) in writes.tree().children() {
            self.timestamps_at(w.prefixed_slot(&self.forms.store, name), name, child, given);
        }
    }

    /// Writes a timestamp, or a document of timestamps, after the update.
    fn timestamps_at(self, slot: ValueSlot<'_>, path: &str, child: Child<'_>, given: &[FieldTimestamp<'_>]) {
        let tree = match child {
            Child::Inner(tree) => tree,
            Child::Leaf(write) => {
                let Some(time) = write.time() else { return };
                match given.iter().any(|one| one.path == path) {
                    true => self.given_timestamp(slot, path, time),
                    false => self.forms.timestamp.write(slot, filling(path, time, VALUE_HOLE)),
                }
                return;
            }
        };
        let stored = [&self.forms.store, path].concat();
        slot.nested(|w| {
            w.array("$mergeObjects", |a| {
                cond(
                    a.slot(),
                    |slot| slot.nested(|w| has_type(w, |slot| field(slot, &stored), "object")),
                    |slot| field(slot, &stored),
                    |slot| slot.nested(|_| {}),
                );
                a.nested(|w| {
                    for (name, child) in tree.children() {
                        self.timestamps_at(w.slot(name), &format!("{path}.{name}"), child, given);
                    }
                });
            });
        });
    }

    /// Writes the timestamp of a field that only an inserted document gets: at that point it has the field but no
    /// `_id`.
    fn given_timestamp(self, slot: ValueSlot<'_>, path: &str, time: TimestampBytes) {
        cond(
            slot,
            |slot| {
                slot.nested(|w| {
                    w.array("$and", |a| {
                        a.nested(|w| has_type(w, |slot| field(slot, "_id"), "missing"));
                        a.nested(|w| {
                            w.array("$not", |a| a.nested(|w| has_type(w, |slot| field(slot, path), "missing")));
                        });
                    });
                });
            },
            |slot| slot.value(self.forms.timestamp_type.value(&time)),
            |slot| slot.prefixed("$", &[&self.forms.store, path].concat()),
        );
    }

    /// Returns `{$replaceWith: ...}`: `stored`, or the unchanged document if the write is stale.
    pub(super) fn replacement<'a>(self, stored: Document<'_>, time: TimestampBytes) -> CowDocument<'a> {
        CowDocument::build(|w| {
            cond(
                w.slot("$replaceWith"),
                |slot| self.stale(slot, "", time),
                |slot| slot.string("$$ROOT"),
                |slot| literal::write(slot, stored),
            );
        })
    }

    /// Writes the test whether the timestamp of the register at `path` is newer.
    fn stale(self, slot: ValueSlot<'_>, path: &str, time: TimestampBytes) {
        self.forms.stale.write(slot, filling(path, time, VALUE_HOLE));
    }

    /// Writes the value of the field at `path` after the update.
    fn child(self, slot: ValueSlot<'_>, path: &str, child: Child<'_>) {
        match child {
            Child::Leaf(write) => self.leaf(slot, path, write.change),
            Child::Inner(tree) => self.inner(slot, path, tree),
        }
    }

    fn leaf(self, slot: ValueSlot<'_>, path: &str, change: PathChange<'_>) {
        match change {
            PathChange::Put(put) => match value_after(put) {
                (value, true) => slot.nested(|w| w.value("$literal", value)),
                (value, false) => slot.value(value),
            },
            PathChange::ProtectedPut(put, time) => {
                let (value, is_literal) = value_after(put);
                let form = if is_literal { &self.forms.literal } else { &self.forms.register };
                form.write(slot, filling(path, time, value));
            }
            PathChange::Add(amount) => write_add(slot, path, amount),
        }
    }

    /// Writes a document in which some fields are written.
    fn inner(self, slot: ValueSlot<'_>, path: &str, tree: WriteTree<'_>) {
        slot.nested(|w| {
            w.nested("$switch", |w| {
                w.array("branches", |a| {
                    a.nested(|w| {
                        w.nested("case", |w| has_type(w, |slot| field(slot, path), "object"));
                        let children: Vec<_> = tree.children().collect();
                        self.set_fields(w.slot("then"), path, &children);
                    });
                    a.nested(|w| {
                        w.nested("case", |w| has_type(w, |slot| field(slot, path), "missing"));
                        self.created(w.slot("then"), path, tree);
                    });
                });
                self.blocked(w.slot("default"), path, tree);
            });
        });
    }

    /// Writes nested `$setField` expressions: the stored document with each child set, or removed if it is missing.
    fn set_fields(self, slot: ValueSlot<'_>, path: &str, children: &[(&str, Child<'_>)]) {
        let Some(((name, child), before)) = children.split_last() else { return field(slot, path) };
        slot.nested(|w| {
            w.nested("$setField", |w| {
                w.string("field", name);
                self.set_fields(w.slot("input"), path, before);
                self.child(w.slot("value"), &format!("{path}.{name}"), *child);
            });
        });
    }

    /// Writes a document that did not exist. With a timestamp per field it is created even if all its writes are stale:
    /// a newer `$unset` of the field leaves the document around it, so the result is the same as in source-time order.
    /// With one timestamp for all, a stale write creates nothing.
    fn created(self, slot: ValueSlot<'_>, path: &str, tree: WriteTree<'_>) {
        let creating = tree.creating();
        let times = || creating.clone().map(PathWrite::time);
        match (self.forms.per, times().next()) {
            (_, None) => field(slot, path),
            (TimestampScope::Document, Some(Some(time))) if times().all(|time| time.is_some()) => cond(
                slot,
                |slot| self.stale(slot, "", time),
                |slot| field(slot, path),
                |slot| self.created_fields(slot, path, tree),
            ),
            _ => self.created_fields(slot, path, tree),
        }
    }

    fn created_fields(self, slot: ValueSlot<'_>, path: &str, tree: WriteTree<'_>) {
        slot.nested(|w| {
            for (name, child) in tree.children() {
                let below = format!("{path}.{name}");
                match child {
                    Child::Inner(tree) => self.created(w.slot(name), &below, tree),
                    Child::Leaf(_) => self.child(w.slot(name), &below, child),
                }
            }
        });
    }

    /// Writes the value if the path leads through a scalar or an array: it stays if nothing would be created; otherwise
    /// the statement fails as it does for the operator (PathNotViable).
    fn blocked(self, slot: ValueSlot<'_>, path: &str, tree: WriteTree<'_>) {
        let creating = tree.creating();
        let fail = |slot: ValueSlot<'_>| {
            failure(slot, &format!("cannot write inside field '{path}', which is of type "), path)
        };
        if creating.clone().any(|write| write.time().is_none()) {
            return fail(slot);
        }
        let protected = creating.filter_map(|write| Some((write.path, write.time()?)));
        cond(
            slot,
            |slot| {
                slot.nested(|w| {
                    w.array("$and", |a| protected.for_each(|(path, time)| self.stale(a.slot(), path, time)));
                });
            },
            |slot| field(slot, path),
            fail,
        );
    }
}

fn filling<'f>(path: &'f str, time: TimestampBytes, value: Value<'f>) -> Filling<'f> {
    Filling { text: path, number: time, value }
}

/// Returns the new value of a field, and whether it needs `$literal` because it could be an expression.
fn value_after(put: NewValue<'_>) -> (Value<'_>, bool) {
    const REMOVE: Value<'static> = Value { kind: Kind::String, bytes: b"\x09\0\0\0$$REMOVE\0" };
    const NOW: Value<'static> = Value { kind: Kind::String, bytes: b"\x06\0\0\0$$NOW\0" };
    match put {
        NewValue::Value(value) => (value, matches!(value.kind, Kind::String | Kind::Document | Kind::Array)),
        NewValue::Nothing => (REMOVE, false),
        NewValue::Now => (NOW, false),
    }
}
