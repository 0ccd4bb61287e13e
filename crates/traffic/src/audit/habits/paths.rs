//! Trees: documents with the path of their ancestors.

use std::collections::{BTreeMap, HashSet};

use super::{Evidence, MAX_DOCUMENTS, MAX_FIELDS, SeenWrite};
use crate::audit::known_documents::{self, FieldKnowledge};
use crate::audit::write::{self, operator};
use crate::command::Statement;
use crate::document::{Document, Kind, Value};

/// The paths of one collection.
#[derive(Debug, Default)]
pub(in crate::audit) struct Paths {
    /// By the fields of path and parent.
    pub(in crate::audit) found: BTreeMap<(String, String), Nodes>,
    /// The `_id`s of nodes that have or had children, as keys.
    parents: HashSet<u64>,
}

/// Inserted nodes that have a parent.
#[derive(Debug, Default)]
pub(in crate::audit) struct Nodes {
    pub(in crate::audit) evidence: Evidence,
    /// Nodes whose path is in the form of a `tree` rule, by separator.
    pub(in crate::audit) fitting: BTreeMap<char, u64>,
    /// Statements that such a rule would not accept, and the reason of the last one.
    pub(in crate::audit) other: u64,
    pub(in crate::audit) form: &'static str,
}

/// The field that a `tree` rule adds if the application stores only the path.
const PARENT: &str = "parent";

impl Paths {
    pub(super) fn insert(&mut self, document: Document<'_>, seen: &SeenWrite<'_>) {
        let texts =
            document.elements().filter(|e| e.key != b"_id" && matches!(e.value.kind, Kind::String | Kind::Array));
        for path in texts {
            let Ok(field) = std::str::from_utf8(path.key) else { continue };
            let others = document.elements().filter(|e| e.key != b"_id" && e.key != path.key);
            let parents = others.filter_map(|parent| Some((std::str::from_utf8(parent.key).ok()?, parent.value)));
            let mut with_parent =
                parents.filter_map(|(name, parent)| Some((name, parent_in_path(field, path.value, parent, seen)?)));
            let only_path = || Some((PARENT, form_by_path(field, path.value, seen)?));
            let Some((parent, form)) = with_parent.next().or_else(only_path) else { continue };
            let id = document.get(parent).filter(|id| id.kind != Kind::Null);
            if let Some(id) = id.filter(|_| self.parents.len() < MAX_DOCUMENTS) {
                self.parents.insert(known_documents::key(seen.namespace, id));
            }
            let key = (field.to_owned(), parent.to_owned());
            if self.found.len() >= MAX_FIELDS && !self.found.contains_key(&key) {
                continue;
            }
            self.found.entry(key).or_default().add(form, seen);
        }
    }

    /// Counts an update of paths. Under a rule, a path must match the parent that the node has then.
    pub(super) fn update(&mut self, write: &Statement<'_>, seen: &SeenWrite<'_>) {
        for ((field, parent), nodes) in &mut self.found {
            if !write::paths(write).any(|path| path == field.as_bytes()) {
                continue;
            }
            let set = |name: &str| operator(write, "$set").find(|e| e.key == name.as_bytes()).map(|e| e.value);
            let stored = || seen.before.and_then(|before| before.field(parent).value());
            let parent = set(parent).or_else(stored).filter(|_| !write.is_multi());
            let form = set(field).zip(parent).and_then(|(path, parent)| parent_in_path(field, path, parent, seen));
            nodes.add(form.unwrap_or(ParentInPath::Other(UNMATCHED)), seen);
        }
    }

    /// Counts a delete. Under a rule, a node with children cannot be deleted.
    pub(super) fn delete(&mut self, write: &Statement<'_>, seen: &SeenWrite<'_>) {
        let is_full = self.parents.len() >= MAX_DOCUMENTS;
        let is_leaf = |id| !is_full && !self.parents.contains(&known_documents::key(seen.namespace, id));
        if write::id(write).is_some_and(is_leaf) {
            return;
        }
        self.found.values_mut().for_each(|nodes| nodes.add(ParentInPath::Other(DELETED), seen));
    }
}

impl Nodes {
    fn add(&mut self, form: ParentInPath, seen: &SeenWrite<'_>) {
        seen.count(&mut self.evidence);
        match form {
            ParentInPath::Fits(separator) => *self.fitting.entry(separator).or_default() += 1,
            ParentInPath::Other(form) => (self.other, self.form) = (self.other + 1, form),
        }
    }
}

/// The reason of a delete of nodes that may have children.
const DELETED: &str = "a delete of a node with children, or of many nodes; see on_delete in docs/patterns/tree.md";
/// The reason of a path that is set without the parent, or to another one than the parent's.
const UNMATCHED: &str = "an update sets a path that does not match the parent in the same update or in the document";

/// How a path contains the parent.
enum ParentInPath {
    Fits(char),
    Other(&'static str),
}

/// `None` if the path has nothing to do with the value.
fn parent_in_path(field: &str, path: Value<'_>, parent: Value<'_>, seen: &SeenWrite<'_>) -> Option<ParentInPath> {
    let known = seen.stored.document(seen.namespace, parent).map(|parent| parent.field(field));
    if let Some(ancestors) = path.as_array() {
        return (ancestors.values().last() == Some(parent)).then_some(ParentInPath::Other("an array of the ancestors"));
    }
    let text = path.as_str()?;
    let name = text_of(parent)?;
    let separator = text.chars().last().filter(char::is_ascii_punctuation);
    if let Some(separator) = separator
        && let Some(above) = text.strip_suffix(separator).and_then(|text| text.strip_suffix(name.as_str()))
        && above.starts_with(separator)
        && above.ends_with(separator)
    {
        let root = separator.to_string();
        let expected = match known {
            Some(FieldKnowledge::Value(value)) if value.kind != Kind::Null => value.as_str().map(str::to_owned),
            Some(FieldKnowledge::Value(_) | FieldKnowledge::Missing) => Some(root),
            Some(FieldKnowledge::Unknown) | None => None,
        };
        let fits = expected.is_none_or(|expected| expected == above);
        return Some(if fits {
            ParentInPath::Fits(separator)
        } else {
            ParentInPath::Other("a text that does not continue the parent's")
        });
    }
    let above = known?.value()?.as_str()?;
    let continues = !above.is_empty() && text.len() > above.len() && text.starts_with(above);
    continues.then_some(ParentInPath::Other("a text without a separator at both ends, or with the node itself"))
}

/// The same for documents that have no field with the parent.
fn form_by_path(field: &str, path: Value<'_>, seen: &SeenWrite<'_>) -> Option<ParentInPath> {
    let text = path.as_str()?;
    let separator = text.chars().last().filter(char::is_ascii_punctuation)?;
    let segments = text.strip_prefix(separator)?.strip_suffix(separator)?;
    let parent = segments.rsplit(separator).next()?;
    let parent = crate::document::OwnedValue::string(parent);
    // Without a known parent it can be any text.
    seen.stored.document(seen.namespace, parent.as_value())?;
    parent_in_path(field, path, parent.as_value(), seen)
}

/// The text of an `_id` in a path.
fn text_of(id: Value<'_>) -> Option<String> {
    match id.kind {
        Kind::String => id.as_str().filter(|text| !text.is_empty()).map(str::to_owned),
        Kind::Int32 | Kind::Int64 => id.as_integer().map(|number| number.to_string()),
        Kind::ObjectId => Some(hex::encode(id.bytes)),
        _ => None,
    }
}
