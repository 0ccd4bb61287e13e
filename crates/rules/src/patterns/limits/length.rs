//! The limit on the length of a document: the condition that an update must not exceed it.
//!
//! The condition computes with `$bsonSize` the length of the stored document, and the bytes that the statement adds.
//! The stored value of a field that is replaced counts as removed. For array elements and for the names of missing
//! fields the statement may count more bytes than it adds, but never fewer. What it cannot bound closely is checked.

use crate::command::{Modification, Operation, Update};
use crate::document::{ArrayWriter, CowDocument, Document, Value, Writer};
use crate::effect::{
    EMPTY_LENGTH, Growth, GrowthKind, IdLength, InsertedLength, added_by_stages, around_length, element_length,
    growths, inserted_length, position, selects_only, stored_id_length, update_growths,
};
use crate::patterns::Rejection;
use crate::patterns::plain::NotPlain;

/// Checks the length of the document that the statement inserts, and of a replacement.
///
/// # Errors
/// The statement is not plain.
pub(super) fn check(operation: &Operation<'_>, most: usize) -> Result<Result<(), Rejection>, NotPlain> {
    let inserted = match inserted_length(operation) {
        InsertedLength::None => 0,
        InsertedLength::AtMost(length) => length,
        InsertedLength::Unknown => return Err("as an upsert, it inserts a document of unknown length".to_owned()),
    };
    let written = match operation {
        Operation::Update(update) => match update.modification.meaning() {
            Modification::Replacement(document) => document.as_document().as_bytes().len(),
            _ => 0,
        },
        Operation::Insert(_) | Operation::Delete(_) => 0,
    };
    let length = inserted.max(written);
    Ok(if length <= most { Ok(()) } else { Err(too_long(length, most)) })
}

/// Returns the condition on the stored document; `None` if the statement cannot make it too long.
///
/// # Errors
/// The statement is not plain.
pub(super) fn condition(operation: &Operation<'_>, most: usize) -> Result<Option<CowDocument<'static>>, NotPlain> {
    let Operation::Update(update) = operation else { return Ok(None) };
    if let Modification::ClientPipeline(_) = update.modification.meaning() {
        return Err("it is a pipeline, which may write any number of bytes".to_owned());
    }
    if let Some(operators) = update.operators() {
        let filter = update.filter.as_document();
        let growths = growths(operators).ok_or("it may write any number of bytes")?;
        if let Some(growth) = growths.iter().find(|growth| !is_bounded(growth.written.path, filter)) {
            let path = String::from_utf8_lossy(growth.written.path);
            return Err(format!("it writes an unknown number of bytes to '{path}'"));
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
        _ => growth.with_missing_field().saturating_add(around_length(path)),
    }
}

/// Writes the terms that depend on the stored document.
fn write_terms(a: &mut ArrayWriter<'_>, growth: &Growth<'_>) {
    let path = growth.written.path;
    let Some(text) = std::str::from_utf8(path).ok().filter(|_| is_plain(path)) else { return };
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

/// Returns whether the bytes that a write to the path adds have a close bound. The server fills an array with nulls up to a
/// number; `$[]` can change any number of elements, and so can `$` if it has the position of another array's element.
fn is_bounded(path: &[u8], filter: Document<'_>) -> bool {
    const FURTHEST: usize = 16;
    let mut start = 0;
    path.split(|byte| *byte == b'.').all(|part| {
        let array = path.get(..start).and_then(|around| around.strip_suffix(b".")).unwrap_or_default();
        start += part.len() + 1;
        match part {
            b"$" => selects_only(filter, array),
            _ => !part.starts_with(b"$[") && position(part).is_none_or(|position| position <= FURTHEST),
        }
    })
}

pub(super) fn too_long(length: usize, most: usize) -> Rejection {
    Rejection::new(
        format!("the document would have {length} bytes; the limit is {most} bytes"),
        "Store large or growing data in documents of its own.",
    )
}
