//! An update's operators as one `$set` stage whose every field decides for itself whether the write is stale.
//!
//! The stage gives what the operators would have given: a path is never created through a scalar or an array
//! (the server fails the statement, as it does for the operator), `$unset` creates no parents, values are
//! literals whatever they look like. Uses `$setField`, hence mongod 5.0 or later for dotted paths. All
//! expressions of one stage see the document as it was before, so stamps and fields change together.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::super::Rejection;
use crate::document::{CowDocument, Document, Kind, OwnedValue, Slot, Value, Writer};

/// What a write does to one path.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change<'v> {
    Set(Value<'v>),
    Unset,
    /// The server's clock.
    Now,
    Add(Value<'v>),
}

/// The writes of a statement by path; no path is written twice or inside another.
#[derive(Debug, Default)]
pub(super) struct Tree<'v> {
    children: BTreeMap<&'v str, Child<'v>>,
}

#[derive(Debug)]
enum Child<'v> {
    Leaf { change: Change<'v>, stamp: Option<FieldPath<'v>> },
    Inner(Tree<'v>),
}

/// A path in two parts, so that a stamp's needs no memory of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FieldPath<'p> {
    root: &'p str,
    below: Option<&'p str>,
}

impl<'p> FieldPath<'p> {
    pub(super) fn below(root: &'p str, below: &'p str) -> Self {
        Self { root, below: Some(below) }
    }

    /// As a field name of `$set`.
    fn name(self) -> Cow<'p, str> {
        self.below.map_or(Cow::Borrowed(self.root), |below| [self.root, ".", below].concat().into())
    }
}

impl<'p> From<&'p str> for FieldPath<'p> {
    fn from(path: &'p str) -> Self {
        Self { root: path, below: None }
    }
}

/// Bytes a written field or a stamp usually takes in the stage: a first guess at its length.
const STAGE_LENGTH: usize = 256;

/// What a stale write is measured by.
#[derive(Clone, Copy)]
struct Clock<'t> {
    time: Value<'t>,
    /// As `$type` names it; a stamp of another type counts as missing.
    type_name: &'t str,
    /// The one stamp that all guarded writes share, if there is one.
    document_stamp: Option<&'t str>,
}

impl<'v> Tree<'v> {
    /// Adds a write; `stamp` is the path of the stamp that guards it.
    ///
    /// # Errors
    /// Two writes to one path, which mongod refuses too (ConflictingUpdateOperators).
    pub(super) fn insert(
        &mut self,
        path: &'v str,
        change: Change<'v>,
        stamp: Option<FieldPath<'v>>,
    ) -> Result<(), Rejection> {
        if self.try_insert(path, change, stamp) {
            return Ok(());
        }
        Err(Rejection::new(
            format!("it writes '{path}' twice, or writes a field inside it too"),
            "Write each path once.",
        ))
    }

    fn try_insert(&mut self, path: &'v str, change: Change<'v>, stamp: Option<FieldPath<'v>>) -> bool {
        match path.split_once('.') {
            None if self.children.contains_key(path) => false,
            None => {
                self.children.insert(path, Child::Leaf { change, stamp });
                true
            }
            Some((name, below)) => match self.children.entry(name).or_insert_with(|| Child::Inner(Tree::default())) {
                Child::Inner(tree) => tree.try_insert(below, change, stamp),
                Child::Leaf { .. } => false,
            },
        }
    }

    /// Writes the values that are set as plain nested documents.
    pub(super) fn write_values(&self, w: &mut Writer<'_>) {
        for (name, child) in &self.children {
            match child {
                Child::Leaf { change: Change::Set(value), .. } => w.value(name, *value),
                Child::Leaf { .. } => {}
                Child::Inner(tree) => w.nested(name, |w| tree.write_values(w)),
            }
        }
    }

    /// The stamp of every write that would create its path.
    fn creating(&self, found: &mut Vec<Option<FieldPath<'v>>>) {
        for child in self.children.values() {
            match child {
                Child::Leaf { change: Change::Unset, .. } => {}
                Child::Leaf { stamp, .. } => found.push(*stamp),
                Child::Inner(tree) => tree.creating(found),
            }
        }
    }
}

/// `{$set: {...}}` for the writes of `tree` and their stamps; `document_stamp` is the one they all share, if
/// stamps are kept per document.
pub(super) fn update_stage<'a>(
    tree: &Tree<'_>,
    stamps: &[FieldPath<'_>],
    time: &OwnedValue,
    type_name: &str,
    document_stamp: Option<&str>,
) -> CowDocument<'a> {
    let clock = Clock { time: time.as_value(), type_name, document_stamp };
    CowDocument::build_of(STAGE_LENGTH * (tree.children.len() + stamps.len()), |w| {
        w.nested("$set", |w| {
            tree.children.iter().for_each(|(name, child)| write_child(w.slot(name), name, child, clock));
            for stamp in stamps {
                cond(
                    w.slot(stamp.name().as_bytes()),
                    |slot| stale(slot, *stamp, clock),
                    |slot| field(slot, *stamp),
                    |slot| slot.value(clock.time),
                );
            }
        });
    })
}

/// `{$replaceWith: ...}`: `stored`, or the document as it is when the write is stale.
pub(super) fn replacement_stage<'a>(
    stored: Document<'_>,
    store: &str,
    time: &OwnedValue,
    type_name: &str,
) -> CowDocument<'a> {
    let clock = Clock { time: time.as_value(), type_name, document_stamp: Some(store) };
    CowDocument::build(|w| {
        cond(
            w.slot("$replaceWith"),
            |slot| stale(slot, store.into(), clock),
            |slot| slot.string("$$ROOT"),
            |slot| slot.nested(|w| w.value("$literal", Value::document(stored))),
        );
    })
}

/// The value of the field at `path` after the write.
fn write_child(slot: Slot<'_>, path: &str, child: &Child<'_>, clock: Clock<'_>) {
    match child {
        Child::Leaf { change, stamp: None } => write_change(slot, path, *change),
        Child::Leaf { change, stamp: Some(stamp) } => cond(
            slot,
            |slot| stale(slot, *stamp, clock),
            |slot| field(slot, path),
            |slot| write_change(slot, path, *change),
        ),
        Child::Inner(tree) => write_inner(slot, path, tree, clock),
    }
}

fn write_change(slot: Slot<'_>, path: &str, change: Change<'_>) {
    match change {
        Change::Set(value) => match value.kind {
            Kind::String | Kind::Document | Kind::Array => slot.nested(|w| w.value("$literal", value)),
            _ => slot.value(value),
        },
        Change::Unset => slot.string("$$REMOVE"),
        Change::Now => slot.string("$$NOW"),
        Change::Add(amount) => write_add(slot, path, amount),
    }
}

/// A document some of whose fields are written. The paths are as deep as the statement's own, and their
/// depth has been bounded with it.
fn write_inner(slot: Slot<'_>, path: &str, tree: &Tree<'_>, clock: Clock<'_>) {
    slot.nested(|w| {
        w.nested("$switch", |w| {
            w.array("branches", |a| {
                a.nested(|w| {
                    w.nested("case", |w| has_type(w, path, "object"));
                    let children: Vec<_> = tree.children.iter().collect();
                    set_fields(w.slot("then"), path, &children, clock);
                });
                a.nested(|w| {
                    w.nested("case", |w| has_type(w, path, "missing"));
                    created(w.slot("then"), path, tree, clock);
                });
            });
            blocked(w.slot("default"), path, tree, clock);
        });
    });
}

/// `$setField` around `$setField`: the stored document with each child set, or removed where it is missing.
fn set_fields(slot: Slot<'_>, path: &str, children: &[(&&str, &Child<'_>)], clock: Clock<'_>) {
    let Some(((name, child), before)) = children.split_last() else { return field(slot, path) };
    slot.nested(|w| {
        w.nested("$setField", |w| {
            w.string("field", name);
            set_fields(w.slot("input"), path, before, clock);
            write_child(w.slot("value"), &format!("{path}.{name}"), child, clock);
        });
    });
}

/// The document that did not exist. With a stamp for each field it is made even if all that would create it
/// is stale: what has overtaken this write was an `$unset`, and in source-time order that one leaves the
/// document around its field. With one stamp for all, a stale write leaves nothing.
fn created(slot: Slot<'_>, path: &str, tree: &Tree<'_>, clock: Clock<'_>) {
    let mut creating = Vec::new();
    tree.creating(&mut creating);
    match clock.document_stamp {
        _ if creating.is_empty() => field(slot, path),
        Some(stamp) if creating.iter().all(Option::is_some) => cond(
            slot,
            |slot| stale(slot, stamp.into(), clock),
            |slot| field(slot, path),
            |slot| write_created(slot, path, tree, clock),
        ),
        _ => write_created(slot, path, tree, clock),
    }
}

fn write_created(slot: Slot<'_>, path: &str, tree: &Tree<'_>, clock: Clock<'_>) {
    slot.nested(|w| {
        for (name, child) in &tree.children {
            let below = format!("{path}.{name}");
            match child {
                Child::Inner(tree) => created(w.slot(name), &below, tree, clock),
                Child::Leaf { .. } => write_child(w.slot(name), &below, child, clock),
            }
        }
    });
}

/// The path runs through a scalar or an array: nothing happens if nothing would be created, else the
/// statement fails as it does for the operator (PathNotViable).
fn blocked(slot: Slot<'_>, path: &str, tree: &Tree<'_>, clock: Clock<'_>) {
    let mut creating = Vec::new();
    tree.creating(&mut creating);
    let fail = |slot: Slot<'_>| failure(slot, &format!("cannot write inside field '{path}', which is of type "), path);
    if creating.iter().any(Option::is_none) {
        return fail(slot);
    }
    cond(
        slot,
        |slot| {
            slot.nested(|w| {
                w.array("$and", |a| creating.iter().flatten().for_each(|stamp| stale(a.slot(), *stamp, clock)));
            });
        },
        |slot| field(slot, path),
        fail,
    );
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
                    w.nested("case", |w| has_type(w, path, "missing"));
                    w.value("then", amount);
                });
                a.nested(|w| {
                    w.nested("case", |w| {
                        w.array("$and", |a| {
                            a.nested(|w| field(w.slot("$isNumber"), path));
                            a.nested(|w| {
                                w.array("$or", |a| {
                                    for inexact in ["double", "decimal"] {
                                        a.nested(|w| has_type(w, path, inexact));
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

/// A stamp newer than the write. A stamp of another type (the rule's `type` was changed) counts as missing.
fn stale(slot: Slot<'_>, stamp: FieldPath<'_>, clock: Clock<'_>) {
    slot.nested(|w| {
        w.array("$and", |a| {
            a.nested(|w| has_type(w, stamp, clock.type_name));
            a.nested(|w| {
                w.array("$gt", |a| {
                    field(a.slot(), stamp);
                    a.value(clock.time);
                });
            });
        });
    });
}

fn has_type<'p>(w: &mut Writer<'_>, path: impl Into<FieldPath<'p>>, type_name: &str) {
    w.array("$eq", |a| {
        a.nested(|w| field(w.slot("$type"), path));
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

fn field<'p>(slot: Slot<'_>, path: impl Into<FieldPath<'p>>) {
    let FieldPath { root, below } = path.into();
    match below {
        None => slot.pieces(&["$", root]),
        Some(below) => slot.pieces(&["$", root, ".", below]),
    }
}
