//! The limit on the length of a document: the condition that an update must not exceed it.
//!
//! The condition computes with `$bsonSize` the length of the stored document, and the bytes that the statement adds.
//! The stored value of a field that is replaced counts as removed. For array elements and for the names of missing
//! fields the statement may count more bytes than it adds, but never fewer.

use super::items::{if_array, write_item_count};
use crate::command::{Modification, Operation, Update};
use crate::document::{ArrayWriter, CowDocument, Document, Value, Writer};
use crate::effect::{
    AROUND_SELECTED, EMPTY_LENGTH, Growth, GrowthKind, IdLength, InsertedLength, added_by_stages, around_documents,
    around_in_element, around_length, element_length, growths, inserted_length, other_selections, position,
    stored_id_length, update_growths,
};
use crate::patterns::{Rejection, Violation};

/// Checks the length of the document that the statement inserts, and of a replacement.
pub(super) fn check(operation: &Operation<'_>, most: usize) -> Result<(), Violation> {
    match inserted_length(operation) {
        InsertedLength::None => {}
        InsertedLength::AtMost(length) if length <= most => {}
        InsertedLength::AtMost(length) => return Err(too_long(length, most).into()),
        InsertedLength::Unknown => {
            return Err(Violation::Broken(Rejection::new(
                format!("as an upsert it could insert a document of more than {most} bytes"),
                "Insert the document first.",
            )));
        }
    }
    let Operation::Update(update) = operation else { return Ok(()) };
    let least = match update.modification.meaning() {
        Modification::Replacement(document) => document.as_document().as_bytes().len(),
        Modification::Operators(operators) => {
            let growths = growths(operators.as_document()).ok_or_else(unclear)?;
            let stored =
                growths.iter().filter(|growth| growth.how == GrowthKind::Replaces && is_plain(growth.written.path));
            stored.map(|growth| growth.bytes).sum()
        }
        Modification::Pipeline(_) | Modification::ClientPipeline(_) => 0,
    };
    if least <= most { Ok(()) } else { Err(too_long(least, most).into()) }
}

/// Returns the condition on the stored document; `None` if the statement cannot make it too long.
pub(super) fn condition(operation: &Operation<'_>, most: usize) -> Result<Option<CowDocument<'static>>, Violation> {
    let Operation::Update(update) = operation else { return Ok(None) };
    if let Some(operators) = update.operators() {
        let growths = growths(operators).ok_or_else(unclear)?;
        let filter = update.filter.as_document();
        let is_unclear = |path: &[u8]| has_many_positions(path) || selected_by(path, filter).is_none();
        if let Some(growth) = growths.iter().find(|growth| is_unclear(growth.written.path)) {
            return Err(Violation::Unclear(Rejection::new(
                format!(
                    "docward cannot bound the bytes that it writes to '{}'",
                    String::from_utf8_lossy(growth.written.path)
                ),
                "Use at most one of $, $[] and $[name] in a path.",
            )));
        }
    }
    Ok(growth(update, most).map(|growth| {
        CowDocument::build(|w| {
            w.nested("$expr", |w| {
                w.array("$lte", |a| {
                    a.value(Value::document(growth.as_document()));
                    a.nested(|w| write_room(w, most));
                });
            });
        })
    }))
}

/// Returns whether a condition is the other one, also if it has a larger number of bytes that the statement adds (the
/// first term of `$add`).
pub(super) fn is_as_strict(known: Document<'_>, other: Document<'_>) -> bool {
    let is_larger = |known: Document<'_>, other: Document<'_>| {
        let number = |terms: Document<'_>| terms.values().next().and_then(Value::as_integer);
        number(known).zip(number(other)).is_some_and(|(known, other)| known >= other)
            && known.values().skip(1).eq(other.values().skip(1))
    };
    let same_count = known.elements().count() == other.elements().count();
    same_count
        && known.elements().zip(other.elements()).all(|(known, other)| {
            known.key == other.key
                && match known.value.as_document_or_array().zip(other.value.as_document_or_array()) {
                    _ if known.value == other.value => true,
                    Some((known_terms, terms)) if known.key == b"$add" => is_larger(known_terms, terms),
                    Some((known, other)) => is_as_strict(known, other),
                    None => false,
                }
        })
}

/// Returns `{$bsonSize: "$$ROOT"}`.
pub(super) fn of_document() -> CowDocument<'static> {
    CowDocument::build(|w| w.string("$bsonSize", "$$ROOT"))
}

/// Returns the expression for the most bytes that the update adds to a stored document; `None` if that cannot exceed
/// the limit.
pub(super) fn growth(update: &Update<'_>, most: usize) -> Option<CowDocument<'static>> {
    let added = added_by_stages(&update.modification);
    match update.modification.meaning() {
        Modification::Replacement(document) => of_replacement(update, document.as_document(), added, most),
        Modification::Operators(_) => {
            let growths = update_growths(update)?;
            (!growths.is_empty() || added > 0).then(|| {
                CowDocument::build(|w| {
                    w.array("$add", |a| {
                        let fixed = growths.iter().map(fixed_bytes).fold(added, usize::saturating_add);
                        write_number(a, fixed);
                        growths.iter().for_each(|growth| write_terms(a, growth));
                    });
                })
            })
        }
        Modification::Pipeline(_) | Modification::ClientPipeline(_) => None,
    }
}

/// A replacement without `_id` keeps the stored one, which may have any length.
fn of_replacement(
    update: &Update<'_>,
    document: Document<'_>,
    added: usize,
    most: usize,
) -> Option<CowDocument<'static>> {
    let length = document.as_bytes().len() + added;
    let id =
        if document.get("_id").is_some() { IdLength::AtMost(0) } else { stored_id_length(update.filter.as_document()) };
    if matches!(id, IdLength::AtMost(id) if length + id <= most) {
        return None;
    }
    let owned = document.get("_id").is_some();
    Some(CowDocument::build(|w| {
        w.array("$subtract", |a| {
            a.nested(|w| {
                w.array("$add", |a| {
                    write_number(a, length);
                    if !owned {
                        a.nested(|w| write_element_length(w, "_id", "_id"));
                        a.int32(-(EMPTY_LENGTH as i32));
                    }
                });
            });
            a.nested(|w| w.string("$bsonSize", "$$ROOT"));
        });
    }))
}

/// Writes the bytes that the document may grow; none if it is longer than the limit already.
fn write_room(w: &mut Writer<'_>, most: usize) {
    w.array("$max", |a| {
        a.int32(0);
        a.nested(|w| {
            w.array("$subtract", |a| {
                write_number(a, most);
                a.nested(|w| w.string("$bsonSize", "$$ROOT"));
            });
        });
    });
}

/// Returns the bytes that do not depend on the stored document.
fn fixed_bytes(growth: &Growth<'_>) -> usize {
    let path = growth.written.path;
    match growth.how {
        // The parts that depend on it are written as terms.
        GrowthKind::MayKeep if is_plain(path) => 0,
        GrowthKind::Replaces | GrowthKind::Appends | GrowthKind::Moves if is_plain(path) => growth.bytes,
        _ if is_multiple(path) => 0,
        _ => growth.with_missing_field().saturating_add(around_positions(path)),
    }
}

/// Writes the terms that depend on the stored document.
fn write_terms(a: &mut ArrayWriter<'_>, growth: &Growth<'_>) {
    let path = growth.written.path;
    let Some(text) = std::str::from_utf8(path).ok().filter(|_| is_plain(path)) else {
        return write_positional_terms(a, growth);
    };
    let name = text.rsplit('.').next().unwrap_or(text);
    match growth.how {
        GrowthKind::Replaces => a.nested(|w| {
            w.array("$subtract", |a| {
                a.int32(EMPTY_LENGTH as i32);
                a.nested(|w| write_element_length(w, name, text));
            });
        }),
        GrowthKind::MayKeep => a.nested(|w| {
            w.array("$max", |a| {
                a.int32(0);
                a.nested(|w| {
                    w.array("$subtract", |a| {
                        write_number(a, growth.bytes + EMPTY_LENGTH);
                        a.nested(|w| write_element_length(w, name, text));
                    });
                });
            });
        }),
        GrowthKind::Appends => write_if_missing(a, text, element_length(name.len()) + EMPTY_LENGTH),
        GrowthKind::Moves => {}
    }
    let dots = text.bytes().enumerate().filter(|(_, byte)| *byte == b'.').map(|(at, _)| at);
    for around in dots.filter_map(|at| text.get(..at)) {
        let name = around.rsplit('.').next().unwrap_or(around);
        write_if_missing(a, around, element_length(name.len()) + EMPTY_LENGTH);
    }
}

/// Writes the terms of a path with a position in an array: the nulls before it, or the number of the elements that a
/// `$[]` can change.
fn write_positional_terms(a: &mut ArrayWriter<'_>, growth: &Growth<'_>) {
    let path = growth.written.path;
    let Some((array, part)) = first_position(path) else { return };
    if is_multiple(path) {
        let each = growth.with_missing_field().saturating_add(around_positions(path));
        a.nested(|w| {
            w.array("$multiply", |a| {
                write_number(a, each);
                a.nested(|w| write_item_count(w, array));
            });
        });
    } else if let Some(number) = position(part.as_bytes()).filter(|number| *number > 0) {
        a.nested(|w| {
            let missing = |a: &mut ArrayWriter<'_>, items: &str| {
                a.nested(|w| {
                    w.array("$multiply", |a| {
                        write_number(a, element_length(part.len()));
                        a.nested(|w| {
                            w.array("$max", |a| {
                                a.int32(0);
                                a.nested(|w| {
                                    w.array("$subtract", |a| {
                                        write_number(a, number);
                                        a.nested(|w| w.string("$size", items));
                                    });
                                });
                            });
                        });
                    });
                });
            };
            if_array(w, array, missing, |a, _| a.int32(0));
        });
    }
}

/// Writes the length of a document with only this field: `{$bsonSize: {name: "$path"}}`.
fn write_element_length(w: &mut Writer<'_>, name: &str, path: &str) {
    w.nested("$bsonSize", |w| w.string(name, format!("${path}")));
}

fn write_if_missing(a: &mut ArrayWriter<'_>, path: &str, bytes: usize) {
    a.nested(|w| {
        w.array("$cond", |a| {
            a.nested(|w| {
                w.array("$eq", |a| {
                    a.nested(|w| w.string("$type", format!("${path}")));
                    a.string("missing");
                });
            });
            write_number(a, bytes);
            a.int32(0);
        });
    });
}

fn write_number(a: &mut ArrayWriter<'_>, number: usize) {
    a.slot().integer(i64::try_from(number).unwrap_or(i64::MAX));
}

/// Returns whether no part can be a position, and the path can be used in an expression: there no name begins with `$`.
fn is_plain(path: &[u8]) -> bool {
    let is_name = |part: &[u8]| !part.is_empty() && !part.starts_with(b"$") && !crate::effect::is_position(part);
    std::str::from_utf8(path).is_ok() && path.split(|byte| *byte == b'.').all(is_name)
}

/// Returns the plain path before the first position in an array, and the position.
fn first_position(path: &[u8]) -> Option<(&str, &str)> {
    let text = std::str::from_utf8(path).ok()?;
    let mut start = 0;
    for part in text.split('.') {
        // The document itself has no positions.
        if start > 0 && crate::effect::is_position(part.as_bytes()) {
            let array = text.get(..start - 1).filter(|array| is_plain(array.as_bytes()))?;
            return Some((array, part));
        }
        start += part.len() + 1;
    }
    None
}

fn multiples(path: &[u8]) -> usize {
    path.split(|byte| *byte == b'.').filter(|part| part.starts_with(b"$[")).count()
}

fn is_multiple(path: &[u8]) -> bool {
    multiples(path) > 0
}

/// Returns whether the number of changed elements is not the number of elements of one array.
fn has_many_positions(path: &[u8]) -> bool {
    let starts_with_it = || first_position(path).is_some_and(|(_, part)| part.starts_with("$["));
    is_multiple(path) && (multiples(path) > 1 || !starts_with_it())
}

/// Returns the other fields of the filter that give `$` its position if they are arrays: the server fills the array up
/// to it. `None` if they are not known.
fn selected_by<'f>(path: &[u8], filter: Document<'f>) -> Option<Vec<&'f str>> {
    let Some((array, part)) = first_position(path) else { return Some(Vec::new()) };
    let below = path.get(array.len() + part.len() + 2..).unwrap_or_default();
    if below.split(|byte| *byte == b'.').any(|part| part == b"$") {
        return None;
    }
    if part == "$" { other_selections(filter, array.as_bytes()) } else { Some(Vec::new()) }
}

/// Returns the fields of the filter of which none may be an array, so that the bytes that the update adds are known.
pub(super) fn other_arrays<'u>(update: &'u Update<'_>) -> Vec<&'u str> {
    let Some(operators) = update.operators() else { return Vec::new() };
    let (growths, filter) = (growths(operators).unwrap_or_default(), update.filter.as_document());
    growths.iter().filter_map(|growth| selected_by(growth.written.path, filter)).flatten().collect()
}

/// Returns the bytes of the fields around a field in an array, without the nulls before the first position.
fn around_positions(path: &[u8]) -> usize {
    let Some((array, part)) = first_position(path) else { return around_length(path) };
    let below = path.get(array.len() + part.len() + 2..);
    let around = match part {
        // The filter can select by an array in a document, and its position is then a field that may be missing.
        "$" if below.is_some() => AROUND_SELECTED,
        // `$[]` and `$[name]` need an array.
        _ if part.starts_with('$') => 0,
        // The fields before a number may be missing.
        _ => around_documents(path),
    };
    below.map_or(0, around_in_element).saturating_add(around)
}

fn unclear() -> Violation {
    Violation::Unclear(Rejection::new(
        "docward cannot compute how many bytes one of its operators adds",
        "Use operators that docward knows: $set, $push, $inc.",
    ))
}

fn too_long(length: usize, most: usize) -> Rejection {
    Rejection::new(
        format!("the document would have {length} bytes; the limit is {most} bytes"),
        "Store large or growing data in documents of its own.",
    )
}
