//! The document that an insert or an upsert adds.
//!
//! mongod builds it from the equalities of the filter, ordered by path
//! (`UpdateDriver::populateDocumentWithQueryFields`). Then it applies the update as to a stored document, including
//! `$setOnInsert` (`UpsertStage::_produceNewDocumentForInsert`). A replacement takes only `_id` from the filter. A
//! missing `_id` is generated.

use std::borrow::Cow;

use super::operators::look_below;
use super::pins::{PinnedPath, Pins, pins};
use crate::command::Modification;
use crate::document::{CowDocument, Document, Kind, OwnedValue, Path, PathLookup, Value};

/// The document that is added.
#[derive(Debug, Clone)]
pub struct Inserted<'s> {
    root: ImageNode<'s>,
    /// The `_id` that a replacement takes from the filter.
    id: Option<ImageNode<'s>>,
    /// The statement may have effects that the model does not cover.
    unpredictable: bool,
}

/// The value of the added document at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageValue<'i> {
    /// The field is missing, and `$set` could create it.
    Missing,
    Value(Value<'i>),
    /// An unknown value, of this kind if it is known.
    Some(Option<Kind>),
    /// The field may exist or not.
    Unknown,
    /// A parent of the field is not a document; it has this kind.
    Blocked(Kind),
}

impl ImageValue<'_> {
    /// Returns whether the field may have a value.
    pub fn may_be_there(self) -> bool {
        matches!(self, Self::Value(_) | Self::Some(_) | Self::Unknown)
    }

    /// Returns whether the field may be missing.
    pub fn may_be_missing(self) -> bool {
        matches!(self, Self::Missing | Self::Blocked(_) | Self::Unknown)
    }
}

#[derive(Debug, Clone)]
enum ImageNode<'s> {
    /// The value that the client sent.
    Value(Value<'s>),
    Owned(OwnedValue),
    Document(ImageFields<'s>),
    Some(Option<Kind>),
    Unknown,
}

fn names_of(value: Value<'_>) -> Vec<&[u8]> {
    value.as_document().unwrap_or(Document::EMPTY).elements().map(|field| field.key).collect()
}

type ImageFields<'s> = Vec<(Cow<'s, [u8]>, ImageNode<'s>)>;

/// mongod fails the upsert, so nothing is inserted.
struct UpsertFails;

/// Returns the document of an upsert, or `None` if the server fails it.
pub(super) fn of_upsert<'s>(filter: Document<'s>, modification: &'s Modification<'_>) -> Option<Inserted<'s>> {
    match modification {
        Modification::Replacement(document) => {
            let mut inserted = Inserted::of_document(document.as_document());
            if inserted.at_key(b"_id").is_none() {
                inserted.id = pinned_id(filter);
            }
            Some(inserted)
        }
        Modification::Operators(operators) => {
            let mut inserted = Inserted::of_pins(filter);
            for (operator, fields) in operators.as_document().elements().map(|element| (element.key, element.value)) {
                for field in fields.as_document().unwrap_or(Document::EMPTY).elements() {
                    inserted.apply(operator, field.key, field.value).ok()?;
                }
            }
            Some(inserted)
        }
        Modification::Pipeline(pipeline) => of_upsert(filter, &pipeline.meaning),
        Modification::ClientPipeline(_) => Some(Inserted { unpredictable: true, ..Inserted::of_pins(filter) }),
    }
}

/// Returns the `_id` that the filter gives to a replacement. It must be an equality on the whole `_id`
/// (`NotExactValueField`).
fn pinned_id(filter: Document<'_>) -> Option<ImageNode<'_>> {
    let pin = pins(filter).into_iter().find(|pin| pin.path == b"_id")?;
    Some(ImageNode::from_pin(pin))
}

impl<'s> ImageNode<'s> {
    fn from_pin(pin: PinnedPath<'s>) -> Self {
        match pin.value {
            Some(value) if pin.certain => Self::Value(value),
            _ => Self::Unknown,
        }
    }

    /// Returns the field with this name if the node is a document.
    fn child(&self, part: &[u8]) -> Option<PathLookup<'_>> {
        match self {
            Self::Value(value) => Some(look_below(part, *value)),
            Self::Owned(value) => Some(look_below(part, value.as_value())),
            Self::Document(_) | Self::Some(_) | Self::Unknown => None,
        }
    }

    /// Returns the fields of a document for changes.
    fn open(&mut self) -> Option<&mut ImageFields<'s>> {
        if let Self::Value(value) = self
            && let Some(document) = value.as_document()
        {
            let fields = document.elements().map(|field| (Cow::Borrowed(field.key), Self::Value(field.value)));
            *self = Self::Document(fields.collect());
        }
        match self {
            Self::Document(fields) => Some(fields),
            _ => None,
        }
    }

    fn kind(&self) -> Option<Kind> {
        match self {
            Self::Value(value) => Some(value.kind),
            Self::Owned(value) => Some(value.as_value().kind),
            Self::Document(_) => Some(Kind::Document),
            Self::Some(kind) => *kind,
            Self::Unknown => None,
        }
    }

    fn held(&self) -> ImageValue<'_> {
        match self {
            Self::Value(value) => ImageValue::Value(*value),
            Self::Owned(value) => ImageValue::Value(value.as_value()),
            Self::Document(_) => ImageValue::Some(Some(Kind::Document)),
            Self::Some(kind) => ImageValue::Some(*kind),
            Self::Unknown => ImageValue::Unknown,
        }
    }
}

impl<'s> Inserted<'s> {
    pub(super) fn of_document(document: Document<'s>) -> Self {
        Self { root: ImageNode::Value(Value::document(document)), id: None, unpredictable: false }
    }

    fn of_pins(filter: Document<'s>) -> Self {
        let mut inserted = Self { root: ImageNode::Document(Vec::new()), id: None, unpredictable: false };
        let (mut certain, uncertain): (Pins<'s>, Pins<'s>) = pins(filter).into_iter().partition(|pin| pin.certain);
        // The server stores them in an ordered map.
        certain.sort_by(|one, other| one.path.cmp(other.path));
        for pin in &certain {
            // If two pins overlap, the server fails or has simplified them to one.
            match inserted.root.reach(&parts(pin.path), true) {
                Some(node) if matches!(node, ImageNode::Some(None)) => *node = ImageNode::from_pin(*pin),
                Some(node) if Some(node.held()) == pin.value.map(ImageValue::Value) => {}
                Some(node) => *node = ImageNode::Unknown,
                None => inserted.unpredictable = true,
            }
        }
        for pin in uncertain {
            match certain.iter().find(|other| pin.overlaps(other)) {
                None => inserted.may_hold(pin.path),
                // If the server takes both, it fails, unless it has simplified them to one.
                Some(other) if other.path == pin.path && pin.may_equal(other) => inserted.may_hold(pin.path),
                Some(_) => {}
            }
        }
        inserted
    }

    /// Marks a path as unknown, with the parent documents that only this path needs.
    fn may_hold(&mut self, path: &'s [u8]) {
        let parts = parts(path);
        let is_known = |depth: &usize| self.root.reach(parts.get(..*depth).unwrap_or_default(), false).is_some();
        let known = (1..parts.len()).take_while(is_known).count();
        // A parent that cannot be reached is unknown already.
        if let Some(node) = self.root.reach(parts.get(..=known).unwrap_or_default(), true) {
            *node = ImageNode::Unknown;
        }
    }

    /// Returns the names of its top-level fields, including those that may be missing.
    pub fn names(&self) -> Vec<&[u8]> {
        match &self.root {
            ImageNode::Document(fields) => fields.iter().map(|(name, _)| name.as_ref()).collect(),
            ImageNode::Value(value) => names_of(*value),
            ImageNode::Owned(value) => names_of(value.as_value()),
            ImageNode::Some(_) | ImageNode::Unknown => Vec::new(),
        }
    }

    /// Returns the value of the document at `path`.
    pub fn at(&self, path: &Path) -> ImageValue<'_> {
        if self.unpredictable {
            return ImageValue::Unknown;
        }
        let text = path.as_str().as_bytes();
        if let (Some(id), b"_id") = (&self.id, text) {
            return id.held();
        }
        let mut node = &self.root;
        let mut rest = text;
        loop {
            match node {
                ImageNode::Value(value) => return held_below(*value, rest),
                ImageNode::Owned(value) => return held_below(value.as_value(), rest),
                ImageNode::Document(fields) => {
                    let (part, below) = split(rest);
                    let Some((_, child)) = fields.iter().find(|(name, _)| name.as_ref() == part) else {
                        return ImageValue::Missing;
                    };
                    match below {
                        None => return child.held(),
                        Some(below) => (node, rest) = (child, below),
                    }
                }
                ImageNode::Some(Some(kind)) if !matches!(kind, Kind::Document | Kind::Array) => {
                    return ImageValue::Blocked(*kind);
                }
                ImageNode::Some(Some(Kind::Array)) => return ImageValue::Blocked(Kind::Array),
                ImageNode::Some(_) | ImageNode::Unknown => return ImageValue::Unknown,
            }
        }
    }

    fn at_key(&self, key: &[u8]) -> Option<PathLookup<'_>> {
        self.root.child(key).filter(|found| matches!(found, PathLookup::Found(_)))
    }

    /// Applies one operator to one path, as the server does for a new document.
    fn apply(&mut self, operator: &[u8], path: &'s [u8], value: Value<'s>) -> Result<(), UpsertFails> {
        if operator == b"$rename" {
            return self.rename(path, value);
        }
        let parts = parts(path);
        let creates = !matches!(operator, b"$unset" | b"$pull" | b"$pullAll" | b"$pop");
        let Some(node) = self.node_for(&parts, creates)? else { return Ok(()) };
        let (is_new, kind) = (matches!(node, ImageNode::Some(None)), node.kind());
        let known = !matches!(node, ImageNode::Unknown);
        match operator {
            b"$set" | b"$setOnInsert" => *node = ImageNode::Value(value),
            b"$unset" => self.remove(&parts),
            b"$currentDate" => *node = ImageNode::Some(None),
            b"$inc" | b"$mul"
                if !value.kind.is_number() || (known && !is_new && !kind.is_some_and(Kind::is_number)) =>
            {
                return Err(UpsertFails);
            }
            b"$inc" if is_new => *node = ImageNode::Value(value),
            b"$inc" => *node = sum(node, value).map_or(ImageNode::Some(None), ImageNode::Owned),
            b"$mul" if is_new => *node = zero_like(value),
            b"$mul" => *node = ImageNode::Some(None),
            b"$min" | b"$max" if is_new => *node = ImageNode::Value(value),
            b"$min" | b"$max" => *node = ImageNode::Some(None),
            b"$bit" => *node = ImageNode::Some(None),
            b"$push" | b"$addToSet" if known && !is_new && kind.is_some_and(|kind| kind != Kind::Array) => {
                return Err(UpsertFails);
            }
            b"$push" | b"$addToSet" => {
                let array = if is_new { new_array(operator, value) } else { None };
                *node = array.map_or(ImageNode::Some(Some(Kind::Array)), ImageNode::Owned);
            }
            b"$pull" | b"$pullAll" | b"$pop" if known && kind.is_some_and(|kind| kind != Kind::Array) => {
                return Err(UpsertFails);
            }
            b"$pull" | b"$pullAll" | b"$pop" => *node = ImageNode::Some(Some(Kind::Array)),
            _ => self.unpredictable = true,
        }
        Ok(())
    }

    /// Returns the node at a path, or `None` if there is nothing to do. A new node is `ImageNode::Some(None)`.
    fn node_for(&mut self, parts: &[&'s [u8]], creates: bool) -> Result<Option<&mut ImageNode<'s>>, UpsertFails> {
        if let Some(depth) = parts.iter().position(|part| part.starts_with(b"$")) {
            self.change_elements(parts, depth)?;
            return Ok(None);
        }
        match self.root.path_state(parts) {
            PathState::Free => Ok(self.root.reach(parts, creates)),
            // The path is an element of an array or below one.
            PathState::Array(depth) | PathState::Unknown(depth) => {
                self.change_below(parts.get(..depth).unwrap_or_default());
                Ok(None)
            }
            PathState::Blocked if creates => Err(UpsertFails),
            PathState::Blocked => Ok(None),
        }
    }

    /// Applies an operator whose path has a positional part at `depth`. The server fails `$`, because no filter has found
    /// an element. `$[]` and `$[x]` change elements of the array before them, which only an equality of the filter can
    /// have created; the server fails them without it (`UpdateArrayNode::apply`).
    fn change_elements(&mut self, parts: &[&'s [u8]], depth: usize) -> Result<(), UpsertFails> {
        let around = parts.get(..depth).unwrap_or_default();
        match parts.get(depth) {
            Some(&b"$") => return Err(UpsertFails),
            Some(part) if part.starts_with(b"$[") => {}
            // `$id` and the like are the names of fields.
            _ => {
                self.unpredictable = true;
                return Ok(());
            }
        }
        match self.root.path_state(around) {
            PathState::Free => match self.root.reach(around, false).map(|node| node.kind()) {
                None => return Err(UpsertFails),
                Some(Some(kind)) if kind != Kind::Array => return Err(UpsertFails),
                Some(_) => self.change_below(around),
            },
            PathState::Array(depth) | PathState::Unknown(depth) => {
                self.change_below(parts.get(..depth).unwrap_or_default())
            }
            PathState::Blocked => {}
        }
        Ok(())
    }

    /// Makes the content of a value unknown, if the value exists. An array stays an array.
    fn change_below(&mut self, parts: &[&'s [u8]]) {
        if let Some(node) = self.root.reach(parts, false) {
            *node = match node.kind() {
                Some(Kind::Array) => ImageNode::Some(Some(Kind::Array)),
                _ => ImageNode::Unknown,
            };
        }
    }

    fn remove(&mut self, parts: &[&[u8]]) {
        let Some((last, around)) = parts.split_last() else { return };
        let parent = if around.is_empty() { Some(&mut self.root) } else { self.root.reach_known(around) };
        if let Some(fields) = parent.and_then(ImageNode::open) {
            fields.retain(|(name, _)| name.as_ref() != *last);
        }
    }

    fn rename(&mut self, source: &'s [u8], target: Value<'s>) -> Result<(), UpsertFails> {
        let target = target.as_string_bytes().ok_or(UpsertFails)?;
        let from = parts(source);
        let Some(node) = self.node_for(&from, false)? else { return Ok(()) };
        let moved = std::mem::replace(node, ImageNode::Unknown);
        self.remove(&from);
        let to = parts(target);
        if let Some(node) = self.node_for(&to, true)? {
            *node = moved;
        }
        Ok(())
    }
}

/// The state of a path in a document under construction.
enum PathState {
    /// All existing parents are documents.
    Free,
    /// There is an array at this depth.
    Array(usize),
    /// There is an unknown value at this depth.
    Unknown(usize),
    /// There is a scalar.
    Blocked,
}

impl<'s> ImageNode<'s> {
    fn path_state(&self, parts: &[&[u8]]) -> PathState {
        let mut node = self;
        for (depth, part) in parts.iter().enumerate() {
            match node {
                ImageNode::Document(fields) => match fields.iter().find(|(name, _)| name.as_ref() == *part) {
                    None => return PathState::Free,
                    Some((_, child)) => node = child,
                },
                ImageNode::Unknown | ImageNode::Some(None) => return PathState::Unknown(depth),
                other => {
                    return match other.kind() {
                        Some(Kind::Document) => other.path_state_below(parts.get(depth..).unwrap_or_default(), depth),
                        Some(Kind::Array) => PathState::Array(depth),
                        _ => PathState::Blocked,
                    };
                }
            }
        }
        PathState::Free
    }

    /// Returns the state of a path inside a value that the client sent.
    fn path_state_below(&self, parts: &[&[u8]], depth: usize) -> PathState {
        let (ImageNode::Value(value), false) = (self, parts.is_empty()) else { return PathState::Unknown(depth) };
        let mut found = *value;
        for (more, part) in parts.iter().enumerate() {
            match (found.as_document(), found.kind) {
                (Some(document), _) => match document.get(part) {
                    None => return PathState::Free,
                    Some(value) => found = value,
                },
                (None, Kind::Array) => return PathState::Array(depth + more),
                (None, _) => return PathState::Blocked,
            }
        }
        PathState::Free
    }

    /// Returns the node at a free path. If it is missing and `creates` is set, it is created as `Some(None)`.
    fn reach(&mut self, parts: &[&'s [u8]], creates: bool) -> Option<&mut ImageNode<'s>> {
        let mut node = self;
        for (depth, part) in parts.iter().enumerate() {
            let fields = node.open()?;
            let position = match fields.iter().position(|(name, _)| name.as_ref() == *part) {
                Some(position) => position,
                None if !creates => return None,
                None => {
                    let is_last = depth + 1 == parts.len();
                    let new = if is_last { ImageNode::Some(None) } else { ImageNode::Document(Vec::new()) };
                    fields.push((Cow::Borrowed(part), new));
                    fields.len() - 1
                }
            };
            node = &mut fields.get_mut(position)?.1;
        }
        Some(node)
    }

    fn reach_known(&mut self, parts: &[&[u8]]) -> Option<&mut ImageNode<'s>> {
        let mut node = self;
        for part in parts {
            let fields = node.open()?;
            let position = fields.iter().position(|(name, _)| name.as_ref() == *part)?;
            node = &mut fields.get_mut(position)?.1;
        }
        Some(node)
    }
}

/// Returns the value at a path below `value`.
fn held_below<'v>(value: Value<'v>, rest: &[u8]) -> ImageValue<'v> {
    match look_below(rest, value) {
        PathLookup::Found(value) => ImageValue::Value(value),
        PathLookup::Missing => ImageValue::Missing,
        PathLookup::Blocked(kind) => ImageValue::Blocked(kind),
    }
}

fn parts(path: &[u8]) -> Vec<&[u8]> {
    path.split(|byte| *byte == b'.').collect()
}

fn split(path: &[u8]) -> (&[u8], Option<&[u8]>) {
    match path.iter().position(|byte| *byte == b'.') {
        Some(dot) => (path.get(..dot).unwrap_or(path), path.get(dot + 1..)),
        None => (path, None),
    }
}

/// Returns the sum of integers and doubles (`SafeNum`). The result has the wider type. An int that overflows becomes
/// a long. Returns `None` if a long overflows, which fails on the server, or if a decimal is involved.
fn sum(node: &ImageNode<'_>, amount: Value<'_>) -> Option<OwnedValue> {
    let ImageValue::Value(stored) = node.held() else { return None };
    match (stored.kind, amount.kind) {
        (Kind::Int32, Kind::Int32) => stored.as_integer()?.checked_add(amount.as_integer()?).map(OwnedValue::integer),
        (Kind::Int32 | Kind::Int64, Kind::Int32 | Kind::Int64) => {
            stored.as_integer()?.checked_add(amount.as_integer()?).map(OwnedValue::int64)
        }
        (Kind::Decimal128, _) | (_, Kind::Decimal128) => None,
        _ => Some(OwnedValue::double(as_double(stored)? + as_double(amount)?)),
    }
}

fn as_double(value: Value<'_>) -> Option<f64> {
    value.as_f64().or_else(|| value.as_integer().map(|number| number as f64))
}

/// Returns the result of `$mul` on a missing field: zero, in the type of the factor.
fn zero_like<'s>(factor: Value<'_>) -> ImageNode<'s> {
    match factor.kind {
        Kind::Int32 => ImageNode::Owned(OwnedValue::int32(0)),
        Kind::Int64 => ImageNode::Owned(OwnedValue::int64(0)),
        // The result may be -0 or NaN.
        Kind::Double => ImageNode::Owned(OwnedValue::double(0.0 * factor.as_f64().unwrap_or_default())),
        kind => ImageNode::Some(Some(kind)),
    }
}

/// Returns the array that `$push` or `$addToSet` creates; `None` if modifiers or equal elements change it.
fn new_array(operator: &[u8], value: Value<'_>) -> Option<OwnedValue> {
    let modifiers = value.as_document().filter(|fields| fields.elements().any(|field| field.key.starts_with(b"$")));
    let each = match modifiers {
        None => None,
        Some(modifiers) if operator == b"$push" && modifiers.elements().count() == 1 => {
            Some(modifiers.get("$each")?.as_array()?)
        }
        Some(_) => return None,
    };
    let holder = CowDocument::build(|w| {
        w.array("array", |a| match each {
            Some(items) => items.values().for_each(|item| a.value(item)),
            None => a.value(value),
        });
    });
    holder.as_document().get("array").map(OwnedValue::from)
}

#[cfg(test)]
mod tests {
    use bson::{Bson, doc, raw::RawDocumentBuf};

    use super::*;

    fn bytes(document: bson::Document) -> Vec<u8> {
        RawDocumentBuf::try_from(&document).unwrap().into_bytes()
    }

    /// Returns the value at a path of an upsert by operators.
    fn held(filter: bson::Document, update: bson::Document, path: &str) -> Option<String> {
        let (filter, update) = (bytes(filter), bytes(update));
        let modification = Modification::Operators(CowDocument::from(Document::parse(&update).unwrap()));
        let inserted = of_upsert(Document::parse(&filter).unwrap(), &modification)?;
        Some(match inserted.at(&Path::parse(path).unwrap()) {
            ImageValue::Value(value) => {
                let bytes = crate::document::document(|w| w.value("v", value));
                bson::Document::from_reader(bytes.as_slice()).unwrap().get("v").map(Bson::to_string).unwrap()
            }
            other => format!("{other:?}"),
        })
    }

    #[test]
    fn an_upsert_applies_equalities_and_then_operators() {
        let check = |filter: bson::Document, update: bson::Document, path: &str, expected: &str| {
            let found = held(filter.clone(), update.clone(), path).unwrap_or_else(|| "fails".to_owned());
            assert_eq!(found, expected, "{filter} {update} {path}");
        };
        let set = || doc! {"$set": {"x": 1}};
        check(doc! {"a": 3}, set(), "a", "3");
        check(doc! {"a": {"$in": [3]}}, set(), "a", "3");
        check(doc! {"$or": [{"a.b": 3}]}, set(), "a.b", "3");
        check(doc! {"a": {"b": 3}}, doc! {"$inc": {"a.b": 2}}, "a.b", "5");
        check(doc! {"a": 1.5}, doc! {"$inc": {"a": 2}}, "a", "3.5");
        check(doc! {"a": "x"}, doc! {"$inc": {"a": 2}}, "a", "fails");
        check(doc! {"a": 3}, doc! {"$unset": {"a": 1}}, "a", "Missing");
        check(doc! {"a": {"b": 1, "c": 2}}, doc! {"$unset": {"a.b": 1}}, "a.c", "2");
        check(doc! {"a": 3}, doc! {"$rename": {"a": "b.c"}}, "b.c", "3");
        check(doc! {"a": 3}, doc! {"$set": {"a.b": 1}}, "a.b", "fails");
        check(doc! {"a": [1]}, doc! {"$set": {"a.0": 1}}, "a.b", "Blocked(Array)");
        check(doc! {}, doc! {"$setOnInsert": {"a": {"b": 1}}}, "a.b", "1");
        check(doc! {}, doc! {"$mul": {"a": 5}}, "a", "0");
        check(doc! {}, doc! {"$push": {"a": {"b": 1}}}, "a", "[{ \"b\": 1 }]");
        check(doc! {}, doc! {"$push": {"a": {"$each": [1, 2]}}}, "a", "[1, 2]");
        check(doc! {}, doc! {"$push": {"a": {"$each": [1, 2], "$slice": 1}}}, "a", "Some(Some(Array))");
        check(doc! {}, doc! {"$currentDate": {"a": true}}, "a", "Some(None)");
        check(doc! {"$or": [{"a": 1}, {"a": 1, "b": 2}]}, set(), "a", "Unknown");
        check(doc! {"a": {"$gt": 1}}, set(), "a", "Missing");
        // A positional operator changes only the array before it, which must exist.
        check(doc! {"a": 1}, doc! {"$set": {"b.$": 2}}, "c", "fails");
        check(doc! {"a": [1]}, doc! {"$setOnInsert": {"a.$": 2}}, "c", "fails");
        check(doc! {"a": 1}, doc! {"$set": {"b.$[]": 2}}, "c", "fails");
        check(doc! {"a": 1}, doc! {"$set": {"a.$[x].b": 2}}, "c", "fails");
        check(doc! {"a.b": [1]}, doc! {"$set": {"a.b.$[]": 2}}, "c", "Missing");
        check(doc! {"a.b": [1]}, doc! {"$set": {"a.b.$[]": 2}}, "a.b", "Some(Some(Array))");
        // If one equality is certain, the server does not take the other or fails.
        let twice = |path: &str| doc! {"$or": [{path: 3}, {path: 3}]};
        check(doc! {"$and": [twice("a.b"), {"a.b": {}}]}, set(), "c", "Missing");
        check(doc! {"$and": [twice("a.b"), {"a.b": {}}]}, set(), "a.b", "{}");
        check(doc! {"$and": [twice("a"), {"a.b": 1}]}, set(), "a.b", "1");
        check(doc! {"$and": [twice("a.b"), {"a": 1}]}, set(), "a", "1");
        check(doc! {"$and": [twice("a.b"), {"a.b": 3.0}]}, set(), "a.b", "Unknown");
        check(doc! {"$and": [twice("a.b"), twice("a")]}, set(), "c", "Missing");
        check(doc! {"$and": [twice("a.b"), {"a.c": 1}]}, set(), "a.c", "1");
    }
}
