//! Numbers that applications compute from what they have read: the largest number plus one for an insert, and counters
//! that are read and set.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{CollectionCounts, Evidence, MAX_DOCUMENTS, MAX_FIELDS, SeenWrite};
use crate::audit::known_documents;
use crate::audit::write::{self, operator};
use crate::command::Statement;
use crate::document::{Document, Kind, Value};

/// The numbers of one collection.
#[derive(Debug, Default)]
pub(in crate::audit) struct NumberHabits {
    /// By field: the largest number that was inserted.
    largest: BTreeMap<String, i64>,
    /// By field: inserts with another number than the next one, by senders that had not read the largest.
    unread: BTreeMap<String, u64>,
    pub(in crate::audit) numbered: BTreeMap<String, Numbered>,
    pub(in crate::audit) read_and_set: BTreeMap<String, ReadAndSet>,
}

/// Inserts after the same application had read the document with the largest number.
#[derive(Debug, Default)]
pub(in crate::audit) struct Numbered {
    pub(in crate::audit) evidence: Evidence,
    /// Inserts with the largest number + 1.
    pub(in crate::audit) next: u64,
    /// Inserts with a number that another document had, or that failed because of a duplicate key.
    pub(in crate::audit) duplicates: u64,
    /// Inserts with any other number.
    pub(in crate::audit) other: u64,
    /// By field of the same document, or of a collection: numbers that the application also stored there.
    pub(in crate::audit) repeated: BTreeMap<String, u64>,
}

/// The number that an application computed last.
#[derive(Debug)]
pub(in crate::audit) struct ComputedNumber {
    namespace: String,
    field: String,
    number: i64,
    /// The other fields that contain it.
    fields: BTreeSet<String>,
}

/// Updates that set a number after the same connection had read the document.
#[derive(Debug, Default)]
pub(in crate::audit) struct ReadAndSet {
    pub(in crate::audit) evidence: Evidence,
    /// Updates that made the number smaller.
    pub(in crate::audit) down: u64,
    per_document: HashMap<u64, u64>,
    /// The most updates of one document.
    pub(in crate::audit) most: u64,
}

impl ComputedNumber {
    /// Counts an insert into another collection after the one with the number.
    pub(super) fn insert(
        &mut self,
        document: Document<'_>,
        namespace: &str,
        collections: &mut BTreeMap<String, CollectionCounts>,
    ) {
        let numbered = collections.get_mut(&self.namespace).and_then(|of| of.numbers.numbered.get_mut(&self.field));
        if let Some(numbered) = numbered.filter(|_| namespace != self.namespace) {
            let collection = namespace.split_once('.').map_or(namespace, |(_, collection)| collection);
            self.find_in(document, &format!("{collection}."), numbered);
        }
    }

    /// Finds the fields of a further document that contain the number. `prefix` is that of their names.
    fn find_in(&mut self, document: Document<'_>, prefix: &str, numbered: &mut Numbered) {
        let mut found = BTreeSet::new();
        fields_with(self.number, document, prefix, &mut found);
        for field in found {
            let is_full = numbered.repeated.len() >= MAX_FIELDS && !numbered.repeated.contains_key(&field);
            if !is_full && field != self.field && self.fields.insert(field.clone()) {
                *numbered.repeated.entry(field).or_default() += 1;
            }
        }
    }
}

/// Adds the fields that contain a number, also as a part of a text, such as "INV-0012".
fn fields_with(number: i64, document: Document<'_>, prefix: &str, found: &mut BTreeSet<String>) {
    const DEEPEST: usize = 4;
    for element in document.elements() {
        let Ok(name) = std::str::from_utf8(element.key) else { continue };
        let path = format!("{prefix}{name}");
        let parts = |text: &str| text.split(|c: char| !c.is_ascii_digit()).any(|part| part.parse() == Ok(number));
        let is_number = element.value.kind.is_number() && element.value.as_integer() == Some(number);
        if is_number || element.value.as_str().is_some_and(parts) {
            found.insert(path);
        } else if let Some(nested) = element.value.as_document()
            && prefix.matches('.').count() < DEEPEST
        {
            fields_with(number, nested, &format!("{path}."), found);
        }
    }
}

/// The field of which a find reads the largest number of all documents. With a filter the numbers are those of a group.
pub(super) fn largest_read(find: Document<'_>) -> Option<&str> {
    if find.get("filter").and_then(Value::as_document).is_some_and(|filter| !filter.is_empty()) {
        return None;
    }
    let mut sort = find.get("sort").and_then(Value::as_document)?.elements();
    let (first, None) = (sort.next()?, sort.next()) else { return None };
    let is_one = find.get("limit").and_then(Value::as_integer).is_some_and(|limit| limit.abs() == 1);
    let descends = first.value.as_integer() == Some(-1);
    std::str::from_utf8(first.key).ok().filter(|_| is_one && descends)
}

impl NumberHabits {
    /// Inserts with another number than the next one, by senders that had not read the largest.
    pub(in crate::audit) fn unread(&self, field: &str) -> u64 {
        self.unread.get(field).copied().unwrap_or_default()
    }

    /// Counts an insert; returns its number. `field`: the field of which the sender had read the largest number.
    pub(super) fn insert(
        &mut self,
        document: Document<'_>,
        field: Option<&str>,
        seen: &SeenWrite<'_>,
    ) -> Option<ComputedNumber> {
        const DUPLICATE_KEY: i32 = 11000;
        let mut computed = None;
        let number_in = |field: &str| document.get(field).filter(|v| v.kind.is_number()).and_then(Value::as_integer);
        if let Some((field, number)) = field.and_then(|field| Some((field, number_in(field)?)))
            && (self.numbered.len() < MAX_FIELDS || self.numbered.contains_key(field))
        {
            let largest = self.largest.get(field).copied();
            let numbered = self.numbered.entry(field.to_owned()).or_default();
            seen.count(&mut numbered.evidence);
            let failed = seen.recorded.reply.as_ref().is_some_and(|reply| reply.write_errors.contains(&DUPLICATE_KEY));
            match largest {
                _ if failed => numbered.duplicates += 1,
                Some(largest) if number == largest => numbered.duplicates += 1,
                Some(largest) if largest.checked_add(1) == Some(number) => numbered.next += 1,
                Some(_) => numbered.other += 1,
                None => {}
            }
            let (namespace, fields) = (seen.namespace.to_owned(), BTreeSet::new());
            let mut one = ComputedNumber { namespace, field: field.to_owned(), number, fields };
            one.find_in(document, "", numbered);
            computed = Some(one);
        }
        for element in document.elements().filter(|element| element.value.kind.is_number()) {
            let (Ok(name), Some(number)) = (std::str::from_utf8(element.key), element.value.as_integer()) else {
                continue;
            };
            let largest = self.largest.get(name).copied();
            if largest.is_none() && self.largest.len() >= MAX_FIELDS {
                continue;
            }
            if field != Some(name) && largest.is_some_and(|largest| !(0..=1).contains(&number.saturating_sub(largest)))
            {
                *self.unread.entry(name.to_owned()).or_default() += 1;
            }
            self.largest.insert(name.to_owned(), largest.map_or(number, |largest| largest.max(number)));
        }
        computed
    }

    /// Counts an update of a document that the same connection had read.
    pub(super) fn update(&mut self, write: &Statement<'_>, seen: &SeenWrite<'_>) {
        let Some((before, id)) = seen.before.as_ref().zip(write::id(write)) else { return };
        for element in operator(write, "$set") {
            let Ok(field) = std::str::from_utf8(element.key) else { continue };
            let whole = |value: Value<'_>| value.as_integer().filter(|_| value.kind != Kind::DateTime);
            let stored = before.field(field).value().and_then(whole);
            let Some((stored, set)) = stored.zip(whole(element.value)) else { continue };
            let is_checked = write.filter().get(field).is_some();
            if stored == set
                || is_checked
                || (self.read_and_set.len() >= MAX_FIELDS && !self.read_and_set.contains_key(field))
            {
                continue;
            }
            let read_and_set = self.read_and_set.entry(field.to_owned()).or_default();
            seen.count(&mut read_and_set.evidence);
            read_and_set.down += u64::from(set < stored);
            let key = known_documents::key(seen.namespace, id);
            if read_and_set.per_document.len() < MAX_DOCUMENTS || read_and_set.per_document.contains_key(&key) {
                let count = read_and_set.per_document.entry(key).or_default();
                *count += 1;
                read_and_set.most = read_and_set.most.max(*count);
            }
        }
    }
}
