//! Arrays that applications push to, and whether anything is ever removed from them.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Evidence, MAX_DOCUMENTS, MAX_FIELDS, SeenWrite};
use crate::audit::write::{operator, pipeline};
use crate::command::Statement;
use crate::document::{Document, Kind, is_at_or_below};
use crate::fnv::hash_of;
use crate::patterns::stage_targets;

/// The most fields of a collection that are known to shrink.
const MAX_SHRINKING: usize = 1000;

/// The arrays of one collection.
#[derive(Debug, Default)]
pub(in crate::audit) struct Arrays {
    pub(in crate::audit) pushes: BTreeMap<String, Pushes>,
    /// Fields that are overwritten or unset, and arrays from which elements are removed.
    shrinking: HashSet<String>,
    /// Any array can lose elements: a pipeline makes the document, or there are too many such fields.
    all_shrink: bool,
}

/// `$push` without `$slice`, and `$addToSet`.
#[derive(Debug, Default)]
pub(in crate::audit) struct Pushes {
    pub(in crate::audit) evidence: Evidence,
    /// By filter.
    per_document: HashMap<u64, u64>,
    /// The most pushes to one document.
    pub(in crate::audit) most: u64,
    /// Pushes that insert a document if there is none.
    pub(in crate::audit) upserts: u64,
}

impl Arrays {
    /// Whether elements are never removed from an array.
    pub(in crate::audit) fn only_grows(&self, array: &str) -> bool {
        let is_within = |field: &String| is_at_or_below(array.as_bytes(), field.as_bytes());
        !self.all_shrink && !self.shrinking.iter().any(is_within)
    }

    pub(super) fn write(&mut self, write: &Statement<'_>, seen: &SeenWrite<'_>) {
        if let Some(document) = write.stored() {
            if seen.inserts(write) {
                return;
            }
            let arrays = document.elements().filter(|element| element.value.kind == Kind::Array);
            return arrays.for_each(|element| self.shrink(element.key));
        }
        if let Some(stages) = pipeline(write) {
            match stage_targets(stages) {
                Some(fields) => fields.iter().for_each(|field| self.shrink(field)),
                None => self.all_shrink = true,
            }
        }
        for name in ["$set", "$pull", "$pullAll", "$pop", "$unset", "$rename"] {
            operator(write, name).for_each(|element| self.shrink(element.key));
        }
        for element in operator(write, "$push").chain(operator(write, "$addToSet")) {
            let is_sliced = element.value.as_document().is_some_and(|push: Document<'_>| push.get("$slice").is_some());
            if is_sliced {
                self.shrink(element.key);
            } else if let Ok(field) = std::str::from_utf8(element.key)
                && (self.pushes.len() < MAX_FIELDS || self.pushes.contains_key(field))
            {
                self.pushes.entry(field.to_owned()).or_default().push(write, seen);
            }
        }
    }

    fn shrink(&mut self, field: &[u8]) {
        self.all_shrink |= self.shrinking.len() >= MAX_SHRINKING;
        if !self.all_shrink {
            self.shrinking.insert(String::from_utf8_lossy(field).into_owned());
        }
    }
}

impl Pushes {
    fn push(&mut self, write: &Statement<'_>, seen: &SeenWrite<'_>) {
        seen.count(&mut self.evidence);
        self.upserts += u64::from(write.is_upsert());
        let key = hash_of(write.filter().as_bytes());
        if self.per_document.len() < MAX_DOCUMENTS || self.per_document.contains_key(&key) {
            let count = self.per_document.entry(key).or_default();
            *count += 1;
            self.most = self.most.max(*count);
        }
    }
}
