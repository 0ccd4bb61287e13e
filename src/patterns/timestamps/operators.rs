//! Writes to protected fields beside operators that a pipeline cannot express (`$push` with `$sort`, array filters,
//! positional paths, `$setOnInsert` of an upsert): the operators themselves, without the writes that are late.
//!
//! Which ones are late is read from the stored document's timestamps, in one transaction with the statement.

use super::Timestamps;
use super::pipeline::FieldTimestamp;
use super::settings::{Per, Time, TimestampType};
use super::writes::{Change, Put, Write, Writes};
use crate::command::{Modification, Operation, Update};
use crate::document::{CowDocument, Document, Lookup, Path, Value, Writer, document};
use crate::patterns::Rejection;
use crate::patterns::procedure::{ActionResult, NextAction, Procedure, ProcedureRun};

/// A statement with protected writes.
#[derive(Debug, Clone)]
pub(super) struct InOperators {
    store: String,
    per: Per,
    timestamp_type: TimestampType,
    /// The protected paths that it writes, and when.
    protected: Vec<(String, Time)>,
    /// Protected paths that its filter puts into a document that it inserts.
    pinned: Vec<(String, Time)>,
}

impl InOperators {
    pub(super) fn new(rule: &Timestamps, protected: &[FieldTimestamp<'_>], pinned: &[FieldTimestamp<'_>]) -> Self {
        let owned = |timestamps: &[FieldTimestamp<'_>]| {
            timestamps.iter().map(|timestamp| (timestamp.path.to_owned(), timestamp.time)).collect()
        };
        Self {
            store: rule.store.clone(),
            per: rule.per,
            timestamp_type: rule.timestamp_type,
            protected: owned(protected),
            pinned: owned(pinned),
        }
    }

    /// Whether the write of the field at `path` is late for the document with these timestamps.
    fn is_late(&self, stored: Document<'_>, path: &str, time: Time) -> bool {
        let timestamp = match self.per {
            Per::Document => stored.get(self.store.as_str()),
            Per::Field => stored.get(self.store.as_str()).and_then(Value::as_document).and_then(|timestamps| {
                match Path::parse(path)?.lookup(timestamps) {
                    Lookup::Found(timestamp) => Some(timestamp),
                    Lookup::Missing | Lookup::Blocked(_) => None,
                }
            }),
        };
        timestamp.is_some_and(|timestamp| self.timestamp_type.is_newer(timestamp, time))
    }

    /// The protected writes that are not late.
    fn timely<'s>(&'s self, stored: Document<'_>) -> Vec<&'s (String, Time)> {
        self.protected.iter().filter(|(path, time)| !self.is_late(stored, path, *time)).collect()
    }

    /// `operators` with the protected writes of `timely` only, and their timestamps, for this stored document.
    fn applied<'a>(
        &self,
        operators: Document<'_>,
        timely: &[&(String, Time)],
        stored: Document<'_>,
    ) -> CowDocument<'a> {
        let path_is = |path: &str, key: &[u8]| path.as_bytes() == key;
        let is_late = |key: &[u8]| {
            self.protected.iter().any(|(path, _)| path_is(path, key))
                && !timely.iter().any(|(path, _)| path_is(path, key))
        };
        let is_stamp = |key: &[u8]| {
            key.strip_prefix(self.store.as_bytes()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
        };
        let is_kept = |key: &[u8]| !is_late(key) && !is_stamp(key);
        CowDocument::build(|w| {
            w.nested("$set", |w| {
                let set = operators.get("$set").and_then(Value::as_document).unwrap_or(Document::EMPTY);
                set.elements().filter(|field| is_kept(field.key)).for_each(|field| w.element(field));
                self.write_timestamps(w, timely, stored);
            });
            for operator in operators.elements().filter(|operator| operator.key != b"$set") {
                let name = match operator.key {
                    b"$unset" => "$unset",
                    b"$currentDate" => "$currentDate",
                    _ => {
                        w.element(operator);
                        continue;
                    }
                };
                let fields = operator.value.as_document().unwrap_or(Document::EMPTY);
                w.nested(name, |w| {
                    fields.elements().filter(|field| is_kept(field.key)).for_each(|field| w.element(field));
                });
            }
        })
    }

    /// A store that is no document holds no timestamps: one takes its place, as it does in a pipeline.
    fn write_timestamps(&self, w: &mut Writer<'_>, timely: &[&(String, Time)], stored: Document<'_>) {
        let is_document = stored.get(self.store.as_str()).is_none_or(|store| store.as_document().is_some());
        match self.per {
            Per::Field if !is_document && !timely.is_empty() => {
                let writes = timely.iter().map(|(path, time)| {
                    let value = self.timestamp_type.value(time);
                    Write { path, change: Change::Put(Put::Value(value)) }
                });
                // Protected paths are distinct, and none lies in another.
                if let Ok(timestamps) = Writes::new(writes.collect()) {
                    w.nested(&self.store, |w| timestamps.tree().write_values(w));
                }
            }
            Per::Field => timely.iter().for_each(|(path, time)| {
                w.value(format!("{}.{path}", self.store), self.timestamp_type.value(time));
            }),
            Per::Document => {
                if let Some((_, time)) = timely.first() {
                    w.value(&self.store, self.timestamp_type.value(time));
                }
            }
        }
    }
}

impl Procedure for InOperators {
    fn begin(&self) -> Box<dyn ProcedureRun> {
        Box::new(Applying { statement: self.clone(), stage: Stage::Start })
    }
}

#[derive(Debug)]
struct Applying {
    statement: InOperators,
    stage: Stage,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    Start,
    Selected,
    Applied,
}

impl ProcedureRun for Applying {
    fn next<'a>(&mut self, operation: &Operation<'a>, heard: ActionResult<'_>) -> NextAction<'a> {
        match (self.stage, heard) {
            (Stage::Start, _) => {
                self.stage = Stage::Selected;
                let fields = document(|w| w.int32(self.statement.store.as_str(), 1));
                NextAction::Select { limit: 1, fields }
            }
            (Stage::Selected, ActionResult::Documents(found)) => {
                self.stage = Stage::Applied;
                self.apply(operation, found.first().copied())
            }
            (Stage::Applied, _) => NextAction::Finish,
            (Stage::Selected, _) => NextAction::Reject(lost()),
        }
    }
}

impl Applying {
    fn apply<'a>(&self, operation: &Operation<'a>, stored: Option<Document<'_>>) -> NextAction<'a> {
        let Operation::Update(update) = operation else { return NextAction::Reject(lost()) };
        let Modification::Operators(operators) = &update.modification else { return NextAction::Reject(lost()) };
        let mut timestamped = self.statement.timely(stored.unwrap_or(Document::EMPTY));
        if stored.is_none() {
            timestamped.extend(&self.statement.pinned);
        }
        let document = stored.unwrap_or(Document::EMPTY);
        let operators =
            Modification::Operators(self.statement.applied(operators.as_document(), &timestamped, document));
        let mut update = Update { modification: operators, ..update.clone() };
        if let Some(id) = stored.and_then(|stored| stored.get("_id")) {
            // The one that was looked at.
            update.conditions.push(CowDocument::build(|w| w.value("_id", id)));
            update.upsert = false;
        }
        NextAction::Apply(Operation::Update(update))
    }
}

fn lost() -> Rejection {
    Rejection::new("docward lost its place in it", "Tell the DBA.")
}
