//! Free locks: as values, in filters, and as conditions for the server.
//!
//! A lock is free when it is false, null, zero or missing. With any other value the job is taken until the lease ends.

use std::time::Duration;

use bson::{Bson, doc};

use super::super::number::sign;
use crate::document::{Document, Kind, Path, Value, Writer};
use crate::patterns::stored_data::value;

/// Conditions below this depth are left as they are.
const MAX_DEPTH: usize = 100;

/// Returns whether a job with this value in its lock is free.
pub(super) fn is_free(value: Value<'_>) -> bool {
    matches!(value.kind, Kind::Null | Kind::Undefined)
        || value.as_bool() == Some(false)
        || sign(value) == Some(std::cmp::Ordering::Equal)
}

/// Returns whether the filter matches only jobs whose lock is free.
pub(super) fn proves_free(filter: Document<'_>, locked: &Path) -> bool {
    proves_free_at(filter, locked, 0)
}

fn proves_free_at(filter: Document<'_>, locked: &Path, depth: usize) -> bool {
    filter.elements().any(|element| match element.key {
        b"$and" if depth < MAX_DEPTH => branches(element.value).any(|branch| proves_free_at(branch, locked, depth + 1)),
        key if key == locked.as_str().as_bytes() => match operators(element.value) {
            Some(operators) => operators.elements().any(|operator| demands_free(operator.key, operator.value)),
            None => is_free(element.value),
        },
        _ => false,
    })
}

/// Returns whether an operator matches only free locks: `{$eq: false}`, `{$in: [false, null]}`, `{$exists: false}`.
fn demands_free(operator: &[u8], operand: Value<'_>) -> bool {
    match operator {
        b"$eq" => is_free(operand),
        b"$in" => operand.as_array().is_some_and(|values| !values.is_empty() && values.values().all(is_free)),
        b"$exists" => operand.as_flag() == Some(false),
        _ => false,
    }
}

/// Returns whether a client's operator excludes locked jobs: it would also exclude those whose lease has ended.
fn keeps_locked_out(operator: &[u8], operand: Value<'_>) -> bool {
    let is_true = |value: Value<'_>| value.as_flag() == Some(true);
    match operator {
        b"$ne" => is_true(operand),
        b"$nin" => operand.as_array().is_some_and(|values| values.values().all(is_true)),
        b"$not" => operators(operand).is_some_and(|negated| {
            negated.elements().all(|operator| operator.key == b"$eq" && is_true(operator.value))
        }),
        _ => demands_free(operator, operand),
    }
}

/// Writes a claim's conditions except those that require a free lock: the rule's own condition replaces them.
pub(super) fn write_others(w: &mut Writer<'_>, filter: Document<'_>, locked: &Path) {
    write_others_at(w, filter, locked, 0);
}

fn write_others_at(w: &mut Writer<'_>, filter: Document<'_>, locked: &Path, depth: usize) {
    for element in filter.elements() {
        match element.key {
            // One that the server rejects stays, so that it rejects it.
            b"$and" if depth < MAX_DEPTH && are_documents(element.value) => {
                let branches: Vec<Vec<u8>> = branches(element.value)
                    .map(|branch| crate::document::document(|w| write_others_at(w, branch, locked, depth + 1)))
                    .collect();
                let kept =
                    || branches.iter().filter_map(|branch| Document::parse(branch).ok()).filter(|b| !b.is_empty());
                if kept().next().is_some() {
                    w.array("$and", |a| kept().for_each(|branch| a.value(Value::document(branch))));
                }
            }
            key if key == locked.as_str().as_bytes() => match operators(element.value) {
                Some(operators) => {
                    let kept = || operators.elements().filter(|one| !keeps_locked_out(one.key, one.value));
                    if kept().next().is_some() {
                        w.nested(key, |w| kept().for_each(|operator| w.element(operator)));
                    }
                }
                None if is_free(element.value) => {}
                None => w.element(element),
            },
            _ => w.element(element),
        }
    }
}

fn branches(value: Value<'_>) -> impl Iterator<Item = Document<'_>> {
    value.as_array().unwrap_or(Document::EMPTY).values().filter_map(Value::as_document)
}

fn are_documents(value: Value<'_>) -> bool {
    let all = |values: Document<'_>| values.values().all(|value| value.as_document().is_some());
    value.as_array().is_some_and(|values| !values.is_empty() && all(values))
}

/// Returns the operators of a condition; `None` if the condition is a value.
fn operators(condition: Value<'_>) -> Option<Document<'_>> {
    condition.as_document().filter(|document| document.first().is_some_and(|first| first.key.starts_with(b"$")))
}

/// Writes the condition of a claim: the lock is free, or its time is longer ago than the lease by the server's clock.
/// A lock without a time, or with a value that is none, has expired, because otherwise no claim would ever match it.
pub(super) fn write_free_or_over(w: &mut Writer<'_>, locked: &Path, locked_at: &Path, lease: Duration) {
    let lease = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
    w.array("$or", |a| {
        a.nested(|w| w.nested(locked.as_str(), |w| write_free_values(w, "$in")));
        a.nested(|w| {
            w.nested("$expr", |w| {
                w.array("$lt", |a| {
                    a.nested(|w| write_milliseconds(w, locked_at));
                    a.nested(|w| {
                        w.array("$subtract", |a| {
                            a.nested(|w| w.string("$toLong", "$$NOW"));
                            a.slot().int64(lease);
                        });
                    });
                });
            });
        });
    });
}

/// Writes the time of a claim in milliseconds since 1970; 0 if it is none. The server converts to dates what has one
/// (dates, timestamps, texts), and to a number what is left of the types: numbers and booleans.
fn write_milliseconds(w: &mut Writer<'_>, locked_at: &Path) {
    let time = value(locked_at);
    w.nested("$convert", |w| {
        w.nested("input", |w| {
            w.nested("$convert", |w| {
                w.string("input", &time);
                w.string("to", "date");
                w.string("onError", &time);
            });
        });
        w.string("to", "long");
        w.slot("onError").int64(0);
        w.slot("onNull").int64(0);
    });
}

/// Returns the expression for the time of a claim in milliseconds since 1970. It is null if the value is not a time.
pub(super) fn milliseconds(locked_at: &Path) -> Bson {
    let time = value(locked_at);
    let date = doc! {"$convert": {"input": &time, "to": "date", "onError": &time}};
    doc! {"$convert": {"input": date, "to": "long", "onError": Bson::Null, "onNull": 0_i64}}.into()
}

/// Writes the condition of a save that keeps the lock: the job is locked.
pub(super) fn write_taken(w: &mut Writer<'_>, locked: &Path) {
    w.nested(locked.as_str(), |w| write_free_values(w, "$nin"));
}

fn write_free_values(w: &mut Writer<'_>, operator: &str) {
    w.array(operator, |a| {
        a.slot().boolean(false);
        a.slot().null();
        a.int32(0);
    });
}

#[cfg(test)]
mod tests {
    use bson::raw::RawDocumentBuf;

    use super::*;

    fn bytes(document: &bson::Document) -> Vec<u8> {
        RawDocumentBuf::try_from(document).unwrap().into_bytes()
    }

    #[test]
    fn filters_prove_locks_free() {
        let locked = Path::parse("l").unwrap();
        for (filter, proves) in [
            (doc! {"l": false}, true),
            (doc! {"l": null}, true),
            (doc! {"l": 0.0}, true),
            (doc! {"l": {"$in": [false, null]}}, true),
            (doc! {"l": {"$exists": false}}, true),
            (doc! {"$and": [{"a": 1}, {"$and": [{"l": {"$eq": 0}}]}]}, true),
            (doc! {"l": true}, false),
            (doc! {"l": {"$ne": true}}, false),
            (doc! {"l": {"$in": [false, true]}}, false),
            (doc! {"l": {"$in": []}}, false),
            (doc! {"$or": [{"l": false}, {"a": 1}]}, false),
            (doc! {"a": false}, false),
        ] {
            let raw = bytes(&filter);
            assert_eq!(proves_free(Document::parse(&raw).unwrap(), &locked), proves, "{filter}");
        }
    }

    #[test]
    fn claims_and_the_check_of_stored_jobs_read_the_same_time() {
        let locked_at = Path::parse("a.t").unwrap();
        let mut checked = milliseconds(&locked_at).as_document().unwrap().clone();
        // A claim takes a value that is not a time as expired.
        checked.get_document_mut("$convert").unwrap().insert("onError", 0_i64);
        assert_eq!(crate::document::document(|w| write_milliseconds(w, &locked_at)), bytes(&checked));
    }

    #[test]
    fn a_claim_drops_conditions_on_the_lock() {
        let locked = Path::parse("l").unwrap();
        for (filter, kept) in [
            (doc! {"a": 1, "l": false}, doc! {"a": 1}),
            (doc! {"l": {"$ne": true}}, doc! {}),
            (doc! {"l": {"$exists": true, "$ne": 1}}, doc! {"l": {"$exists": true}}),
            (doc! {"l": {"$nin": [true, 1]}}, doc! {}),
            (doc! {"l": {"$not": {"$eq": true}}}, doc! {}),
            (doc! {"$and": [{"a": 1, "l": false}, {"l": {"$in": [false, null]}}]}, doc! {"$and": [{"a": 1}]}),
            (doc! {"$and": [{"l": null}]}, doc! {}),
            (doc! {"l": "w1"}, doc! {"l": "w1"}),
            (doc! {"l": true, "s": {"$lt": 5}}, doc! {"l": true, "s": {"$lt": 5}}),
            (doc! {"$or": [{"l": false}, {"s": {"$lt": 5}}]}, doc! {"$or": [{"l": false}, {"s": {"$lt": 5}}]}),
        ] {
            let raw = bytes(&filter);
            let written = crate::document::document(|w| write_others(w, Document::parse(&raw).unwrap(), &locked));
            assert_eq!(written, bytes(&kept), "{filter}");
        }
    }
}
