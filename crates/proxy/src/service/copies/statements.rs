//! Builds the update statements that correct copies, and those that remove references.
//!
//! A reference may be in a plain document or in an element of an array, and both shapes may occur in one collection.
//! There is one statement for each shape. Its filter matches only documents of that shape, because any other value on
//! the path to a copied field would fail the whole statement.

use super::original::Original;
use crate::document::{OwnedValue, Path, Value, Writer, document, parents};
use crate::patterns::collation::write_simple_collation;
use crate::patterns::copies::{CopiedField, CopiesEntry};

/// The identifier of array elements in `arrayFilters`.
const ELEMENT: &str = "e";

/// The `$type` names of all types except documents.
const NO_DOCUMENT: [&str; 20] = [
    "double",
    "string",
    "array",
    "binData",
    "undefined",
    "objectId",
    "bool",
    "date",
    "null",
    "regex",
    "dbPointer",
    "javascript",
    "symbol",
    "javascriptWithScope",
    "int",
    "timestamp",
    "long",
    "decimal",
    "minKey",
    "maxKey",
];

/// The position of references in the documents that a statement matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReferenceShape<'e> {
    /// The path to the key contains only documents.
    Plain,
    /// This field is an array, with a reference in each element.
    Listed(&'e str),
}

pub(super) fn shapes(entry: &CopiesEntry) -> impl Iterator<Item = ReferenceShape<'_>> {
    [ReferenceShape::Plain].into_iter().chain(entry.lists().map(ReferenceShape::Listed))
}

/// Sets the copies of `original` to its values: all of them, or those in the document with the `_id` `only`.
pub(super) fn correct(
    entry: &CopiesEntry,
    shape: ReferenceShape<'_>,
    id: Value<'_>,
    original: &Original,
    only: Option<&OwnedValue>,
) -> Vec<u8> {
    let (present, missing): (Vec<_>, Vec<_>) = entry.fields.iter().partition(|field| original.value(field).is_some());
    document(|w| {
        w.nested("q", |w| {
            if let Some(only) = only {
                w.value("_id", only.as_value());
            }
            write_filter(w, entry, shape, id, true);
        });
        w.nested("u", |w| {
            if !present.is_empty() {
                w.nested("$set", |w| {
                    for field in &present {
                        if let Some(value) = original.value(field) {
                            w.value(shape.target(&field.copied), value);
                        }
                    }
                });
            }
            write_unset(w, shape, missing.iter().map(|field| &field.copied));
        });
        if let ReferenceShape::Listed(list) = shape {
            w.array("arrayFilters", |a| a.nested(|w| write_element_filter(w, entry, list, ELEMENT, id, true)));
        }
        w.boolean("multi", true);
        write_simple_collation(w);
    })
}

/// Removes the references to `id` from the documents with these `_id`s: the key and its copied fields, or whole array
/// elements.
pub(super) fn detach(entry: &CopiesEntry, shape: ReferenceShape<'_>, id: Value<'_>, copies: &[OwnedValue]) -> Vec<u8> {
    document(|w| {
        w.nested("q", |w| {
            w.nested("_id", |w| w.array("$in", |a| copies.iter().for_each(|copy| a.value(copy.as_value()))));
            write_filter(w, entry, shape, id, false);
        });
        w.nested("u", |w| match shape {
            ReferenceShape::Plain => write_unset(w, shape, entry.paths()),
            ReferenceShape::Listed(list) => w.nested("$pull", |w| {
                w.nested(list, |w| write_element_filter(w, entry, list, "", id, false));
            }),
        });
        w.boolean("multi", true);
        write_simple_collation(w);
    })
}

fn copied(entry: &CopiesEntry) -> impl Iterator<Item = &Path> {
    entry.fields.iter().map(|field: &CopiedField| &field.copied)
}

fn write_unset<'p>(w: &mut Writer<'_>, shape: ReferenceShape<'_>, paths: impl Iterator<Item = &'p Path>) {
    let mut paths = paths.peekable();
    if paths.peek().is_some() {
        w.nested("$unset", |w| paths.for_each(|path| w.string(shape.target(path), "")));
    }
}

impl ReferenceShape<'_> {
    /// A path in the notation of update operators.
    fn target(self, path: &Path) -> String {
        match self {
            Self::Plain => path.as_str().to_owned(),
            Self::Listed(list) => format!("{list}.$[{ELEMENT}].{}", inside(path, list)),
        }
    }
}

/// The part of a path after the array's path.
fn inside<'p>(path: &'p Path, list: &str) -> &'p str {
    path.as_str().get(list.len() + 1..).unwrap_or_default()
}

/// Writes `KEY: {$eq: id}, $expr: the document has this shape`. `copies`: it can also hold the copied fields.
fn write_filter(w: &mut Writer<'_>, entry: &CopiesEntry, shape: ReferenceShape<'_>, id: Value<'_>, copies: bool) {
    w.nested(entry.key.as_str(), |w| w.value("$eq", id));
    w.nested("$expr", |w| {
        w.array("$and", |a| {
            let mut is = |path: &str, kinds: &[&str]| {
                a.nested(|w| {
                    w.array("$in", |a| {
                        a.nested(|w| w.string("$type", format!("${path}")));
                        a.array(|a| kinds.iter().for_each(|kind| a.string(kind)));
                    });
                });
            };
            let enclosing_fields = match shape {
                ReferenceShape::Plain => enclosing_fields(entry, copies, ""),
                ReferenceShape::Listed(list) => {
                    is(list, &["array"]);
                    parents(list).map(str::to_owned).collect()
                }
            };
            enclosing_fields.iter().for_each(|field| is(field, &["object", "missing"]));
            if shape == ReferenceShape::Plain {
                a.nested(|w| {
                    w.array("$ne", |a| {
                        a.nested(|w| w.string("$type", format!("${}", entry.key)));
                        a.string("array");
                    });
                });
            }
        });
    });
}

/// Writes the filter for elements of `list`, named `element`, that refer to `id`. `copies`: and can hold the copied
/// fields.
fn write_element_filter(
    w: &mut Writer<'_>,
    entry: &CopiesEntry,
    list: &str,
    element: &str,
    id: Value<'_>,
    copies: bool,
) {
    let named = |path: &str| if element.is_empty() { path.to_owned() } else { format!("{element}.{path}") };
    let not = |w: &mut Writer<'_>, kinds: &[&str]| {
        w.nested("$not", |w| w.array("$type", |a| kinds.iter().for_each(|kind| a.string(kind))));
    };
    // Filters look into nested arrays, whose values are not elements of this array.
    if !element.is_empty() {
        w.nested(element, |w| not(w, &["array"]));
    }
    w.nested(named(inside(&entry.key, list)), |w| {
        w.value("$eq", id);
        not(w, &["array"]);
    });
    for field in enclosing_fields(entry, copies, list) {
        w.nested(named(&field), |w| not(w, &NO_DOCUMENT));
    }
}

/// The parent fields of the key, and with `copies` of the copied fields, inside `list`.
fn enclosing_fields(entry: &CopiesEntry, copies: bool, list: &str) -> Vec<String> {
    let paths = copied(entry).filter(|_| copies).chain([&entry.key]);
    let start = if list.is_empty() { 0 } else { list.len() + 1 };
    let inside = paths.filter_map(|path| path.as_str().get(start..));
    let mut enclosing_fields: Vec<String> = inside.flat_map(parents).map(str::to_owned).collect();
    enclosing_fields.sort_unstable();
    enclosing_fields.dedup();
    enclosing_fields
}
