//! Writes to protected fields together with operators that a pipeline cannot express (`$push` with `$sort`, array
//! filters, positional paths, `$setOnInsert` of an upsert). The operators are sent without the stale writes.
//!
//! The stored document's timestamps, read in one transaction with the statement, show which writes are stale. A stale
//! write still creates the documents around its field, as it does in a pipeline.

use std::collections::BTreeMap;

use super::Timestamps;
use super::pipeline::FieldTimestamp;
use super::settings::{TimestampBytes, TimestampScope, TimestampType};
use super::writes::{NewValue, PathChange, PathWrite, PathWrites, WriteList};
use crate::command::{Modification, Operation, Update};
use crate::document::{CowDocument, Document, Path, PathLookup, Value, Writer};
use crate::patterns::procedure::{ActionResult, NextAction, Procedure, ProcedureRun};
use crate::patterns::{NoEffect, Rejection};

/// What the reply shows if an update has no effect.
pub(super) const STALE: NoEffect = NoEffect::stale("it changed nothing: what is stored is as new or newer");

/// A statement with protected writes.
#[derive(Debug, Clone)]
pub(super) struct OperatorsProcedure {
    store: String,
    per: TimestampScope,
    timestamp_type: TimestampType,
    /// The protected paths that it writes, and their times.
    protected: Vec<(String, TimestampBytes)>,
    /// Protected paths of its filter, which an upsert inserts.
    pinned: Vec<(String, TimestampBytes)>,
}

impl OperatorsProcedure {
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

    /// Returns whether the write of the field at `path` is stale for a document with these timestamps.
    fn is_stale(&self, stored: Document<'_>, path: &str, time: TimestampBytes) -> bool {
        let timestamp = match self.per {
            TimestampScope::Document => stored.get(self.store.as_str()),
            TimestampScope::Field => {
                stored.get(self.store.as_str()).and_then(Value::as_document).and_then(|timestamps| {
                    match Path::parse(path)?.lookup(timestamps) {
                        PathLookup::Found(timestamp) => Some(timestamp),
                        PathLookup::Missing | PathLookup::Blocked(_) => None,
                    }
                })
            }
        };
        timestamp.is_some_and(|timestamp| self.timestamp_type.is_newer(timestamp, time))
    }

    /// Returns the projection of the stored document: the timestamps, and the documents around protected fields.
    fn needed(&self) -> CowDocument<'static> {
        let nested = self.protected.iter().filter_map(|(path, _)| path.split_once('.').map(|(root, _)| root));
        let mut roots: Vec<&str> = nested.chain([self.store.as_str()]).collect();
        roots.sort_unstable();
        roots.dedup();
        CowDocument::build(|w| roots.iter().for_each(|root| w.int32(*root, 1)))
    }

    /// Returns the protected writes that are not stale.
    fn current<'s>(&'s self, stored: Document<'_>) -> Vec<&'s (String, TimestampBytes)> {
        self.protected.iter().filter(|(path, time)| !self.is_stale(stored, path, *time)).collect()
    }

    /// Returns `operators` with only the protected writes in `current`, and their timestamps, for this stored document.
    /// Without an upsert the client's `$setOnInsert` of timestamps has no effect, and the server must not fail it
    /// because docward sets them.
    fn applied<'a>(
        &self,
        operators: Document<'_>,
        upsert: bool,
        current: &[&(String, TimestampBytes)],
        stored: Document<'_>,
    ) -> CowDocument<'a> {
        let path_is = |path: &str, key: &[u8]| path.as_bytes() == key;
        let is_stale = |key: &[u8]| {
            self.protected.iter().any(|(path, _)| path_is(path, key))
                && !current.iter().any(|(path, _)| path_is(path, key))
        };
        let is_timestamp = |key: &[u8]| {
            key.strip_prefix(self.store.as_bytes()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
        };
        let is_kept = |key: &[u8]| !is_stale(key) && !is_timestamp(key);
        CowDocument::build(|w| {
            w.nested("$set", |w| {
                let set = operators.get("$set").and_then(Value::as_document).unwrap_or(Document::EMPTY);
                set.elements().filter(|field| is_kept(field.key)).for_each(|field| w.element(field));
                self.write_timestamps(w, current, stored);
            });
            for operator in operators.elements().filter(|operator| operator.key != b"$set") {
                let is_stripped =
                    matches!(operator.key, b"$unset" | b"$currentDate") || operator.key == b"$setOnInsert" && !upsert;
                if !is_stripped {
                    w.element(operator);
                    continue;
                }
                let fields = operator.value.as_document().unwrap_or(Document::EMPTY);
                let kept = || fields.elements().filter(|field| is_kept(field.key));
                if kept().next().is_some() {
                    w.nested(operator.key, |w| kept().for_each(|field| w.element(field)));
                }
            }
        })
    }

    /// Returns the updates that create the missing documents around stale fields. A field that the write removes needs
    /// none.
    fn creations(&self, operators: Document<'_>, stored: Document<'_>) -> Vec<CowDocument<'static>> {
        let Some(id) = stored.get("_id").filter(|_| self.per == TimestampScope::Field) else { return Vec::new() };
        let unset = operators.get("$unset").and_then(Value::as_document).unwrap_or(Document::EMPTY);
        let stale = self.protected.iter().filter(|(path, time)| self.is_stale(stored, path, *time));
        let creating = stale.filter(|(path, _)| unset.get(path).is_none());
        let around = creating.filter_map(|(path, _)| path.rsplit_once('.').map(|(around, _)| around));
        let missing = around.filter(|around| {
            Path::parse(around).is_some_and(|around| matches!(around.lookup(stored), PathLookup::Missing))
        });
        let creation = |around: &str| {
            CowDocument::build(|w| {
                w.nested("q", |w| {
                    w.value("_id", id);
                    // The statement may have created it.
                    w.nested(around, |w| w.boolean("$exists", false));
                });
                w.nested("u", |w| w.nested("$set", |w| w.nested(around, |_| {})));
            })
        };
        missing.map(creation).collect()
    }

    /// Writes the timestamps. A stored value that is not a document is replaced by one, as it is in a pipeline.
    fn write_timestamps(&self, w: &mut Writer<'_>, current: &[&(String, TimestampBytes)], stored: Document<'_>) {
        match self.per {
            TimestampScope::Field => {
                let mut replaced: BTreeMap<&str, WriteList<'_>> = BTreeMap::new();
                for (path, time) in current {
                    match self.blocked(stored, path) {
                        Some((odd, below)) => {
                            let change = PathChange::Put(NewValue::Value(self.timestamp_type.value(time)));
                            replaced.entry(odd).or_default().push(PathWrite { path: below, change });
                        }
                        None => w.value(format!("{}.{path}", self.store), self.timestamp_type.value(time)),
                    }
                }
                for (odd, writes) in replaced {
                    // Protected paths are distinct and do not contain each other.
                    let Ok(timestamps) = PathWrites::new(writes) else { continue };
                    let dot = if odd.is_empty() { "" } else { "." };
                    w.nested([&self.store, dot, odd].concat(), |w| timestamps.tree().write_values(w));
                }
            }
            TimestampScope::Document => {
                if let Some((_, time)) = current.first() {
                    w.value(&self.store, self.timestamp_type.value(time));
                }
            }
        }
    }

    /// Splits a timestamp's path at a stored value that is not a document: into the path of this value (empty for the
    /// store itself) and the rest below it.
    fn blocked<'p>(&self, stored: Document<'_>, path: &'p str) -> Option<(&'p str, &'p str)> {
        let mut value = stored.get(self.store.as_str())?;
        let mut start = 0;
        loop {
            let below = path.get(start..)?;
            let Some(document) = value.as_document() else {
                return Some((path.get(..start)?.trim_end_matches('.'), below));
            };
            let (name, _) = below.split_once('.')?;
            value = document.get(name)?;
            start += name.len() + 1;
        }
    }
}

impl Procedure for OperatorsProcedure {
    fn begin(&self) -> Box<dyn ProcedureRun> {
        Box::new(OperatorsRun { statement: self.clone(), stage: OperatorsStage::Start, creations: Vec::new() })
    }

    /// The statement as the pipeline that it would be without its operators: each protected write either takes place
    /// or keeps what is stored, and the stage has all timestamps.
    fn widest<'a>(&self, operation: &Operation<'a>) -> Option<Operation<'a>> {
        let Operation::Update(update) = operation else { return None };
        let Modification::Operators(operators) = &update.modification else { return None };
        // The longest form: with the documents around the timestamps.
        let replaced = CowDocument::build(|w| w.null(&self.store));
        let write_all = |w: &mut Writer<'_>, timestamped: &[(String, TimestampBytes)]| {
            let timestamped: Vec<_> = timestamped.iter().collect();
            self.write_timestamps(w, &timestamped, replaced.as_document());
        };
        let stage = CowDocument::build(|w| {
            w.elements(operators.as_document());
            w.nested("$set", |w| write_all(w, &self.protected));
            w.nested("$setOnInsert", |w| write_all(w, &self.pinned));
        });
        let modification = Modification::stage(stage, update.modification.clone(), true);
        Some(Operation::Update(Update { modification, ..update.clone() }))
    }

    fn no_effect(&self) -> Option<NoEffect> {
        Some(STALE)
    }
}

#[derive(Debug)]
struct OperatorsRun {
    statement: OperatorsProcedure,
    stage: OperatorsStage,
    /// The updates after the client's statement.
    creations: Vec<CowDocument<'static>>,
}

#[derive(Debug, Clone, Copy)]
enum OperatorsStage {
    Start,
    Selected,
    Applied,
}

impl ProcedureRun for OperatorsRun {
    fn next<'a>(&mut self, operation: &Operation<'a>, result: ActionResult<'_>) -> NextAction<'a> {
        match (self.stage, result) {
            (OperatorsStage::Start, _) => {
                self.stage = OperatorsStage::Selected;
                NextAction::Select { limit: 1, fields: self.statement.needed() }
            }
            (OperatorsStage::Selected, ActionResult::Documents(found)) => {
                self.stage = OperatorsStage::Applied;
                self.apply(operation, found.first().copied())
            }
            (OperatorsStage::Applied, _) if self.creations.is_empty() => NextAction::Finish,
            (OperatorsStage::Applied, _) => NextAction::Update(std::mem::take(&mut self.creations)),
            (OperatorsStage::Selected, _) => NextAction::Reject(Rejection::unexpected_reply()),
        }
    }
}

impl OperatorsRun {
    fn apply<'a>(&mut self, operation: &Operation<'a>, stored: Option<Document<'_>>) -> NextAction<'a> {
        let Operation::Update(update) = operation else { return NextAction::Reject(Rejection::unexpected_reply()) };
        let Modification::Operators(operators) = &update.modification else {
            return NextAction::Reject(Rejection::unexpected_reply());
        };
        let mut timestamped = self.statement.current(stored.unwrap_or(Document::EMPTY));
        if stored.is_none() {
            timestamped.extend(&self.statement.pinned);
        }
        let document = stored.unwrap_or(Document::EMPTY);
        self.creations = self.statement.creations(operators.as_document(), document);
        let mut update = update.clone();
        if let Some(id) = stored.and_then(|stored| stored.get("_id")) {
            // The document that docward read.
            update.conditions.push(CowDocument::build(|w| w.value("_id", id)));
            update.upsert = false;
        }
        let applied = self.statement.applied(operators.as_document(), update.upsert, &timestamped, document);
        update.modification = Modification::Operators(applied);
        NextAction::Apply(Operation::Update(update))
    }
}
