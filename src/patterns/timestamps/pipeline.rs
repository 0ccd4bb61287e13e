//! An update's operators as one `$set` stage whose every field decides for itself whether the write is stale.
//!
//! The stage gives what the operators would have given: a path is never created through a scalar or an array
//! (the server fails the statement, as it does for the operator), `$unset` creates no parents, values are
//! literals whatever they look like. Uses `$setField`, hence mongod 5.0 or later for dotted paths. All
//! expressions of one stage see the document as it was before, so timestamps and fields change together.

use super::super::literal;
use super::settings::{Per, Time, TimestampType};
use super::writes::{Change, Child, Put, Tree, Write};
use crate::document::{
    CowDocument, Document, Filling, Kind, NUMBER_HOLE, Slot, TEXT_HOLE, Template, VALUE_HOLE, Value, Writer,
};

/// Bytes a written field or a timestamp usually takes in the stage: a first guess at its length.
const FIELD_LENGTH: usize = 256;

/// The expressions that differ from write to write by a register's path, the write's time and a value only: written
/// when the rule is loaded.
#[derive(Debug, Clone)]
pub(super) struct Forms {
    per: Per,
    timestamp_type: TimestampType,
    /// What a timestamp's path begins with: the field of the timestamps, and a dot where each register has its own.
    store: String,
    /// True when the timestamp is newer than the write. A timestamp of another type (the rule's `type` was changed) counts as
    /// missing.
    stale: Template,
    /// The timestamp after the write.
    timestamp: Template,
    /// A register after the write.
    register: Template,
    /// The same for a value that could be taken for an expression.
    literal: Template,
}

impl Forms {
    pub(super) fn new(store: &str, per: Per, timestamp_type: TimestampType) -> Self {
        let time = timestamp_type.of_bits(NUMBER_HOLE);
        let time = time.as_value();
        let (store, timestamp) = match per {
            Per::Document => (store.to_owned(), ["$", store].concat()),
            Per::Field => ([store, "."].concat(), ["$", store, ".", TEXT_HOLE].concat()),
        };
        let stale = |slot: Slot<'_>| {
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
pub(super) struct Stage<'r> {
    forms: &'r Forms,
}

/// A register that is written, and when.
#[derive(Debug, Clone, Copy)]
pub(super) struct FieldTimestamp<'u> {
    pub(super) path: &'u str,
    pub(super) time: Time,
}

impl<'r> Stage<'r> {
    pub(super) fn new(forms: &'r Forms) -> Self {
        Self { forms }
    }

    /// `{$set: {...}}` for the writes of `tree` and the timestamps of the registers `protected`; those of `pinned` for a document
    /// that an upsert inserts without an `_id`.
    pub(super) fn update<'a>(
        self,
        tree: Tree<'_>,
        protected: &[FieldTimestamp<'_>],
        pinned: &[FieldTimestamp<'_>],
    ) -> CowDocument<'a> {
        let whole = protected.first().map(|timestamp| FieldTimestamp { path: "", time: timestamp.time });
        let timestamped = match self.forms.per {
            Per::Field => protected,
            Per::Document => whole.as_slice(),
        };
        CowDocument::build_of(FIELD_LENGTH * (tree.len() + timestamped.len()), |w| {
            w.nested("$set", |w| {
                tree.children().for_each(|(name, child)| self.child(w.slot(name), name, child));
                for FieldTimestamp { path, time } in timestamped {
                    self.forms
                        .timestamp
                        .write(w.prefixed_slot(&self.forms.store, path), filling(path, *time, VALUE_HOLE));
                }
                for FieldTimestamp { path, time } in pinned {
                    self.pinned_timestamp(w.prefixed_slot(&self.forms.store, path), path, *time);
                }
            });
        })
    }

    /// The timestamp of a field that only an inserted document gets. There the field is, and the `_id` not yet.
    fn pinned_timestamp(self, slot: Slot<'_>, path: &str, time: Time) {
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

    /// `{$replaceWith: ...}`: `stored`, or the document as it is when the write is stale.
    pub(super) fn replacement<'a>(self, stored: Document<'_>, time: Time) -> CowDocument<'a> {
        CowDocument::build(|w| {
            cond(
                w.slot("$replaceWith"),
                |slot| self.stale(slot, "", time),
                |slot| slot.string("$$ROOT"),
                |slot| literal::write(slot, stored),
            );
        })
    }

    /// Whether the timestamp of the register at `path` is newer.
    fn stale(self, slot: Slot<'_>, path: &str, time: Time) {
        self.forms.stale.write(slot, filling(path, time, VALUE_HOLE));
    }

    /// The value of the field at `path` after the write.
    fn child(self, slot: Slot<'_>, path: &str, child: Child<'_>) {
        match child {
            Child::Leaf(write) => self.leaf(slot, path, write.change),
            Child::Inner(tree) => self.inner(slot, path, tree),
        }
    }

    fn leaf(self, slot: Slot<'_>, path: &str, change: Change<'_>) {
        match change {
            Change::Put(put) => match value_after(put) {
                (value, true) => slot.nested(|w| w.value("$literal", value)),
                (value, false) => slot.value(value),
            },
            Change::ProtectedPut(put, time) => {
                let (value, is_literal) = value_after(put);
                let form = if is_literal { &self.forms.literal } else { &self.forms.register };
                form.write(slot, filling(path, time, value));
            }
            Change::Add(amount) => write_add(slot, path, amount),
        }
    }

    /// A document some of whose fields are written.
    fn inner(self, slot: Slot<'_>, path: &str, tree: Tree<'_>) {
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

    /// `$setField` around `$setField`: the stored document with each child set, or removed where it is missing.
    fn set_fields(self, slot: Slot<'_>, path: &str, children: &[(&str, Child<'_>)]) {
        let Some(((name, child), before)) = children.split_last() else { return field(slot, path) };
        slot.nested(|w| {
            w.nested("$setField", |w| {
                w.string("field", name);
                self.set_fields(w.slot("input"), path, before);
                self.child(w.slot("value"), &format!("{path}.{name}"), *child);
            });
        });
    }

    /// The document that did not exist. With a timestamp for each field it is made even if all that would create it
    /// is stale: what has overtaken this write was an `$unset`, and in source-time order that one leaves the
    /// document around its field. With one timestamp for all, a stale write leaves nothing.
    fn created(self, slot: Slot<'_>, path: &str, tree: Tree<'_>) {
        let creating = tree.creating();
        let times = || creating.clone().map(Write::time);
        match (self.forms.per, times().next()) {
            (_, None) => field(slot, path),
            (Per::Document, Some(Some(time))) if times().all(|time| time.is_some()) => cond(
                slot,
                |slot| self.stale(slot, "", time),
                |slot| field(slot, path),
                |slot| self.created_fields(slot, path, tree),
            ),
            _ => self.created_fields(slot, path, tree),
        }
    }

    fn created_fields(self, slot: Slot<'_>, path: &str, tree: Tree<'_>) {
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

    /// The path runs through a scalar or an array: nothing happens if nothing would be created, else the
    /// statement fails as it does for the operator (PathNotViable).
    fn blocked(self, slot: Slot<'_>, path: &str, tree: Tree<'_>) {
        let creating = tree.creating();
        let fail =
            |slot: Slot<'_>| failure(slot, &format!("cannot write inside field '{path}', which is of type "), path);
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

fn filling<'f>(path: &'f str, time: Time, value: Value<'f>) -> Filling<'f> {
    Filling { text: path, number: time, value }
}

/// What a field is given, and whether that must be marked as a literal, because it could be an expression.
fn value_after(put: Put<'_>) -> (Value<'_>, bool) {
    const REMOVE: Value<'static> = Value { kind: Kind::String, bytes: b"\x09\0\0\0$$REMOVE\0" };
    const NOW: Value<'static> = Value { kind: Kind::String, bytes: b"\x06\0\0\0$$NOW\0" };
    match put {
        Put::Value(value) => (value, matches!(value.kind, Kind::String | Kind::Document | Kind::Array)),
        Put::Nothing => (REMOVE, false),
        Put::Now => (NOW, false),
    }
}

/// What `$inc` does: a missing field becomes the amount, a field that is no number fails the statement, and
/// whole numbers that overflow 64 bits fail it too.
fn write_add(slot: Slot<'_>, path: &str, amount: Value<'_>) {
    let sum = |w: &mut Writer<'_>| {
        w.array("$add", |a| {
            field(a.slot(), path);
            a.value(amount);
        });
    };
    slot.nested(|w| {
        w.nested("$switch", |w| {
            w.array("branches", |a| {
                a.nested(|w| {
                    w.nested("case", |w| has_type(w, |slot| field(slot, path), "missing"));
                    w.value("then", amount);
                });
                a.nested(|w| {
                    w.nested("case", |w| {
                        w.array("$and", |a| {
                            a.nested(|w| field(w.slot("$isNumber"), path));
                            a.nested(|w| {
                                w.array("$or", |a| {
                                    for inexact in ["double", "decimal"] {
                                        a.nested(|w| has_type(w, |slot| field(slot, path), inexact));
                                    }
                                    a.nested(|w| {
                                        w.array("$ne", |a| {
                                            a.nested(|w| w.nested("$type", sum));
                                            let kept = if amount.kind == Kind::Double { "missing" } else { "double" };
                                            a.string(kept);
                                        });
                                    });
                                });
                            });
                        });
                    });
                    w.nested("then", sum);
                });
            });
            failure(
                w.slot("default"),
                &format!("cannot increment field '{path}', which is too large or of type "),
                path,
            );
        });
    });
}

fn has_type(w: &mut Writer<'_>, of: impl FnOnce(Slot<'_>), type_name: &str) {
    w.array("$eq", |a| {
        a.nested(|w| of(w.slot("$type")));
        a.string(type_name);
    });
}

/// There is no expression that fails on purpose; `$toInt` of a text does, and the server quotes the text. It
/// depends on the document, lest the optimizer evaluate it for everybody.
fn failure(slot: Slot<'_>, text: &str, path: &str) {
    slot.nested(|w| {
        w.nested("$toInt", |w| {
            w.array("$concat", |a| {
                a.string(format!("docward: {text}"));
                a.nested(|w| field(w.slot("$type"), path));
            });
        });
    });
}

fn cond(slot: Slot<'_>, test: impl FnOnce(Slot<'_>), then: impl FnOnce(Slot<'_>), otherwise: impl FnOnce(Slot<'_>)) {
    slot.nested(|w| {
        w.array("$cond", |a| {
            test(a.slot());
            then(a.slot());
            otherwise(a.slot());
        });
    });
}

fn field(slot: Slot<'_>, path: &str) {
    slot.prefixed("$", path);
}
