//! Where the references of an entry are in a document: the key and its copied fields are in one document, its
//! holder. The holder is the whole document, a document inside of it, or an element of an array.

use smallvec::SmallVec;

use super::settings::Entry;
use crate::document::{Document, Kind, Lookup, Path, Value};

/// The documents that can have a key of an entry in them.
#[derive(Debug, Default)]
pub struct Holders<'d> {
    pub documents: SmallVec<[Document<'d>; 4]>,
    /// There is an array inside an array. References in it are neither found nor followed.
    pub nested: bool,
}

/// What a holder refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference<'d> {
    Nothing,
    To(Value<'d>),
    /// The key is an array or in one, or is nothing that an `_id` can be.
    Misshapen,
}

impl Entry {
    /// The fields that may be an array of references, outermost first.
    pub fn lists(&self) -> impl Iterator<Item = &str> {
        let holder = self.holder.as_ref().map_or("", Path::as_str);
        let ends = holder.match_indices('.').map(|(at, _)| at).chain([holder.len()]);
        ends.filter_map(move |end| holder.get(..end)).filter(|list| !list.is_empty())
    }

    pub fn holders<'d>(&self, document: Document<'d>) -> Holders<'d> {
        let way = self.holder.as_ref().map_or("", Path::as_str);
        holders_of(Value::document(document), way, false)
    }

    /// What this holder refers to.
    pub fn reference<'d>(&self, holder: Document<'d>) -> Reference<'d> {
        match self.local_key.lookup(holder) {
            Lookup::Found(key) if matches!(key.kind, Kind::Null) => Reference::Nothing,
            Lookup::Found(key) if is_reference(key) => Reference::To(key),
            Lookup::Found(_) | Lookup::Blocked(Kind::Array) => Reference::Misshapen,
            Lookup::Missing | Lookup::Blocked(_) => Reference::Nothing,
        }
    }
}

/// What can be an original's `_id` and a key that points to it.
pub fn is_reference(id: Value<'_>) -> bool {
    !matches!(id.kind, Kind::Null | Kind::Undefined | Kind::Array | Kind::Regex)
}

/// The holders in a value, to which `way` leads from there. `listed`: the value is an element of an array already.
pub(super) fn holders_of<'d>(value: Value<'d>, way: &str, listed: bool) -> Holders<'d> {
    let mut found = Holders::default();
    descend(value, way, listed, &mut found);
    found
}

fn descend<'d>(value: Value<'d>, way: &str, listed: bool, found: &mut Holders<'d>) {
    if let Some(elements) = value.as_array() {
        match listed {
            true => found.nested = true,
            false => elements.values().for_each(|element| descend(element, way, true, found)),
        }
        return;
    }
    let Some(document) = value.as_document() else { return };
    if way.is_empty() {
        found.documents.push(document);
        return;
    }
    let (part, rest) = way.split_once('.').unwrap_or((way, ""));
    if let Some(value) = document.get(part) {
        descend(value, rest, listed, found);
    }
}
