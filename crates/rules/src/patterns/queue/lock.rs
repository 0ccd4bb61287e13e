//! What the value of a lock means: as a value, in filters, and as conditions for the server.

use std::time::Duration;

use bson::{Bson, doc};

use super::super::number::sign;
use crate::document::{Document, Kind, OwnedValue, Path, Value, Writer};
use crate::effect::condition_operators;
use crate::patterns::stored_data::{not, value};

/// What the values of a lock mean. A job without one is free.
#[derive(Debug, Clone, Default)]
pub(super) enum LockValues {
    /// False, null and zero: free. Any other value: claimed until the lease ends.
    #[default]
    Flag,
    /// Null and the words of `free`: free. The words of `claimed`: claimed until the lease ends. Any other value: neither, so
    /// that no worker has the job and no claim takes it.
    Words { free: Vec<String>, claimed: Vec<String> },
}

/// Conditions below this depth are left as they are.
const MAX_DEPTH: usize = 100;

fn is_one_of(words: &[String], value: Value<'_>) -> bool {
    value.as_str().is_some_and(|value| words.iter().any(|word| word == value))
}

impl LockValues {
    /// Returns whether a job with this value in its lock is free.
    pub(super) fn is_free(&self, value: Value<'_>) -> bool {
        let is_null = matches!(value.kind, Kind::Null | Kind::Undefined);
        match self {
            Self::Flag => is_null || value.as_bool() == Some(false) || sign(value) == Some(std::cmp::Ordering::Equal),
            Self::Words { free, .. } => is_null || is_one_of(free, value),
        }
    }

    /// Returns whether a job with this value in its lock is claimed, if its lease is not over.
    pub(super) fn is_claimed(&self, value: Value<'_>) -> bool {
        match self {
            Self::Flag => !self.is_free(value),
            Self::Words { claimed, .. } => is_one_of(claimed, value),
        }
    }

    /// Returns the value of a new job.
    pub(super) fn free(&self) -> OwnedValue {
        match self {
            Self::Words { free, .. } if let Some(word) = free.first() => OwnedValue::string(word),
            _ => OwnedValue::boolean(false),
        }
    }

    /// Returns a value that claims a job.
    pub(super) fn claimed(&self) -> OwnedValue {
        match self {
            Self::Words { claimed, .. } if let Some(word) = claimed.first() => OwnedValue::string(word),
            _ => OwnedValue::boolean(true),
        }
    }

    /// Returns the expression that a stored job is claimed, if its lease is not over.
    pub(super) fn is_claimed_expression(&self, locked: &Path) -> Bson {
        match self {
            Self::Flag => not(doc! {"$in": [{"$ifNull": [value(locked), false]}, [false, 0]]}),
            Self::Words { claimed, .. } => doc! {"$in": [value(locked), claimed]}.into(),
        }
    }

    /// Returns whether the filter matches only jobs that no worker has. `folds`: under a collation, which may equate words.
    pub(super) fn proves_unclaimed(&self, filter: Document<'_>, locked: &Path, folds: bool) -> bool {
        self.proves_unclaimed_at(filter, locked, folds, 0)
    }

    fn proves_unclaimed_at(&self, filter: Document<'_>, locked: &Path, folds: bool, depth: usize) -> bool {
        // Other types may be patterns, or match inside an array.
        let is_unclaimed = |value: Value<'_>| match value.kind {
            Kind::String => !folds && !self.is_claimed(value),
            _ => self.is_free(value),
        };
        filter.elements().any(|element| match element.key {
            b"$and" if depth < MAX_DEPTH => {
                branches(element.value).any(|branch| self.proves_unclaimed_at(branch, locked, folds, depth + 1))
            }
            key if key == locked.as_str().as_bytes() => match condition_operators(element.value) {
                Some(operators) => operators.elements().any(|one| demands(one.key, one.value, is_unclaimed)),
                None => is_unclaimed(element.value),
            },
            _ => false,
        })
    }

    /// Returns whether a client's operator excludes claimed jobs: it would also exclude those whose lease has ended.
    fn keeps_claimed_out(&self, operator: &[u8], operand: Value<'_>) -> bool {
        let is_claim = |value: Value<'_>| match self {
            Self::Flag => value.as_flag() == Some(true),
            Self::Words { .. } => self.is_claimed(value),
        };
        match operator {
            b"$ne" => is_claim(operand),
            b"$nin" => operand.as_array().is_some_and(|values| values.values().all(is_claim)),
            b"$not" => condition_operators(operand).is_some_and(|negated| {
                negated.elements().all(|operator| operator.key == b"$eq" && is_claim(operator.value))
            }),
            _ => demands(operator, operand, |value| self.is_free(value)),
        }
    }

    /// Writes a claim's conditions except those that require a free lock: the rule's own condition replaces them.
    pub(super) fn write_others(&self, w: &mut Writer<'_>, filter: Document<'_>, locked: &Path) {
        self.write_others_at(w, filter, locked, 0);
    }

    fn write_others_at(&self, w: &mut Writer<'_>, filter: Document<'_>, locked: &Path, depth: usize) {
        for element in filter.elements() {
            match element.key {
                // One that the server rejects stays, so that it rejects it.
                b"$and" if depth < MAX_DEPTH && are_documents(element.value) => {
                    let branches: Vec<Vec<u8>> = branches(element.value)
                        .map(|branch| crate::document::document(|w| self.write_others_at(w, branch, locked, depth + 1)))
                        .collect();
                    let kept =
                        || branches.iter().filter_map(|branch| Document::parse(branch).ok()).filter(|b| !b.is_empty());
                    if kept().next().is_some() {
                        w.array("$and", |a| kept().for_each(|branch| a.value(Value::document(branch))));
                    }
                }
                key if key == locked.as_str().as_bytes() => match condition_operators(element.value) {
                    Some(operators) => {
                        let kept = || operators.elements().filter(|one| !self.keeps_claimed_out(one.key, one.value));
                        if kept().next().is_some() {
                            w.nested(key, |w| kept().for_each(|operator| w.element(operator)));
                        }
                    }
                    None if self.is_free(element.value) => {}
                    None => w.element(element),
                },
                _ => w.element(element),
            }
        }
    }

    /// Writes the condition of a claim: the lock is free, or its time is longer ago than the lease by the server's clock.
    /// A lock without a time, or with a value that is none, has expired, because otherwise no claim would ever match it.
    pub(super) fn write_free_or_over(&self, w: &mut Writer<'_>, locked: &Path, locked_at: &Path, lease: Duration) {
        let lease = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
        w.array("$or", |a| {
            a.nested(|w| w.nested(locked.as_str(), |w| self.write_free_values(w, "$in")));
            a.nested(|w| {
                if matches!(self, Self::Words { .. }) {
                    self.write_claimed(w, locked);
                }
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

    /// Writes the condition of a save that keeps the lock: the job is claimed.
    pub(super) fn write_claimed(&self, w: &mut Writer<'_>, locked: &Path) {
        w.nested(locked.as_str(), |w| match self {
            Self::Flag => self.write_free_values(w, "$nin"),
            Self::Words { claimed, .. } => w.array("$in", |a| claimed.iter().for_each(|word| a.string(word))),
        });
    }

    fn write_free_values(&self, w: &mut Writer<'_>, operator: &str) {
        w.array(operator, |a| match self {
            Self::Flag => {
                a.slot().boolean(false);
                a.slot().null();
                a.int32(0);
            }
            Self::Words { free, .. } => {
                free.iter().for_each(|word| a.string(word));
                a.slot().null();
            }
        });
    }
}

/// Returns whether an operator matches only such values, or no value: `{$eq: false}`, `{$in: [false, null]}`,
/// `{$exists: false}`.
fn demands(operator: &[u8], operand: Value<'_>, is_such: impl Fn(Value<'_>) -> bool) -> bool {
    match operator {
        b"$eq" => is_such(operand),
        b"$in" => operand.as_array().is_some_and(|values| !values.is_empty() && values.values().all(is_such)),
        b"$exists" => operand.as_flag() == Some(false),
        _ => false,
    }
}

fn branches(value: Value<'_>) -> impl Iterator<Item = Document<'_>> {
    value.as_array().unwrap_or(Document::EMPTY).values().filter_map(Value::as_document)
}

fn are_documents(value: Value<'_>) -> bool {
    let all = |values: Document<'_>| values.values().all(|value| value.as_document().is_some());
    value.as_array().is_some_and(|values| !values.is_empty() && all(values))
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
            assert_eq!(
                LockValues::Flag.proves_unclaimed(Document::parse(&raw).unwrap(), &locked, false),
                proves,
                "{filter}"
            );
        }
    }

    #[test]
    fn words_are_free_claimed_or_neither() {
        let locked = Path::parse("l").unwrap();
        let values =
            LockValues::Words { free: vec!["QUEUED".into(), "RETRY".into()], claimed: vec!["CONSUMED".into()] };
        for (filter, proves, kept) in [
            (doc! {"l": "QUEUED"}, true, doc! {}),
            (doc! {"l": {"$in": ["QUEUED", "RETRY", null]}}, true, doc! {}),
            (doc! {"l": "DONE"}, true, doc! {"l": "DONE"}),
            (doc! {"l": {"$in": ["QUEUED", "DONE"]}}, true, doc! {"l": {"$in": ["QUEUED", "DONE"]}}),
            (doc! {"l": null}, true, doc! {}),
            (doc! {"l": "CONSUMED"}, false, doc! {"l": "CONSUMED"}),
            (doc! {"l": {"$ne": "CONSUMED"}}, false, doc! {}),
            (doc! {"l": {"$in": ["QUEUED", "CONSUMED"]}}, false, doc! {"l": {"$in": ["QUEUED", "CONSUMED"]}}),
            (
                doc! {"l": bson::Regex { pattern: "D".try_into().unwrap(), options: "".try_into().unwrap() }},
                false,
                doc! {"l": bson::Regex { pattern: "D".try_into().unwrap(), options: "".try_into().unwrap() }},
            ),
            (doc! {"l": false}, false, doc! {"l": false}),
        ] {
            let raw = bytes(&filter);
            let raw = Document::parse(&raw).unwrap();
            assert_eq!(values.proves_unclaimed(raw, &locked, false), proves, "{filter}");
            // A collation may equate words.
            assert!(!values.proves_unclaimed(raw, &locked, true) || filter.get("l") == Some(&Bson::Null), "{filter}");
            let written = crate::document::document(|w| values.write_others(w, raw, &locked));
            assert_eq!(written, bytes(&kept), "{filter}");
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
            let written = crate::document::document(|w| {
                LockValues::Flag.write_others(w, Document::parse(&raw).unwrap(), &locked)
            });
            assert_eq!(written, bytes(&kept), "{filter}");
        }
    }
}
