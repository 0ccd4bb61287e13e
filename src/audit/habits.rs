//! Counts what applications do to each collection, as far as a rule could prevent it. The size is bounded for any
//! traffic. [`super::propose`] makes rules of it.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use super::field::{Purpose, purpose};
use super::recorded::{Content, RecordedCommand, fnv_hash};
use super::shape;
use super::tally::{Effect, Noted, RuleTally};
use crate::command::{CommandClass, Namespace, classify};
use crate::document::{CowDocument, Document, Kind, Value};
use crate::engine::statements;

/// The most collections counted; further ones are ignored.
const MAX_COLLECTIONS: usize = 10_000;
/// The most fields counted for one habit of one collection.
const MAX_FIELDS: usize = 50;
/// The most connections whose reads are kept.
const MAX_READERS: usize = 4096;
/// The most reads kept for one connection.
const MAX_READS: usize = 32;

/// The counts of all collections.
#[derive(Debug, Default)]
pub struct Habits {
    pub(super) collections: BTreeMap<String, Collection>,
    /// By connection: its last reads, as hashes of namespace and `_id`.
    reads: HashMap<u64, VecDeque<u64>>,
}

/// The counts of one collection.
#[derive(Debug, Default)]
pub(super) struct Collection {
    /// Replacements of whole documents.
    pub(super) replacements: Evidence,
    /// Replacements after the same connection had read the document.
    pub(super) after_reading: u64,
    /// Replacements with a condition other than `_id`.
    pub(super) conditional: u64,
    /// By field: decrements without a lower bound in the filter.
    pub(super) decrements: BTreeMap<String, Evidence>,
    /// By array: `$push` without `$slice`, and `$addToSet`.
    pub(super) pushes: BTreeMap<String, Evidence>,
    /// Fields that are overwritten or unset, and arrays from which elements are removed.
    pub(super) shrinking: HashSet<String>,
    /// By field: writes that contain it.
    pub(super) fields: BTreeMap<(Purpose, String), Evidence>,
    /// Updates with an empty filter.
    pub(super) empty_updates: Evidence,
    /// Deletes with an empty filter.
    pub(super) empty_deletes: Evidence,
}

/// Counts by application, with example shapes.
pub(super) type Evidence = RuleTally;

impl Habits {
    /// Whether a command is relevant: it reads or writes application data.
    #[must_use]
    pub fn wants(namespace: Namespace<'_>, class: CommandClass) -> bool {
        let writes = matches!(
            class,
            CommandClass::Update | CommandClass::Delete | CommandClass::FindAndModify | CommandClass::Find
        );
        writes
            && !matches!(namespace.database, "admin" | "config" | "local" | "docward")
            && !namespace.collection.starts_with("system.")
    }

    /// Counts one command.
    pub fn take(&mut self, recorded: &RecordedCommand) {
        let Content::Command(command) = &recorded.content else { return };
        let mut each = statements(command.as_document()).peekable();
        if each.peek().is_none() {
            self.command(command, recorded);
        }
        each.for_each(|one| self.command(&one, recorded));
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: Self) {
        for (name, habits) in other.collections {
            if self.collections.len() < MAX_COLLECTIONS || self.collections.contains_key(&name) {
                self.collections.entry(name).or_default().merge(habits);
            }
        }
    }

    fn command(&mut self, command: &CowDocument<'static>, recorded: &RecordedCommand) {
        let document = command.as_document();
        let Some(first) = document.first() else { return };
        let (Some(database), Some(collection)) = (document.get("$db").and_then(Value::as_str), first.value.as_str())
        else {
            return;
        };
        let class = classify(first.key);
        if !Self::wants(Namespace { database, collection }, class) {
            return;
        }
        let namespace = format!("{database}.{collection}");
        if class == CommandClass::Find {
            self.remember(&namespace, document, recorded.client.connection);
            return;
        }
        let Some(write) = Write::from_command(document, class) else { return };
        let read = self.has_read(&namespace, write.filter, recorded.client.connection);
        if self.collections.len() >= MAX_COLLECTIONS && !self.collections.contains_key(&namespace) {
            return;
        }
        let seen = CountedFor { app: recorded.client.app.as_deref(), namespace: &namespace, command: document };
        let habits = self.collections.entry(namespace.clone()).or_default();
        habits.write(&write, &seen, read);
    }

    fn remember(&mut self, namespace: &str, find: Document<'_>, connection: u64) {
        let filter = find.get("filter").and_then(Value::as_document);
        let Some(key) = filter.and_then(|filter| key(namespace, filter)) else { return };
        if self.reads.len() >= MAX_READERS && !self.reads.contains_key(&connection) {
            self.reads.clear();
        }
        let reads = self.reads.entry(connection).or_default();
        if reads.len() >= MAX_READS {
            reads.pop_front();
        }
        reads.push_back(key);
    }

    fn has_read(&self, namespace: &str, filter: Option<Document<'_>>, connection: u64) -> bool {
        let key = filter.and_then(|filter| key(namespace, filter));
        key.is_some_and(|key| self.reads.get(&connection).is_some_and(|reads| reads.contains(&key)))
    }
}

/// A hash that identifies a document by its `_id`.
fn key(namespace: &str, filter: Document<'_>) -> Option<u64> {
    let id = filter.get("_id").filter(|id| id.as_document().is_none_or(|id| !has_operators(id)))?;
    Some(fnv_hash(&[namespace.as_bytes(), &[0], id.bytes].concat()))
}

/// Whether a condition limits how small a number can be.
fn has_lower_bound(condition: Value<'_>) -> bool {
    const BOUNDS: [&[u8]; 4] = [b"$gte", b"$gt", b"$eq", b"$in"];
    match condition.as_document().filter(|document| has_operators(*document)) {
        Some(operators) => operators.elements().any(|element| BOUNDS.contains(&element.key)),
        None => true,
    }
}

fn has_operators(document: Document<'_>) -> bool {
    document.first().is_some_and(|first| first.key.starts_with(b"$"))
}

/// The filter and change of an update, delete or findAndModify.
struct Write<'c> {
    filter: Option<Document<'c>>,
    /// `None` for a delete.
    change: Option<Value<'c>>,
}

impl<'c> Write<'c> {
    fn from_command(command: Document<'c>, class: CommandClass) -> Option<Self> {
        let list = |name: &str| command.get(name)?.as_array()?.values().next()?.as_document();
        let document = |of: Document<'c>, name: &str| of.get(name).and_then(Value::as_document);
        Some(match class {
            CommandClass::Update => {
                let statement = list("updates")?;
                Self { filter: document(statement, "q"), change: Some(statement.get("u")?) }
            }
            CommandClass::Delete => Self { filter: document(list("deletes")?, "q"), change: None },
            CommandClass::FindAndModify => Self { filter: document(command, "query"), change: command.get("update") },
            _ => return None,
        })
    }
}

/// The sender and command of a write to count.
struct CountedFor<'s> {
    app: Option<&'s str>,
    namespace: &'s str,
    command: Document<'s>,
}

impl CountedFor<'_> {
    fn count(&self, evidence: &mut Evidence) {
        let (app, namespace) = (self.app, self.namespace);
        let noted = Noted { effect: Effect::Passed, statements: 1, app, users: None, at: None, namespace, reason: "" };
        evidence.note(&noted, shape(self.command), || None);
    }

    fn count_field<K: Ord>(&self, fields: &mut BTreeMap<K, Evidence>, field: K) {
        if fields.len() < MAX_FIELDS || fields.contains_key(&field) {
            self.count(fields.entry(field).or_default());
        }
    }
}

impl Collection {
    fn write(&mut self, write: &Write<'_>, seen: &CountedFor<'_>, read: bool) {
        let empty = write.filter.is_none_or(Document::is_empty);
        let Some(change) = write.change else {
            if empty {
                seen.count(&mut self.empty_deletes);
            }
            return;
        };
        if empty {
            seen.count(&mut self.empty_updates);
        }
        let Some(document) = change.as_document() else { return };
        if has_operators(document) {
            self.operators(document, write.filter, seen);
        } else {
            self.replacement(document, write.filter, seen, read);
        }
    }

    fn replacement(&mut self, document: Document<'_>, filter: Option<Document<'_>>, seen: &CountedFor<'_>, read: bool) {
        seen.count(&mut self.replacements);
        self.after_reading += u64::from(read);
        let conditions = filter.map_or(0, |filter| filter.elements().filter(|element| element.key != b"_id").count());
        self.conditional += u64::from(conditions > 0);
        self.purposes(document, seen);
        for element in document.elements().filter(|element| element.value.kind == Kind::Array) {
            self.shrink(element.key);
        }
    }

    fn operators(&mut self, document: Document<'_>, filter: Option<Document<'_>>, seen: &CountedFor<'_>) {
        for operator in document.elements() {
            let Some(fields) = operator.value.as_document() else { continue };
            match operator.key {
                b"$inc" => self.decrements(fields, filter, seen),
                b"$push" | b"$addToSet" => self.pushes(fields, seen),
                b"$set" => {
                    self.purposes(fields, seen);
                    fields.elements().for_each(|element| self.shrink(element.key));
                }
                b"$pull" | b"$pullAll" | b"$pop" | b"$unset" => {
                    fields.elements().for_each(|element| self.shrink(element.key));
                }
                _ => {}
            }
        }
    }

    fn decrements(&mut self, fields: Document<'_>, filter: Option<Document<'_>>, seen: &CountedFor<'_>) {
        for element in fields.elements() {
            let down = element.value.as_f64().or(element.value.as_integer().map(|n| n as f64)).is_some_and(|n| n < 0.0);
            let Ok(field) = std::str::from_utf8(element.key) else { continue };
            if down && !filter.and_then(|filter| filter.get(field)).is_some_and(has_lower_bound) {
                seen.count_field(&mut self.decrements, field.to_owned());
            }
        }
    }

    fn pushes(&mut self, fields: Document<'_>, seen: &CountedFor<'_>) {
        for element in fields.elements() {
            let sliced = element.value.as_document().is_some_and(|push| push.get("$slice").is_some());
            if sliced {
                self.shrink(element.key);
            } else if let Ok(field) = std::str::from_utf8(element.key) {
                seen.count_field(&mut self.pushes, field.to_owned());
            }
        }
    }

    fn purposes(&mut self, document: Document<'_>, seen: &CountedFor<'_>) {
        for element in document.elements() {
            if let Ok(name) = std::str::from_utf8(element.key)
                && let Some(purpose) = purpose(name, element.value)
            {
                seen.count_field(&mut self.fields, (purpose, name.to_owned()));
            }
        }
    }

    fn shrink(&mut self, field: &[u8]) {
        if self.shrinking.len() < MAX_FIELDS {
            self.shrinking.insert(String::from_utf8_lossy(field).into_owned());
        }
    }

    fn merge(&mut self, other: Self) {
        self.replacements.merge(other.replacements);
        self.after_reading += other.after_reading;
        self.conditional += other.conditional;
        merge_fields(&mut self.decrements, other.decrements);
        merge_fields(&mut self.pushes, other.pushes);
        merge_fields(&mut self.fields, other.fields);
        self.shrinking.extend(other.shrinking);
        self.empty_updates.merge(other.empty_updates);
        self.empty_deletes.merge(other.empty_deletes);
    }
}

fn merge_fields<K: Ord>(own: &mut BTreeMap<K, Evidence>, other: BTreeMap<K, Evidence>) {
    for (field, evidence) in other {
        if own.len() < MAX_FIELDS || own.contains_key(&field) {
            own.entry(field).or_default().merge(evidence);
        }
    }
}
