//! Finds the references of an entry in a document. The key and its copied fields are in one document, the holder. The
//! holder is the whole document, a nested document, or an element of an array.

use smallvec::SmallVec;

use super::super::promise::BeforeAndAfter;
use super::settings::CopiesEntry;
use crate::document::{Document, Kind, OwnedValue, Path, PathLookup, Value, parents};

/// The documents that can contain the key of an entry.
#[derive(Debug, Default)]
pub struct ReferringDocuments<'d> {
    pub documents: SmallVec<[Document<'d>; 4]>,
    /// Whether there is an array inside an array. docward does not find or update references in it.
    pub nested: bool,
}

/// What a holder refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference<'d> {
    Nothing,
    To(Value<'d>),
    /// The key is an array, is inside one, or has a type that an `_id` cannot have.
    Misshapen,
}

impl CopiesEntry {
    /// Returns the fields that may be an array of references, outermost first.
    pub fn lists(&self) -> impl Iterator<Item = &str> {
        let holder = self.holder.as_ref().map_or("", Path::as_str);
        parents(holder).chain([holder]).filter(|list| !list.is_empty())
    }

    /// Returns the paths that belong to a reference: the copied fields, then the key.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.fields.iter().map(|field| &field.copied).chain([&self.key])
    }

    /// Returns the holders in a document.
    pub fn holders<'d>(&self, document: Document<'d>) -> ReferringDocuments<'d> {
        let path = self.holder.as_ref().map_or("", Path::as_str);
        holders_of(Value::document(document), path, false)
    }

    /// Returns the keys of the references after a statement that were not there before.
    pub(super) fn new_keys<'d>(&self, (before, after): BeforeAndAfter<'d>) -> Vec<OwnedValue> {
        let references = |document: Document<'d>| {
            let holders = self.holders(document).documents.into_iter();
            holders.map(|holder| self.reference(holder)).collect::<SmallVec<[Reference<'d>; 4]>>()
        };
        let known = before.map(references).unwrap_or_default();
        let key = |reference: Reference<'d>| match reference {
            Reference::To(key) if !known.contains(&reference) => Some(key.into()),
            _ => None,
        };
        after.map(references).unwrap_or_default().into_iter().filter_map(key).collect()
    }

    /// Returns the reference in this holder.
    pub fn reference<'d>(&self, holder: Document<'d>) -> Reference<'d> {
        match self.local_key.lookup(holder) {
            PathLookup::Found(key) if matches!(key.kind, Kind::Null) => Reference::Nothing,
            PathLookup::Found(key) if is_reference(key) => Reference::To(key),
            PathLookup::Found(_) | PathLookup::Blocked(Kind::Array) => Reference::Misshapen,
            PathLookup::Missing | PathLookup::Blocked(_) => Reference::Nothing,
        }
    }
}

/// Returns whether the value can be an original's `_id` and a key that refers to it.
pub fn is_reference(id: Value<'_>) -> bool {
    match id.kind {
        Kind::Null | Kind::Undefined | Kind::Array | Kind::Regex => false,
        Kind::Document => id.as_document().is_some_and(|id| !begins_with_operator(id)),
        _ => true,
    }
}

/// Returns whether the server would read the document as a condition, and not as a value. No `_id` has such fields,
/// except those of a DBRef.
fn begins_with_operator(document: Document<'_>) -> bool {
    let mut fields = document.elements();
    let (first, second) = (fields.next(), fields.next());
    let is_reference = first.is_some_and(|field| field.key == b"$ref" && field.value.as_str().is_some())
        && second.is_some_and(|field| field.key == b"$id");
    !is_reference && first.is_some_and(|field| field.key.starts_with(b"$"))
}

/// Returns the holders at `path` in a value. `listed`: the value is already an element of an array.
pub(super) fn holders_of<'d>(value: Value<'d>, path: &str, listed: bool) -> ReferringDocuments<'d> {
    let mut found = ReferringDocuments::default();
    descend(value, path, listed, &mut found);
    found
}

fn descend<'d>(value: Value<'d>, path: &str, listed: bool, found: &mut ReferringDocuments<'d>) {
    if let Some(elements) = value.as_array() {
        match listed {
            true => found.nested = true,
            false => elements.values().for_each(|element| descend(element, path, true, found)),
        }
        return;
    }
    let Some(document) = value.as_document() else { return };
    if path.is_empty() {
        found.documents.push(document);
        return;
    }
    let (part, rest) = path.split_once('.').unwrap_or((path, ""));
    if let Some(value) = document.get(part) {
        descend(value, rest, listed, found);
    }
}
