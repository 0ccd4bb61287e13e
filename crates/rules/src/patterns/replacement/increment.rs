//! Increments the version of an update: with `$inc` beside operators, or with a last stage of a pipeline. A version
//! that is not a number, or the largest long, is only compared, and `$inc` of it fails. So there is one statement for
//! each kind of stored value.

use super::next_version;
use crate::command::{Modification, Operation, Pipeline, Update};
use crate::document::{CowDocument, Document, Element, Kind, Path, PathLookup, Value, Writer};
use crate::effect::{equality, has_equality_inside, is_position, on_stored, touched};
use crate::patterns::around::{SetField, split_around};
use crate::patterns::plain::{self, NotPlain};
use crate::patterns::{Prerequisite, StoredKind, Verdict};

/// The types that `$inc` fails on, by their numbers in BSON.
const NO_NUMBERS: [i32; 17] = [-1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 127];
/// The types that have no fields. An array has the types of its elements.
const NO_DOCUMENTS: [i32; 20] = [-1, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 127];

/// Returns the update with its version incremented, unless the update does that itself.
pub(super) fn incremented<'a>(update: &Update<'a>, version_field: &Path) -> Verdict<'a> {
    let modification = match &update.modification {
        Modification::Replacement(_) => return Verdict::Forward,
        Modification::Operators(_) if names_other(update.filter.as_document(), version_field) => {
            return Verdict::Forward;
        }
        Modification::Operators(operators) => match with_increment(update, operators.as_document(), version_field) {
            Ok(incremented) => incremented,
            Err(part) => return Verdict::not_plain(part),
        },
        Modification::Pipeline(pipeline) => match &pipeline.meaning {
            Modification::Operators(operators) if is_incremented(operators.as_document(), version_field) => {
                with_stage(pipeline.stages().to_vec(), pipeline.meaning.clone(), pipeline.may_keep, version_field)
            }
            _ => None,
        },
        Modification::ClientPipeline(stages) => {
            let stages = stages.values().filter_map(Value::as_document).map(CowDocument::from).collect();
            with_stage(stages, update.modification.clone(), false, version_field)
        }
    };
    let Some(modification) = modification else { return Verdict::Forward };
    let by_operators = matches!(modification, Modification::Operators(_));
    let incremented = Operation::Update(Update { modification, ..update.clone() });
    match by_operators {
        true => Verdict::Require(Prerequisite::Incrementable, Some(incremented)),
        false => Verdict::rewrite(incremented),
    }
}

/// Returns whether the version of every document that the filter matches cannot be incremented. It fails then for an
/// upsert's document too.
fn names_other(filter: Document<'_>, version_field: &Path) -> bool {
    let is_other = |version: Value<'_>| match version.kind {
        Kind::Null => false,
        Kind::Int64 => next_version(version).is_none(),
        kind => !kind.is_number(),
    };
    equality(filter, version_field.as_str()).is_some_and(is_other) || has_equality_inside(filter, version_field)
}

/// Returns whether docward increments the version for these operators: they change something, but not the version.
fn is_incremented(operators: Document<'_>, version_field: &Path) -> bool {
    let mut written = on_stored(operators).peekable();
    written.peek().is_some()
        && !written.any(|(_, path, _)| version_field.overlaps(path))
        && !touched(operators).any(|(_, path, _)| needs_array(path, version_field))
}

/// Returns whether the server fails to write this path (`$[]`, `$[x]`) unless the version, or a field around it, is an
/// array. Such a version cannot be incremented, and the server rejects an `$inc` beside such a path.
fn needs_array(path: &[u8], version_field: &Path) -> bool {
    let Some(dot) = path.windows(3).position(|bytes| bytes == b".$[") else { return false };
    let array = path.get(..dot).unwrap_or_default();
    version_field.as_str().as_bytes() == array || version_field.is_below(array)
}

/// Adds `$inc` of the version to the operators. It replaces a version in `$setOnInsert`.
///
/// # Errors
/// The update is not plain: what it inserts may have another version.
fn with_increment<'a>(
    update: &Update<'_>,
    operators: Document<'_>,
    version_field: &Path,
) -> Result<Option<Modification<'a>>, NotPlain> {
    if !is_incremented(operators, version_field) {
        return Ok(None);
    }
    let version = version_field.as_str();
    let fields = |operator| operators.get(operator).and_then(Value::as_document);
    let on_insert = fields("$setOnInsert").unwrap_or(Document::EMPTY);
    let is_version = |field: &Element<'_>| field.key == version.as_bytes();
    if on_insert.elements().any(|field| !is_version(&field) && version_field.overlaps(field.key)) {
        return Err(format!("its $setOnInsert writes around '{version_field}'"));
    }
    if update.upsert {
        plain::inserted(update, version_field)?;
    }
    Ok(Some(Modification::Operators(CowDocument::build(|w| {
        for operator in operators.elements() {
            match (operator.key, operator.value.as_document()) {
                (b"$inc", Some(fields)) => w.nested("$inc", |w| {
                    w.elements(fields);
                    w.int32(version, 1);
                }),
                (b"$setOnInsert", Some(fields)) => {
                    let kept = || fields.elements().filter(|field| !is_version(field));
                    if kept().next().is_some() {
                        w.nested("$setOnInsert", |w| kept().for_each(|field| w.element(field)));
                    }
                }
                _ => w.element(operator),
            }
        }
        if fields("$inc").is_none() {
            w.nested("$inc", |w| w.int32(version, 1));
        }
    }))))
}

/// Returns what a document around the version is set to, without the version; `None` if it cannot be set field by field.
pub(super) fn beside<'v>(version_field: &Path, field: Element<'v>) -> Option<Vec<SetField<'v>>> {
    let mut set = Vec::new();
    split_around(version_field, field.key.into(), field.value, &mut set)?;
    set.retain(|(path, _)| path.as_ref() != version_field.as_str().as_bytes());
    // If the stored value is an array, such a name is the position of an element.
    let has_position = |(path, _): &SetField<'_>| path.split(|byte| *byte == b'.').skip(1).any(is_position);
    let is_plain = !set.iter().any(|one| has_position(one) || version_field.covers(&one.0));
    is_plain.then_some(set)
}

/// Returns the update for documents whose version is of this kind; the version before the largest long is among the other
/// values. A version that cannot be incremented stays, except that `null` becomes 1, as if it was missing. `$max` does
/// this: null sorts before all numbers, other types after them.
pub(super) fn form_for<'a>(update: &Update<'a>, version_field: &Path, stored: StoredKind) -> Option<Operation<'a>> {
    let Modification::Operators(operators) = &update.modification else { return None };
    let around: Vec<&str> = version_field.parents().collect();
    let mut update = update.clone();
    match stored {
        StoredKind::Number => {}
        StoredKind::Other => {
            update.modification = Modification::Operators(at_least_one(operators.as_document(), version_field))
        }
        StoredKind::Unreachable if around.is_empty() => return None,
        StoredKind::Unreachable => {
            update.modification = Modification::Operators(without_increment(operators.as_document(), version_field));
        }
    }
    let is_of = |w: &mut Writer<'_>, types: &[i32]| w.array("$type", |a| types.iter().for_each(|of| a.int32(*of)));
    let is_reachable = |w: &mut Writer<'_>| {
        around.iter().for_each(|path| w.nested(*path, |w| w.nested("$not", |w| is_of(w, &NO_DOCUMENTS))));
    };
    update.conditions.push(CowDocument::build(|w| {
        if stored == StoredKind::Unreachable {
            // A negated condition matches no array element, which would give the client's `$` another position.
            return w.array("$nor", |a| a.nested(is_reachable));
        }
        is_reachable(w);
        let is_other = if stored == StoredKind::Number { "$nor" } else { "$or" };
        w.array(is_other, |a| {
            a.nested(|w| w.nested(version_field.as_str(), |w| is_of(w, &NO_NUMBERS)));
            a.nested(|w| w.nested(version_field.as_str(), is_among_largest_longs));
        });
    }));
    Some(Operation::Update(update))
}

/// Writes the condition that a value is the largest long or the one before it. If the form for numbers incremented that
/// one, the form for other values would match the document again. Values of other types can be equal to them.
fn is_among_largest_longs(w: &mut Writer<'_>) {
    w.integer("$gte", i64::MAX - 1);
    w.string("$type", "long");
}

/// Returns the kind of the version of a stored document.
pub(super) fn stored_kind(stored: Document<'_>, version_field: &Path) -> StoredKind {
    match version_field.lookup(stored) {
        PathLookup::Missing => StoredKind::Number,
        PathLookup::Found(version) if version.kind.is_number() && version.as_raw_i64() != Some(i64::MAX) => {
            StoredKind::Number
        }
        PathLookup::Found(_) => StoredKind::Other,
        PathLookup::Blocked(_) => StoredKind::Unreachable,
    }
}

/// Returns the operators without those by which docward increments the version.
fn without_increment<'a>(operators: Document<'_>, version_field: &Path) -> CowDocument<'a> {
    CowDocument::build(|w| {
        operators.elements().for_each(|operator| write_without_increment(w, operator, version_field))
    })
}

fn write_without_increment(w: &mut Writer<'_>, operator: Element<'_>, version_field: &Path) {
    let fields = operator.value.as_document().filter(|_| matches!(operator.key, b"$inc" | b"$max"));
    let Some(fields) = fields else { return w.element(operator) };
    let kept = || fields.elements().filter(|field| field.key != version_field.as_str().as_bytes());
    if kept().next().is_some() {
        w.nested(operator.key, |w| kept().for_each(|field| w.element(field)));
    }
}

/// Returns the operators with `$max: 1` of the version instead of its `$inc`.
fn at_least_one<'a>(operators: Document<'_>, version_field: &Path) -> CowDocument<'a> {
    let without = without_increment(operators, version_field);
    let max = match without.as_document().get("$max") {
        None => Document::EMPTY,
        Some(fields) => match fields.as_document() {
            Some(fields) => fields,
            // The server rejects it.
            None => return without.clone(),
        },
    };
    CowDocument::build(|w| {
        without.as_document().elements().filter(|operator| operator.key != b"$max").for_each(|one| w.element(one));
        w.nested("$max", |w| {
            w.elements(max);
            w.int32(version_field.as_str(), 1);
        });
    })
}

/// Adds a last stage that increments the version if it is a number or missing. It writes a field around the version
/// only if that is a document or missing: a stage would write through arrays and overwrite other values.
fn with_stage<'a>(
    mut stages: Vec<CowDocument<'a>>,
    meaning: Modification<'a>,
    may_keep: bool,
    version_field: &Path,
) -> Option<Modification<'a>> {
    let root = version_field.root();
    stages.push(CowDocument::build(|w| {
        w.nested("$set", |w| w.nested(root, |w| write_incremented(w, version_field.as_str(), root.len())));
    }));
    Some(Modification::Pipeline(Box::new(Pipeline::new(stages, meaning, may_keep))))
}

/// Writes the value of the field whose name ends at `end` of the version's path, with the version incremented.
fn write_incremented(w: &mut Writer<'_>, path: &str, end: usize) {
    let reference = format!("${}", path.get(..end).unwrap_or(path));
    let Some(rest) = path.get(end + 1..) else {
        w.array("$cond", |a| {
            a.nested(|w| {
                w.array("$and", |a| {
                    a.nested(|w| w.string("$isNumber", &reference));
                    // The sum would be a double.
                    a.nested(|w| write_is_no_largest_long(w, &reference));
                });
            });
            a.nested(|w| {
                w.array("$add", |a| {
                    a.string(&reference);
                    a.int32(1);
                });
            });
            a.nested(|w| {
                w.array("$ifNull", |a| {
                    a.string(&reference);
                    a.int32(1);
                });
            });
        });
        return;
    };
    let name = rest.split('.').next().unwrap_or(rest);
    w.array("$cond", |a| {
        a.nested(|w| {
            w.array("$in", |a| {
                a.nested(|w| w.string("$type", &reference));
                a.array(|a| {
                    a.string("object");
                    a.string("missing");
                });
            });
        });
        a.nested(|w| {
            w.array("$mergeObjects", |a| {
                a.string(&reference);
                a.nested(|w| w.nested(name, |w| write_incremented(w, path, end + 1 + name.len())));
            });
        });
        a.string(&reference);
    });
}

/// Writes the expression that a value is not the largest long.
fn write_is_no_largest_long(w: &mut Writer<'_>, reference: &str) {
    w.array("$or", |a| {
        a.nested(|w| {
            w.array("$ne", |a| {
                a.string(reference);
                a.slot().integer(i64::MAX);
            });
        });
        a.nested(|w| {
            w.array("$ne", |a| {
                a.nested(|w| w.string("$type", reference));
                a.string("long");
            });
        });
    });
}
