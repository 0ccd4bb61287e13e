//! The document that an insert or an upsert adds, as far as it is known.

use std::borrow::Cow;
use std::collections::HashSet;

use super::is_empty_timestamp;
use super::node::{ImageFields, ImageNode, ImageValue};
use super::operators::look_below;
use crate::document::{Document, Kind, Path, PathLookup, Value};

/// The document that is added. A missing `_id` is generated. Versions of the server, and collations, can differ in the
/// equalities that an upsert takes from its filter: then there are several possible documents.
#[derive(Debug, Clone)]
pub struct Inserted<'s> {
    /// If possible, that of a server that takes only the equalities that are certain.
    first: Image<'s>,
    others: Vec<Image<'s>>,
}

/// A document that may be added.
#[derive(Debug, Clone)]
pub struct Image<'s> {
    pub(super) root: ImageNode<'s>,
    /// The statement may have effects that the model does not cover.
    pub(super) unpredictable: bool,
}

impl<'s> Inserted<'s> {
    /// Returns `None` if there is no possible document.
    pub(super) fn of_images(mut images: impl Iterator<Item = Image<'s>>) -> Option<Self> {
        images.next().map(|first| Self { first, others: images.collect() })
    }

    /// Returns whether there is only one possible document.
    pub fn is_certain(&self) -> bool {
        self.others.is_empty()
    }

    /// Returns the names of its top-level fields, including those that may be missing.
    pub fn names(&self) -> Vec<&[u8]> {
        let mut names = self.first.names();
        if !self.is_certain() {
            let mut known = HashSet::new();
            names.extend(self.others.iter().flat_map(Image::names));
            names.retain(|name| known.insert(*name));
        }
        names
    }

    /// Returns what is known of the value at `path`, whichever of the possible documents is added.
    pub fn at(&self, path: &Path) -> ImageValue<'_> {
        self.at_bytes(path.as_str().as_bytes())
    }

    /// Returns the same at a path of a statement.
    pub fn at_bytes(&self, path: &[u8]) -> ImageValue<'_> {
        self.others.iter().fold(self.first.at_bytes(path), |held, other| held.or(other.at_bytes(path)))
    }
}

impl<'s> From<Image<'s>> for Inserted<'s> {
    fn from(image: Image<'s>) -> Self {
        Self { first: image, others: Vec::new() }
    }
}

impl<'s> Image<'s> {
    pub(super) fn of_document(document: Document<'s>) -> Self {
        if document.elements().any(|field| is_empty_timestamp(&field)) {
            return Self::of_fields(stored_fields(document).collect());
        }
        Self { root: ImageNode::Value(Value::document(document)), unpredictable: false }
    }

    pub(super) fn of_fields(fields: ImageFields<'s>) -> Self {
        Self { root: ImageNode::Document(fields), unpredictable: false }
    }

    fn names(&self) -> Vec<&[u8]> {
        match &self.root {
            ImageNode::Document(fields) => fields.iter().map(|(name, _)| name.as_ref()).collect(),
            ImageNode::Value(value) => names_of(*value),
            ImageNode::Owned(value) => names_of(value.as_value()),
            ImageNode::New | ImageNode::Some(_) | ImageNode::Unknown => Vec::new(),
        }
    }

    /// Returns the value of the document at `path`.
    fn at_bytes(&self, path: &[u8]) -> ImageValue<'_> {
        if self.unpredictable {
            return ImageValue::Unknown;
        }
        let (mut node, mut rest) = (&self.root, path);
        loop {
            match node {
                ImageNode::Value(value) => return held_below(*value, rest),
                ImageNode::Owned(value) => return held_below(value.as_value(), rest),
                ImageNode::Document(fields) => {
                    let (part, below) = split(rest);
                    let Some(child) = fields.get(part) else { return ImageValue::Missing };
                    match below {
                        None => return child.held(),
                        Some(below) => (node, rest) = (child, below),
                    }
                }
                ImageNode::Some(Some(kind)) if *kind != Kind::Document => return ImageValue::Blocked(*kind),
                ImageNode::New | ImageNode::Some(_) | ImageNode::Unknown => return ImageValue::Unknown,
            }
        }
    }
}

/// Returns the fields of a document as the server stores them.
pub(super) fn stored_fields(document: Document<'_>) -> impl Iterator<Item = (Cow<'_, [u8]>, ImageNode<'_>)> {
    document.elements().map(|field| {
        let node = match is_empty_timestamp(&field) {
            true => ImageNode::Some(Some(field.value.kind)),
            false => ImageNode::Value(field.value),
        };
        (Cow::Borrowed(field.key), node)
    })
}

fn names_of(value: Value<'_>) -> Vec<&[u8]> {
    value.as_document().unwrap_or(Document::EMPTY).elements().map(|field| field.key).collect()
}

/// Returns the value at a path below `value`.
fn held_below<'v>(value: Value<'v>, rest: &[u8]) -> ImageValue<'v> {
    match look_below(rest, value) {
        PathLookup::Found(value) => ImageValue::Value(value),
        PathLookup::Missing => ImageValue::Missing,
        PathLookup::Blocked(kind) => ImageValue::Blocked(kind),
    }
}

fn split(path: &[u8]) -> (&[u8], Option<&[u8]>) {
    match path.iter().position(|byte| *byte == b'.') {
        Some(dot) => (path.get(..dot).unwrap_or(path), path.get(dot + 1..)),
        None => (path, None),
    }
}
