//! An update's operators as one `$set` stage whose every field decides for itself whether the write is stale.
//!
//! The stage gives what the operators would have given: a path is never created through a scalar or an array
//! (the server fails the statement, as it does for the operator), `$unset` creates no parents, values are
//! literals whatever they look like. Uses `$setField`, hence mongod 5.0 or later for dotted paths. All
//! expressions of one stage see the document as it was before, so stamps and fields change together.

use super::writes::{Change, Child, Tree, Write};
use crate::document::{CowDocument, Document, Kind, Slot, Value, Writer};

/// Bytes a written field or a stamp usually takes in the stage: a first guess at its length.
const STAGE_LENGTH: usize = 256;
/// The same of [`Guard::stale`].
const STALE_LENGTH: usize = 160;

/// What a stale write is measured by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock<'t> {
    /// The write's own.
    pub(super) time: Value<'t>,
    /// As `$type` names it; a stamp of another type counts as missing.
    pub(super) type_name: &'t str,
}

/// A stamp, and whether it is newer than the write.
#[derive(Debug)]
pub(super) struct Guard {
    /// "$last_modified.temp"
    stamp: String,
    /// The expression that is true when it is, written once for all who ask. A stamp of another type (the rule's `type`
    /// was changed) counts as missing.
    stale: CowDocument<'static>,
}

impl Guard {
    /// Of the one stamp of a document.
    pub(super) fn of_document(store: &str, clock: Clock<'_>) -> Self {
        Self::new(["$", store].concat(), clock)
    }

    /// Of the stamp of this register.
    pub(super) fn of_field(store: &str, register: &str, clock: Clock<'_>) -> Self {
        Self::new(["$", store, ".", register].concat(), clock)
    }

    fn new(stamp: String, clock: Clock<'_>) -> Self {
        let stale = CowDocument::build_of(STALE_LENGTH, |w| {
            w.array("$and", |a| {
                a.nested(|w| has_type(w, |slot| slot.string(&stamp), clock.type_name));
                a.nested(|w| {
                    w.array("$gt", |a| {
                        a.string(&stamp);
                        a.value(clock.time);
                    });
                });
            });
        });
        Self { stamp, stale }
    }

    /// The stamp's path.
    fn path(&self) -> &str {
        self.stamp.strip_prefix('$').unwrap_or(&self.stamp)
    }

    fn stale(&self, slot: Slot<'_>) {
        slot.value(Value::document(self.stale.as_document()));
    }
}

/// `{$set: {...}}` for the writes of `tree` and their stamps; `shared` is what guards them all, if stamps are kept per
/// document.
pub(super) fn update_stage<'a>(
    tree: Tree<'_>,
    guards: &[Guard],
    time: Value<'_>,
    shared: Option<&Guard>,
) -> CowDocument<'a> {
    CowDocument::build_of(STAGE_LENGTH * (tree.len() + guards.len()), |w| {
        w.nested("$set", |w| {
            tree.children().for_each(|(name, child)| write_child(w.slot(name), name, child, shared));
            for guard in guards {
                cond(
                    w.slot(guard.path()),
                    |slot| guard.stale(slot),
                    |slot| slot.string(&guard.stamp),
                    |slot| slot.value(time),
                );
            }
        });
    })
}

/// `{$replaceWith: ...}`: `stored`, or the document as it is when the write is stale.
pub(super) fn replacement_stage<'a>(stored: Document<'_>, guard: &Guard) -> CowDocument<'a> {
    CowDocument::build(|w| {
        cond(
            w.slot("$replaceWith"),
            |slot| guard.stale(slot),
            |slot| slot.string("$$ROOT"),
            |slot| slot.nested(|w| w.value("$literal", Value::document(stored))),
        );
    })
}

/// The value of the field at `path` after the write.
fn write_child(slot: Slot<'_>, path: &str, child: Child<'_>, shared: Option<&Guard>) {
    match child {
        Child::Leaf(Write { change, guard: None, .. }) => write_change(slot, path, *change),
        Child::Leaf(Write { change, guard: Some(guard), .. }) => {
            cond(slot, |slot| guard.stale(slot), |slot| field(slot, path), |slot| write_change(slot, path, *change))
        }
        Child::Inner(tree) => write_inner(slot, path, tree, shared),
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

/// A document some of whose fields are written.
fn write_inner(slot: Slot<'_>, path: &str, tree: Tree<'_>, shared: Option<&Guard>) {
    slot.nested(|w| {
        w.nested("$switch", |w| {
            w.array("branches", |a| {
                a.nested(|w| {
                    w.nested("case", |w| has_type(w, |slot| field(slot, path), "object"));
                    let children: Vec<_> = tree.children().collect();
                    set_fields(w.slot("then"), path, &children, shared);
                });
                a.nested(|w| {
                    w.nested("case", |w| has_type(w, |slot| field(slot, path), "missing"));
                    created(w.slot("then"), path, tree, shared);
                });
            });
            blocked(w.slot("default"), path, tree);
        });
    });
}

/// `$setField` around `$setField`: the stored document with each child set, or removed where it is missing.
fn set_fields(slot: Slot<'_>, path: &str, children: &[(&str, Child<'_>)], shared: Option<&Guard>) {
    let Some(((name, child), before)) = children.split_last() else { return field(slot, path) };
    slot.nested(|w| {
        w.nested("$setField", |w| {
            w.string("field", name);
            set_fields(w.slot("input"), path, before, shared);
            write_child(w.slot("value"), &format!("{path}.{name}"), *child, shared);
        });
    });
}

/// The document that did not exist. With a stamp for each field it is made even if all that would create it
/// is stale: what has overtaken this write was an `$unset`, and in source-time order that one leaves the
/// document around its field. With one stamp for all, a stale write leaves nothing.
fn created(slot: Slot<'_>, path: &str, tree: Tree<'_>, shared: Option<&Guard>) {
    let mut creating = tree.creating();
    match shared {
        _ if creating.clone().next().is_none() => field(slot, path),
        Some(guard) if creating.all(|guard| guard.is_some()) => cond(
            slot,
            |slot| guard.stale(slot),
            |slot| field(slot, path),
            |slot| write_created(slot, path, tree, shared),
        ),
        _ => write_created(slot, path, tree, shared),
    }
}

fn write_created(slot: Slot<'_>, path: &str, tree: Tree<'_>, shared: Option<&Guard>) {
    slot.nested(|w| {
        for (name, child) in tree.children() {
            let below = format!("{path}.{name}");
            match child {
                Child::Inner(tree) => created(w.slot(name), &below, tree, shared),
                Child::Leaf(_) => write_child(w.slot(name), &below, child, shared),
            }
        }
    });
}

/// The path runs through a scalar or an array: nothing happens if nothing would be created, else the
/// statement fails as it does for the operator (PathNotViable).
fn blocked(slot: Slot<'_>, path: &str, tree: Tree<'_>) {
    let mut creating = tree.creating();
    let fail = |slot: Slot<'_>| failure(slot, &format!("cannot write inside field '{path}', which is of type "), path);
    if creating.clone().any(|guard| guard.is_none()) {
        return fail(slot);
    }
    cond(
        slot,
        |slot| {
            slot.nested(|w| {
                w.array("$and", |a| creating.by_ref().flatten().for_each(|guard| guard.stale(a.slot())));
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
