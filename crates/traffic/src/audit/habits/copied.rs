//! Values of one collection's documents that inserts into another collection repeat beside a reference.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Evidence, MAX_DOCUMENTS, SeenWrite};
use crate::audit::known_documents::KnownDocuments;
use crate::audit::write;
use crate::command::Statement;
use crate::document::{Document, Element, Kind, OwnedValue, Value, is_at_or_below};
use crate::effect::without_positions;
use crate::fnv::hash_of;

/// The most kinds of copies that are counted.
const MAX_KINDS: usize = 1000;
/// The most elements of an array that are looked at.
const MAX_ELEMENTS: usize = 3;
/// The most different values that are counted.
const MAX_DISTINCT: usize = 100;
/// The shortest text that counts as a copy.
const MIN_TEXT: usize = 2;

/// One kind of copy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::audit) struct CopyKind {
    /// The collection of the originals.
    pub(in crate::audit) from: String,
    /// The collection with the copies.
    pub(in crate::audit) into: String,
    /// The field with the original's `_id`.
    pub(in crate::audit) key: String,
    /// The field of the original.
    pub(in crate::audit) original: String,
    /// The field with the copy.
    pub(in crate::audit) copy: String,
}

#[derive(Debug, Default)]
pub(in crate::audit) struct Copied {
    pub(in crate::audit) kinds: BTreeMap<CopyKind, CopiedValues>,
}

#[derive(Debug, Default)]
pub(in crate::audit) struct CopiedValues {
    /// Inserts with the same value as the original.
    pub(in crate::audit) evidence: Evidence,
    /// Inserts with another value.
    pub(in crate::audit) different: u64,
    values: HashSet<u64>,
    /// By the reference, as a hash.
    by_reference: HashMap<u64, CopiesOfOne>,
    /// Updates of copies.
    updates: u64,
}

/// The copies of one original.
#[derive(Debug)]
struct CopiesOfOne {
    reference: OwnedValue,
    /// By value, as a hash: the number of inserts.
    inserts: BTreeMap<u64, u64>,
    /// The value of the last insert.
    last: u64,
}

impl CopiesOfOne {
    fn other_than(&self, value: u64) -> u64 {
        self.inserts.iter().filter(|(one, _)| **one != value).map(|(_, count)| count).sum()
    }
}

impl CopiedValues {
    /// The number of different values that were copied.
    pub(in crate::audit) fn distinct(&self) -> usize {
        self.values.len()
    }

    /// Copies that the application never updated although it inserted later copies of the same original with another
    /// value: it may keep old states.
    pub(in crate::audit) fn old_states(&self) -> u64 {
        if self.updates > 0 { 0 } else { self.by_reference.values().map(|one| one.other_than(one.last)).sum() }
    }

    /// Copies with another value than their original has at the end of the traffic.
    pub(in crate::audit) fn outdated(&self, kind: &CopyKind, stored: &KnownDocuments) -> u64 {
        let of = |copies: &CopiesOfOne| {
            let original = stored.document(&kind.from, copies.reference.as_value())?;
            Some(copies.other_than(hash_of(original.field(&kind.original).value()?.bytes)))
        };
        if self.updates > 0 { 0 } else { self.by_reference.values().filter_map(of).sum() }
    }
}

impl Copied {
    pub(super) fn insert(&mut self, document: Document<'_>, seen: &SeenWrite<'_>) {
        self.references(document, "", seen);
        for element in document.elements() {
            let Ok(name) = std::str::from_utf8(element.key) else { continue };
            let prefix = format!("{name}.");
            if let Some(nested) = element.value.as_document() {
                self.references(nested, &prefix, seen);
            }
            let elements = element.value.as_array().unwrap_or(Document::EMPTY);
            let nested = elements.values().take(MAX_ELEMENTS).filter_map(Value::as_document);
            nested.for_each(|nested| self.references(nested, &prefix, seen));
        }
    }

    /// Counts an update of copies.
    pub(super) fn update(&mut self, write: &Statement<'_>, seen: &SeenWrite<'_>) {
        for (kind, copies) in self.kinds.iter_mut().filter(|(kind, _)| kind.into == seen.namespace) {
            let is_around = |path: &&[u8]| is_at_or_below(kind.copy.as_bytes(), &without_positions(path));
            let updates = write::paths(write).filter(is_around);
            copies.updates += updates.count() as u64;
        }
    }

    /// Looks for references and copies among the fields of one document.
    fn references(&mut self, fields: Document<'_>, prefix: &str, seen: &SeenWrite<'_>) {
        let can_refer = |element: &Element<'_>| {
            let kind = element.value.kind;
            let is_own_id = prefix.is_empty() && element.key == b"_id";
            matches!(kind, Kind::Int32 | Kind::Int64 | Kind::String | Kind::ObjectId | Kind::Binary) && !is_own_id
        };
        for key in fields.elements().filter(can_refer) {
            for (from, original) in seen.stored.with_id(key.value) {
                let texts = || fields.elements().filter(|copy| copy.key != key.key && is_text(copy.value));
                for (copy, of) in texts().flat_map(|copy| {
                    let originals = original.elements().filter(|of| of.key != b"_id" && is_text(of.value));
                    originals.map(move |of| (copy, of))
                }) {
                    let text = |bytes: &[u8], prefix: &str| format!("{prefix}{}", String::from_utf8_lossy(bytes));
                    let kind = CopyKind {
                        from: from.to_owned(),
                        into: seen.namespace.to_owned(),
                        key: text(key.key, prefix),
                        original: text(of.key, ""),
                        copy: text(copy.key, prefix),
                    };
                    self.count(kind, key.value, copy.value, of.value, seen);
                }
            }
        }
    }

    fn count(
        &mut self,
        kind: CopyKind,
        reference: Value<'_>,
        copy: Value<'_>,
        original: Value<'_>,
        seen: &SeenWrite<'_>,
    ) {
        let is_full = self.kinds.len() >= MAX_KINDS;
        let copies = match self.kinds.get_mut(&kind) {
            Some(copies) => copies,
            None if copy != original || is_full => return,
            None => self.kinds.entry(kind).or_default(),
        };
        let value = hash_of(copy.bytes);
        if copy == original {
            seen.count(&mut copies.evidence);
            if copies.values.len() < MAX_DISTINCT {
                copies.values.insert(value);
            }
        } else {
            copies.different += 1;
        }
        let key = hash_of(reference.bytes);
        if copies.by_reference.len() < MAX_DOCUMENTS || copies.by_reference.contains_key(&key) {
            let one = copies.by_reference.entry(key).or_insert_with(|| CopiesOfOne {
                reference: reference.into(),
                inserts: BTreeMap::new(),
                last: value,
            });
            one.last = value;
            if one.inserts.len() < MAX_DISTINCT || one.inserts.contains_key(&value) {
                *one.inserts.entry(value).or_default() += 1;
            }
        }
    }
}

fn is_text(value: Value<'_>) -> bool {
    value.as_str().is_some_and(|text| text.chars().count() >= MIN_TEXT)
}
