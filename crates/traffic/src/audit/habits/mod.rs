//! Counts what applications do to each collection, as far as a rule could prevent it. The size is bounded for any
//! traffic. [`super::CandidateRules`] makes rules of it.

mod arrays;
mod copied;
mod field;
mod jobs;
mod numbers;
mod paths;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};

pub(super) use arrays::{Arrays, Pushes};
pub(super) use copied::{Copied, CopiedValues, CopyKind};
pub(super) use field::FieldPurpose;
pub(super) use jobs::{Claims, Jobs};
pub(super) use numbers::{ComputedNumber, NumberHabits, Numbered, ReadAndSet};
pub(super) use paths::{Nodes, Paths};

use self::field::purpose;
use super::evaluation::AuditedCommand;
use super::known_documents::{FieldKnowledge, KnownDocument, KnownDocuments};
use super::recorded::{RecordedCommand, RecordedContent, TrafficConsumer};
use super::shape;
use super::tally::{CountedOutcome, ExampleText, ReportedOutcome, RuleTally};
use super::target::target;
use super::write::{self, operator};
use crate::command::{CommandClass, Namespace, Statement, StatementKind};
use crate::document::{CowDocument, Document, Element, OwnedValue, Value, compare_numbers};
use crate::effect::condition_operators;
use crate::fnv::hash_of;

/// The most collections counted; further ones are ignored.
const MAX_COLLECTIONS: usize = 10_000;
/// The most fields counted for one habit of one collection.
const MAX_FIELDS: usize = 50;
/// The most documents counted for one habit.
const MAX_DOCUMENTS: usize = 10_000;
/// The most applications whose last read of a largest number is kept.
const MAX_READERS: usize = 4096;

/// Times of application servers differ by less, in milliseconds; a write with an older time is late.
const MAX_SKEW: i64 = 1000;

/// The counts of all collections.
#[derive(Debug, Default)]
pub struct Habits {
    pub(super) counts: HabitCounts,
    pub(super) stored: KnownDocuments,
}

#[derive(Debug, Default)]
pub(super) struct HabitCounts {
    pub(super) collections: BTreeMap<String, CollectionCounts>,
    pub(super) copied: Copied,
    /// By reason: statements that the source does not contain.
    pub(super) unknown: BTreeMap<&'static str, u64>,
    /// By application: the collection and field of which it last read the largest number.
    largest_reads: HashMap<u64, (String, String)>,
    /// By application.
    computed: HashMap<u64, ComputedNumber>,
}

/// The counts of one collection.
#[derive(Debug, Default)]
pub(super) struct CollectionCounts {
    /// Replacements of whole documents.
    pub(super) replacements: Evidence,
    /// Replacements after the same connection had read the document.
    pub(super) after_reading: u64,
    /// Replacements with a condition other than `_id`.
    pub(super) conditional: u64,
    /// Replacements that remove a field.
    pub(super) removing: u64,
    /// Fields that they remove.
    pub(super) removed: BTreeSet<String>,
    /// Replacements of which it is known whether they remove a field.
    pub(super) compared: u64,
    /// Inserts, and writes that have no `$push` or `$addToSet`.
    pub(super) other_writes: u64,
    /// By version field: upserts of whole documents that contain it and can have inserted them.
    pub(super) inserting: BTreeMap<String, u64>,
    /// By field: decrements without a lower bound in the filter.
    pub(super) decrements: BTreeMap<String, Evidence>,
    pub(super) arrays: Arrays,
    /// By field: writes that contain it.
    pub(super) fields: BTreeMap<(FieldPurpose, String), Evidence>,
    /// By field with a time: writes with an older time than the stored one.
    pub(super) late: BTreeMap<String, LateWrites>,
    /// Updates with an empty filter.
    pub(super) empty_updates: Evidence,
    /// Deletes with an empty filter.
    pub(super) empty_deletes: Evidence,
    pub(super) numbers: NumberHabits,
    pub(super) jobs: Jobs,
    pub(super) paths: Paths,
}

/// Counts by application, with example shapes.
pub(super) type Evidence = RuleTally;

/// Writes with an older time than the stored one.
#[derive(Debug, Default)]
pub(super) struct LateWrites {
    pub(super) evidence: Evidence,
    /// Replacements of whole documents.
    pub(super) replacements: u64,
    /// Writes of a connection that had read the newer time: they set it back on purpose.
    pub(super) deliberate: u64,
}

/// A write, and what is known about its document.
pub(super) struct SeenWrite<'s> {
    recorded: &'s RecordedCommand,
    namespace: &'s str,
    command: Document<'s>,
    filter: Document<'s>,
    stored: &'s KnownDocuments,
    /// The document before the write.
    before: Option<KnownDocument<'s>>,
    /// The same connection had read the document.
    was_read: bool,
}

impl SeenWrite<'_> {
    /// Whether the client cannot know the document that it writes. Then it does not remove fields on purpose.
    fn is_changed_since_read(&self) -> bool {
        let connection = self.recorded.client.connection;
        self.before.is_some() && self.stored.is_changed_since_read(self.namespace, self.filter, connection)
    }

    /// Whether the write can have inserted its document; without a reply it is not known.
    fn may_insert(&self, write: &Statement<'_>) -> bool {
        let changed = self.recorded.reply.as_ref().and_then(|reply| reply.modified);
        write.is_upsert() && self.before.is_none() && changed.unwrap_or_default() == 0
    }

    /// Whether the write has inserted its document.
    fn inserts(&self, write: &Statement<'_>) -> bool {
        let reply = self.recorded.reply.as_ref();
        self.may_insert(write) && reply.is_some_and(|reply| reply.n == Some(1) && reply.modified == Some(0))
    }

    fn count(&self, evidence: &mut Evidence) {
        let (app, namespace) = (self.recorded.client.app.as_deref(), self.namespace);
        let noted = CountedOutcome {
            outcome: ReportedOutcome::Forward,
            statements: 1,
            app,
            users: None,
            at: None,
            namespace,
            reason: "",
        };
        evidence.count_example(&noted, shape(self.command), ExampleText::default);
    }

    fn count_field<K: Ord>(&self, fields: &mut BTreeMap<K, Evidence>, field: K) {
        if fields.len() < MAX_FIELDS || fields.contains_key(&field) {
            self.count(fields.entry(field).or_default());
        }
    }
}

/// Whether a command reads, writes or drops application data.
pub(super) fn uses_data(namespace: Namespace<'_>, class: CommandClass) -> bool {
    let is_relevant = matches!(
        class,
        CommandClass::Insert
            | CommandClass::Update
            | CommandClass::Delete
            | CommandClass::FindAndModify
            | CommandClass::Find
            | CommandClass::Aggregate
            | CommandClass::BulkWrite
            | CommandClass::Drop
    );
    is_relevant
        && !matches!(namespace.database, "config" | "local")
        && (namespace.database != "admin" || class == CommandClass::BulkWrite)
        && !namespace.collection.starts_with("system.")
}

impl TrafficConsumer for Habits {
    fn is_relevant(&self, namespace: Namespace<'_>, class: CommandClass, _command: &[u8]) -> bool {
        uses_data(namespace, class)
    }

    fn add_command(&mut self, recorded: &RecordedCommand) {
        let Self { counts, stored } = self;
        let is_single = match &recorded.content {
            RecordedContent::Command(command) => crate::engine::statements(command.as_document()).next().is_none(),
            RecordedContent::UnknownStatements(_) => true,
        };
        stored.evaluate_and_apply(recorded, |part, stored| match part {
            AuditedCommand::Command(command, _) => counts.command(command, recorded, stored, is_single),
            AuditedCommand::UnknownStatements(unknown) => {
                let count = counts.unknown.entry(unknown.reason).or_default();
                *count = count.saturating_add(unknown.statements);
            }
        });
    }
}

impl HabitCounts {
    fn command(
        &mut self,
        command: &CowDocument<'static>,
        recorded: &RecordedCommand,
        stored: &KnownDocuments,
        is_single: bool,
    ) {
        let document = command.as_document();
        let Some((target, class, _)) = target(document) else { return };
        if !uses_data(target, class) {
            return;
        }
        let namespace = target.to_string();
        let client = &recorded.client;
        // An application can use several connections.
        let sender = client.app.as_deref().map_or(client.connection, |app| hash_of(app.as_bytes()));
        if class == CommandClass::Find {
            if let Some(field) = numbers::largest_read(document) {
                if self.largest_reads.len() >= MAX_READERS {
                    self.largest_reads.clear();
                }
                self.largest_reads.insert(sender, (namespace, field.to_owned()));
            }
            return;
        }
        let Some(write) = Statement::first_of(document) else { return };
        if self.collections.len() >= MAX_COLLECTIONS && !self.collections.contains_key(&namespace) {
            return;
        }
        let seen = SeenWrite {
            recorded,
            namespace: &namespace,
            command: document,
            filter: write.filter(),
            stored,
            before: stored.selected(&namespace, write.filter()),
            was_read: stored.last_read(&namespace, write.filter(), client.connection).is_some(),
        };
        let failed = is_single && recorded.reply.as_ref().is_some_and(|reply| !reply.is_ok());
        let habits = self.collections.entry(namespace.clone()).or_default();
        match (write.kind(), write.stored()) {
            (StatementKind::Insert, Some(document)) => {
                let read = self.largest_reads.remove(&sender).filter(|(of, _)| *of == namespace);
                let computed = habits.numbers.insert(document, read.as_ref().map(|(_, field)| field.as_str()), &seen);
                habits.other_writes += 1;
                if !failed {
                    habits.paths.insert(document, &seen);
                    self.copied.insert(document, &seen);
                }
                if let Some(computed) = computed {
                    if self.computed.len() >= MAX_READERS {
                        self.computed.clear();
                    }
                    self.computed.insert(sender, computed);
                } else if let Some(computed) = self.computed.get_mut(&sender) {
                    computed.insert(document, &namespace, &mut self.collections);
                }
            }
            // A counter of its own gives the number.
            (StatementKind::Operators, _)
                if class == CommandClass::FindAndModify && operator(&write, "$inc").next().is_some() =>
            {
                self.largest_reads.remove(&sender);
                habits.write(&write, &seen);
            }
            _ if failed => {}
            _ => {
                habits.write(&write, &seen);
                self.copied.update(&write, &seen);
            }
        }
    }
}

impl CollectionCounts {
    fn write(&mut self, write: &Statement<'_>, seen: &SeenWrite<'_>) {
        let is_delete = write.kind() == StatementKind::Delete;
        if write.filter().is_empty() {
            seen.count(if is_delete { &mut self.empty_deletes } else { &mut self.empty_updates });
        }
        let pushes = ["$push", "$addToSet"].iter().any(|name| operator(write, name).next().is_some());
        self.other_writes += u64::from(!pushes);
        self.jobs.write(write, seen);
        self.arrays.write(write, seen);
        match write.kind() {
            StatementKind::Operators => {
                self.paths.update(write, seen);
                self.decrements(write, seen);
                operator(write, "$set").for_each(|element| self.purpose(element, write, seen));
                if seen.was_read {
                    self.numbers.update(write, seen);
                }
            }
            StatementKind::Replacement => self.replacement(write.stored().unwrap_or(Document::EMPTY), write, seen),
            StatementKind::Delete => self.paths.delete(write, seen),
            StatementKind::Insert | StatementKind::Pipeline => {}
        }
    }

    fn replacement(&mut self, document: Document<'_>, write: &Statement<'_>, seen: &SeenWrite<'_>) {
        self.paths.insert(document, seen);
        document.elements().for_each(|element| self.purpose(element, write, seen));
        if seen.may_insert(write) {
            self.inserting(document);
        }
        if seen.inserts(write) {
            return;
        }
        seen.count(&mut self.replacements);
        self.after_reading += u64::from(seen.was_read);
        self.conditional += u64::from(write::is_conditional(write));
        let before = seen.before.iter().flat_map(KnownDocument::elements);
        let mut removed = before
            .filter(|element| element.key != b"_id" && document.get(element.key).is_none())
            .filter_map(|element| std::str::from_utf8(element.key).ok())
            .filter(|name| seen.before.is_some_and(|before| matches!(before.field(name), FieldKnowledge::Value(_))))
            .peekable();
        let removes = !seen.is_changed_since_read() && removed.peek().is_some();
        self.compared += u64::from(seen.before.is_some_and(|before| before.has_no_others(document)));
        self.removing += u64::from(removes);
        for name in removed.filter(|_| removes) {
            if self.removed.len() < MAX_FIELDS {
                self.removed.insert(name.to_owned());
            }
        }
    }

    fn inserting(&mut self, document: Document<'_>) {
        for element in document.elements() {
            let Ok(name) = std::str::from_utf8(element.key) else { continue };
            let is_version = purpose(name, element.value) == Some(FieldPurpose::Version);
            if is_version && (self.inserting.len() < MAX_FIELDS || self.inserting.contains_key(name)) {
                *self.inserting.entry(name.to_owned()).or_default() += 1;
            }
        }
    }

    fn decrements(&mut self, write: &Statement<'_>, seen: &SeenWrite<'_>) {
        for element in operator(write, "$inc") {
            let zero = OwnedValue::int32(0);
            let down = compare_numbers(element.value, zero.as_value()).is_some_and(Ordering::is_lt);
            let Ok(field) = std::str::from_utf8(element.key) else { continue };
            if down && !write.filter().get(field).is_some_and(has_lower_bound) {
                seen.count_field(&mut self.decrements, field.to_owned());
            }
        }
    }

    fn purpose(&mut self, element: Element<'_>, write: &Statement<'_>, seen: &SeenWrite<'_>) {
        let Element { key: field, value, .. } = element;
        let Ok(name) = std::str::from_utf8(field) else { return };
        let Some(purpose) = purpose(name, value) else { return };
        seen.count_field(&mut self.fields, (purpose, name.to_owned()));
        let stored = seen.before.and_then(|before| before.field(name).value()?.as_date());
        let is_late =
            value.as_date().zip(stored).is_some_and(|(written, stored)| stored.saturating_sub(written) > MAX_SKEW);
        if purpose == FieldPurpose::Time && is_late && (self.late.len() < MAX_FIELDS || self.late.contains_key(name)) {
            let late = self.late.entry(name.to_owned()).or_default();
            seen.count(&mut late.evidence);
            late.replacements += u64::from(write.kind() == StatementKind::Replacement);
            late.deliberate += u64::from(seen.was_read && !seen.is_changed_since_read());
        }
    }
}

/// Whether a condition limits how small a number can be.
fn has_lower_bound(condition: Value<'_>) -> bool {
    const BOUNDS: [&[u8]; 4] = [b"$gte", b"$gt", b"$eq", b"$in"];
    match condition_operators(condition) {
        Some(operators) => operators.elements().any(|element| BOUNDS.contains(&element.key)),
        None => true,
    }
}
