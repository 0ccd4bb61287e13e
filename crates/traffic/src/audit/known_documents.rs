//! What the stored documents contain, as far as recorded writes show it. Replies of a capture show which writes failed
//! or matched nothing. The size is bounded for any traffic.

use std::collections::{HashMap, HashSet, VecDeque};

use super::ReplySummary;
use super::matching::matches;
use super::write;
use crate::command::{Statement, StatementKind};
use crate::document::{Document, Element, Kind, Path, PathLookup, Value, add_numbers, edit, root_of};
use crate::effect::{equality, on_stored};
use crate::fnv::hash_of;

/// The most documents known of one collection; then the oldest are dropped.
const MAX_DOCUMENTS: usize = 5000;
/// The longest document that is kept, in bytes.
const MAX_LENGTH: usize = 16 << 10;
/// The deepest path that is followed.
const MAX_DEPTH: usize = 8;
/// The most bytes of all documents; then all are dropped.
const MAX_BYTES: usize = 64 << 20;
/// The most collections with known documents.
const MAX_COLLECTIONS: usize = 1000;
/// The most connections whose reads are kept.
const MAX_READERS: usize = 4096;
/// The most reads kept for one connection.
const MAX_READS: usize = 32;

/// The documents that are known.
#[derive(Debug, Default)]
pub(super) struct KnownDocuments {
    collections: HashMap<String, KnownCollection>,
    bytes: usize,
    /// The number of statements so far.
    tick: u64,
    commands: u64,
    /// By connection: its last reads, as keys of documents or collections with their ticks.
    reads: HashMap<u64, VecDeque<(u64, u64)>>,
}

#[derive(Debug, Default)]
struct KnownCollection {
    documents: HashMap<u64, KnownFields>,
    /// The keys of the documents in the order in which they became known; of removed ones too.
    order: VecDeque<u64>,
    /// The keys in `order`.
    ordered: HashSet<u64>,
    /// The lengths of all documents.
    bytes: usize,
    /// By top-level field: when a write changed it in a document that is not known.
    possibly_changed: HashMap<Vec<u8>, u64>,
}

#[derive(Debug)]
struct KnownFields {
    fields: Vec<u8>,
    /// Fields that are not in `fields` are missing.
    whole: bool,
    /// Top-level fields whose values are not known.
    unknown: Vec<Vec<u8>>,
    /// When it became known.
    since: u64,
    /// The last change after its insert.
    changed: Option<WriteMoment>,
}

/// A document of which at least a part is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct KnownDocument<'s> {
    document: &'s KnownFields,
    collection: &'s KnownCollection,
}

/// What is known of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldKnowledge<'s> {
    Value(Value<'s>),
    Missing,
    Unknown,
}

impl<'s> FieldKnowledge<'s> {
    pub(super) fn value(self) -> Option<Value<'s>> {
        match self {
            Self::Value(value) => Some(value),
            Self::Missing | Self::Unknown => None,
        }
    }
}

impl<'s> KnownDocument<'s> {
    pub(super) fn field(&self, path: &str) -> FieldKnowledge<'s> {
        let KnownFields { fields, whole, unknown, since, .. } = self.document;
        let root = root_of(path.as_bytes());
        let possibly_changed = self.collection.possibly_changed.get(root).is_some_and(|at| at > since);
        if possibly_changed || unknown.iter().any(|one| one == root) {
            return FieldKnowledge::Unknown;
        }
        match Path::parse(path).zip(Document::parse(fields).ok()).map(|(path, fields)| path.lookup(fields)) {
            Some(PathLookup::Found(value)) => FieldKnowledge::Value(value),
            Some(PathLookup::Missing) if *whole => FieldKnowledge::Missing,
            _ => FieldKnowledge::Unknown,
        }
    }

    /// Whether it has no other top-level fields than the known ones and those of this document.
    pub(super) fn has_no_others(&self, document: Document<'_>) -> bool {
        let KnownFields { whole, unknown, since, .. } = self.document;
        let changed = self.collection.possibly_changed.iter().filter(|(_, at)| *at > since).map(|(field, _)| field);
        *whole && unknown.iter().chain(changed).all(|field| document.get(field).is_some())
    }

    /// Its top-level fields, as far as they are known.
    pub(super) fn elements(&self) -> impl Iterator<Item = Element<'s>> + use<'s> {
        Document::parse(&self.document.fields).unwrap_or(Document::EMPTY).elements()
    }
}

/// Identifies a document. Numerically equal `_id`s have the same key, as in MongoDB.
pub(super) fn key(namespace: &str, id: Value<'_>) -> u64 {
    let number = id.as_integer().filter(|_| id.kind.is_number()).map(i64::to_le_bytes);
    let bytes = number.as_ref().map_or(id.bytes, |bytes| bytes.as_slice());
    hash_of(&[namespace.as_bytes(), &[0, u8::from(number.is_some())], bytes].concat())
}

impl KnownDocuments {
    /// The document with this `_id`.
    pub(super) fn document(&self, namespace: &str, id: Value<'_>) -> Option<KnownDocument<'_>> {
        let collection = self.collections.get(namespace)?;
        let document = collection.documents.get(&key(namespace, id))?;
        Some(KnownDocument { document, collection })
    }

    /// The document that a filter selects by `_id`.
    pub(super) fn selected(&self, namespace: &str, filter: Document<'_>) -> Option<KnownDocument<'_>> {
        self.document(namespace, equality(filter, "_id")?)
    }

    /// The documents of all collections with this `_id`.
    pub(super) fn with_id(&self, id: Value<'_>) -> impl Iterator<Item = (&str, KnownDocument<'_>)> {
        self.collections.iter().filter_map(move |(namespace, collection)| {
            let document = collection.documents.get(&key(namespace, id))?;
            Some((namespace.as_str(), KnownDocument { document, collection }))
        })
    }

    /// Records what a find or aggregate of a connection reads: a document, or any documents of the collection.
    pub(super) fn note_read(&mut self, namespace: &str, command: Document<'_>, connection: u64) {
        self.tick += 1;
        let filter = command.get("filter").and_then(Value::as_document);
        let key = filter
            .and_then(|filter| equality(filter, "_id"))
            .map_or_else(|| hash_of(namespace.as_bytes()), |id| key(namespace, id));
        if self.reads.len() >= MAX_READERS && !self.reads.contains_key(&connection) {
            self.reads.clear();
        }
        let reads = self.reads.entry(connection).or_default();
        if reads.len() >= MAX_READS {
            reads.pop_front();
        }
        reads.push_back((key, self.tick));
    }

    /// When the connection last read the document that this filter selects by `_id`, as far as it is known.
    pub(super) fn last_read(&self, namespace: &str, filter: Document<'_>, connection: u64) -> Option<u64> {
        let key = key(namespace, equality(filter, "_id")?);
        let reads = self.reads.get(&connection)?;
        reads.iter().rev().find(|(read, _)| *read == key).map(|(_, at)| *at)
    }

    /// Whether the document was changed after the connection had read it, or by the connection itself without a read
    /// since then.
    pub(super) fn is_changed_since_read(&self, namespace: &str, filter: Document<'_>, connection: u64) -> bool {
        let Some(known) = self.selected(namespace, filter) else { return false };
        let Some(changed) = known.document.changed else { return false };
        let collection = hash_of(namespace.as_bytes());
        let reads = self.reads.get(&connection);
        // A read of other documents of the collection may have returned this one too.
        let other = reads.and_then(|reads| reads.iter().rev().find(|(read, _)| *read == collection));
        let read = self.last_read(namespace, filter, connection).max(other.map(|(_, at)| *at));
        match read {
            Some(read) => changed.tick > read,
            None => changed.connection == connection,
        }
    }

    /// Whether no connection has read the document that a filter selects by `_id`, or any documents of the collection,
    /// since this tick.
    pub(super) fn is_unread_since(&self, namespace: &str, id: Value<'_>, tick: u64) -> bool {
        let keys = [key(namespace, id), hash_of(namespace.as_bytes())];
        let mut reads = self.reads.values().flatten();
        !reads.any(|(read, at)| *at > tick && keys.contains(read))
    }

    /// The number of commands so far.
    pub(super) fn tick(&self) -> u64 {
        self.tick
    }

    /// Numbers the next command.
    pub(super) fn next_command(&mut self) -> u64 {
        self.commands += 1;
        self.commands
    }

    /// Drops the documents of a collection, which a write of unknown content may have changed.
    pub(super) fn forget(&mut self, namespace: &str) {
        self.collections.remove(namespace);
    }

    /// Applies a write of a connection. `is_single`: its command has no other statement, so the reply belongs to it.
    pub(super) fn apply(
        &mut self,
        namespace: &str,
        write: &Statement<'_>,
        reply: Option<&ReplySummary>,
        (connection, is_single): (u64, bool),
    ) {
        self.tick += 1;
        let failed = reply.is_some_and(|reply| !reply.is_ok());
        let unmatched = reply.is_some_and(|reply| reply.n == Some(0)) && !write.is_upsert();
        if is_single && (failed || unmatched) {
            return;
        }
        if self.bytes > MAX_BYTES || self.collections.len() > MAX_COLLECTIONS {
            let reads = std::mem::take(&mut self.reads);
            *self = Self { tick: self.tick, commands: self.commands, reads, ..Self::default() };
        }
        let now = WriteMoment { tick: self.tick, connection };
        let is_certain = is_single && reply.is_some_and(|reply| reply.n.is_some_and(|n| n > 0));
        let collection = self.collections.entry(namespace.to_owned()).or_default();
        let before = collection.bytes;
        match write::id(write).map(|id| (key(namespace, id), id)) {
            Some((key, id)) if !failed => collection.write((key, id), write, is_certain, now),
            Some((key, _)) => _ = collection.remove(key),
            None => collection.write_unknown(write, now),
        }
        self.bytes = (self.bytes + collection.bytes).saturating_sub(before);
    }
}

impl KnownCollection {
    fn remove(&mut self, key: u64) -> Option<KnownFields> {
        let removed = self.documents.remove(&key)?;
        self.bytes = self.bytes.saturating_sub(removed.fields.len());
        Some(removed)
    }

    /// A write to a document that its `_id` selects.
    fn write(&mut self, (key, id): (u64, Value<'_>), write: &Statement<'_>, is_certain: bool, now: WriteMoment) {
        let matched = match self.documents.get(&key) {
            _ if is_certain || write.is_insert() => Some(true),
            Some(document) => matches(write.filter(), &KnownDocument { document, collection: self }),
            None => (!write::is_conditional(write)).then_some(true),
        };
        match (matched, write.stored(), write.operators()) {
            (Some(false), ..) => {}
            (Some(true), Some(document), _) => {
                let fields = match document.get("_id") {
                    Some(_) => document.as_bytes().to_vec(),
                    None => edit::append(document, |w| w.value("_id", id)),
                };
                let changed = (!write.is_insert()).then_some(now);
                self.insert(key, KnownFields { changed, ..KnownFields::new(fields, true, now) });
            }
            (_, _, Some(operators)) => {
                let new = || KnownFields::new(crate::document::document(|w| w.value("_id", id)), false, now);
                let mut document = self.remove(key).unwrap_or_else(new);
                document.changed = Some(now);
                for (operator, key, value) in on_stored(operators) {
                    let known = matched == Some(true) && !self.possibly_changed.contains_key(root_of(key));
                    document.apply_operator(operator, Element { key, value }, known);
                }
                self.insert(key, document);
            }
            _ => _ = self.remove(key),
        }
    }

    fn insert(&mut self, key: u64, document: KnownFields) {
        self.remove(key);
        if document.fields.len() > MAX_LENGTH {
            return;
        }
        self.bytes += document.fields.len();
        self.documents.insert(key, document);
        if self.ordered.insert(key) {
            self.order.push_back(key);
        }
        while self.order.len() > MAX_DOCUMENTS {
            let Some(oldest) = self.order.pop_front() else { return };
            self.ordered.remove(&oldest);
            self.remove(oldest);
        }
    }

    /// A write to documents that are not known.
    fn write_unknown(&mut self, write: &Statement<'_>, now: WriteMoment) {
        match write.kind() {
            // Without `_id` the driver or the server adds one.
            StatementKind::Insert => {}
            StatementKind::Operators => {
                write::paths(write).for_each(|path| _ = self.possibly_changed.insert(root_of(path).to_vec(), now.tick));
            }
            StatementKind::Replacement | StatementKind::Pipeline | StatementKind::Delete => *self = Self::default(),
        }
        const MAX_POSSIBLY_CHANGED: usize = 1000;
        if self.possibly_changed.len() > MAX_POSSIBLY_CHANGED {
            *self = Self::default();
        }
    }
}

/// When and by which connection a write is carried out.
#[derive(Debug, Clone, Copy)]
struct WriteMoment {
    tick: u64,
    connection: u64,
}

impl KnownFields {
    fn new(fields: Vec<u8>, whole: bool, now: WriteMoment) -> Self {
        Self { fields, whole, unknown: Vec::new(), since: now.tick, changed: None }
    }

    /// Applies one operator to one field. `known`: it is certain that the operator was applied.
    fn apply_operator(&mut self, operator: &[u8], element: Element<'_>, known: bool) {
        let written = known.then(|| self.written(operator, element)).flatten();
        let root = root_of(element.key);
        match written {
            Some(fields) => {
                self.fields = fields;
                if root == element.key {
                    self.unknown.retain(|one| one != root);
                }
            }
            None if self.unknown.iter().any(|one| one == root) => {}
            None => self.unknown.push(root.to_vec()),
        }
    }

    /// The document after the operator; `None` if it is not known.
    fn written(&self, operator: &[u8], element: Element<'_>) -> Option<Vec<u8>> {
        let text = std::str::from_utf8(element.key).ok()?;
        let is_position = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if text.split('.').any(is_position) || text.split('.').count() > MAX_DEPTH {
            return None;
        }
        let path = Path::parse(text)?;
        let fields = Document::parse(&self.fields).ok()?;
        let stored = path.lookup(fields);
        let unknown = self.unknown.iter().any(|one| one == root_of(element.key));
        match (operator, stored) {
            (_, PathLookup::Blocked(_)) => None,
            (b"$set", _) if !unknown || path.is_top_level() => Some(edit::set(fields, &path, element.value)),
            (b"$unset", _) if path.is_top_level() && self.whole => Some(edit::without(fields, path.as_str())),
            (b"$inc", PathLookup::Found(value)) if !unknown && value.kind != Kind::DateTime => {
                Some(edit::set(fields, &path, add_numbers(value, element.value)?.as_value()))
            }
            (b"$inc", PathLookup::Missing) if !unknown && self.whole => Some(edit::set(fields, &path, element.value)),
            _ => None,
        }
    }
}
