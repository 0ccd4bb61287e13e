//! How an upsert builds the document that it inserts.
//!
//! mongod builds it from the equalities of the filter, ordered by path
//! (`UpdateDriver::populateDocumentWithQueryFields`). Then it applies the update as to a stored document, including
//! `$setOnInsert` (`UpsertStage::_produceNewDocumentForInsert`). A replacement takes only `_id` from the filter.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::arithmetic::{keeps_known, new_array, sum, zero_like};
use super::image::{Image, Inserted, stored_fields};
use super::node::{ImageFields, ImageNode, ImageValue, PathState};
use super::operators::{is_positional_operator, position};
use super::pins::{PinnedPath, Pins, agree, may_match_nothing, pins, pins_and_emptiness, uses_expr};
use crate::command::Modification;
use crate::document::{Document, Kind, Value};

/// mongod fails the upsert, so nothing is inserted.
struct UpsertFails;

/// The effect of an operator on a missing field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Absent {
    Created,
    /// It does nothing, but it fails if a parent is neither a document nor an array with this index.
    NotCreated,
    /// It never fails.
    Ignored,
}

impl Absent {
    /// The result where a parent is neither a document nor an array with this index: `PathNotViable`
    /// (`UpdateObjectNode`, `ModifierNode::applyToNonexistentElement`).
    fn where_no_field_can_be<T>(self) -> Result<Option<T>, UpsertFails> {
        if self == Self::Ignored { Ok(None) } else { Err(UpsertFails) }
    }
}

/// Returns the document of an upsert, or `None` if the server fails it.
pub(super) fn of_upsert<'s>(filter: Document<'s>, modification: &'s Modification<'_>) -> Option<Inserted<'s>> {
    match modification {
        Modification::Replacement(_) if uses_expr(filter) => None,
        Modification::Replacement(document) => {
            let document = document.as_document();
            let without_filter = may_match_nothing(filter).then(|| Image::of_document(document));
            Inserted::of_images(std::iter::once(of_replacement(filter, document)).chain(without_filter))
        }
        Modification::Operators(operators) => {
            let images = Equalities::of_filter(filter)?.images();
            Inserted::of_images(images.filter_map(|image| image.with_operators(operators.as_document()).ok()))
        }
        Modification::Pipeline(pipeline) => of_upsert(filter, &pipeline.meaning),
        Modification::ClientPipeline(_) => Inserted::of_images(
            Equalities::of_filter(filter)?.images().map(|image| Image { unpredictable: true, ..image }),
        ),
    }
}

/// The `_id` of the filter must be an equality on the whole `_id` (`NotExactValueField`).
fn of_replacement<'s>(filter: Document<'s>, document: Document<'s>) -> Image<'s> {
    let pin = || pins(filter).into_iter().find(|pin| pin.path == b"_id");
    match document.get("_id").is_none().then(pin).flatten() {
        None => Image::of_document(document),
        Some(pin) => {
            let id = (Cow::Borrowed(pin.path), ImageNode::from_pin(pin));
            Image::of_fields(std::iter::once(id).chain(stored_fields(document)).collect())
        }
    }
}

impl<'s> ImageNode<'s> {
    fn from_pin(pin: PinnedPath<'s>) -> Self {
        match pin.value {
            _ if !pin.certain => Self::Unknown,
            Some(value) => Self::Value(value),
            None => Self::Some(None),
        }
    }
}

/// The server takes each equality that is not certain or leaves it. If there are more, their fields are unknown.
const MOST_CHOICES: usize = 4;

/// What an upsert by operators takes from its filter.
#[derive(Debug)]
pub struct Equalities<'s> {
    pins: Pins<'s>,
    /// Of [`may_match_nothing`].
    may_match_nothing: bool,
}

impl<'s> Equalities<'s> {
    /// Returns `None` for a filter with `$expr`: the server rejects an upsert with it.
    pub fn of_filter(filter: Document<'s>) -> Option<Self> {
        let taken = || {
            let (pins, may_match_nothing) = pins_and_emptiness(filter);
            Self { pins, may_match_nothing }
        };
        (!uses_expr(filter)).then(taken)
    }

    /// Returns the names of the top-level fields that the inserted document has, or may have, from the filter.
    pub fn roots(&self) -> impl Iterator<Item = &'s [u8]> {
        self.pins.iter().map(PinnedPath::root)
    }

    /// Returns whether every version of the server fails to build a document from them.
    pub fn conflict(&self) -> bool {
        !agree(self.pins.iter().filter(|pin| pin.certain)) && !self.may_match_nothing
    }

    /// Returns the documents that the server may build; first that of the certain equalities.
    fn images(&self) -> impl Iterator<Item = Image<'s>> + use<'s> {
        let mut certain: Pins<'s> = self.pins.iter().copied().filter(|pin| pin.certain).collect();
        let mut free = Pins::new();
        for pin in self.pins.iter().filter(|pin| !pin.certain) {
            // If a certain equality overlaps it, the server does not take it, or fails, or takes one of both.
            let mut is_free = true;
            for other in certain.iter_mut().filter(|other| pin.overlaps(other)) {
                is_free = false;
                if other.path == pin.path && pin.may_equal(other) {
                    other.value = None;
                }
            }
            if is_free {
                free.push(*pin);
            }
        }
        let choices = if free.len() > MOST_CHOICES { 0 } else { free.len() };
        let without_filter = self.may_match_nothing.then(|| Image::of_pins(Pins::new()));
        let images = (0..1_usize << choices).filter_map(move |choice| {
            let taken = || free.iter().take(choices).enumerate().filter(|(index, _)| choice >> index & 1 == 1);
            if choice != 0 && !agree(taken().map(|(_, pin)| pin)) {
                return None;
            }
            let mut pins = certain.clone();
            pins.extend(taken().map(|(_, pin)| PinnedPath { certain: true, ..*pin }));
            let mut image = Image::of_pins(pins);
            free.iter().skip(choices).for_each(|pin| image.may_hold(pin.path));
            Some(image)
        });
        images.chain(without_filter)
    }
}

impl<'s> Image<'s> {
    /// Returns the document that has these values.
    fn of_pins(mut pins: Pins<'s>) -> Self {
        let mut image = Self::of_fields(ImageFields::default());
        // The server stores them in an ordered map.
        pins.sort_by(|one, other| one.path.cmp(other.path));
        for pin in pins {
            // If two pins overlap, the server fails or has simplified them to one.
            match image.root.reach(&parts(pin.path), true) {
                Some(node) if matches!(node, ImageNode::New) => *node = ImageNode::from_pin(pin),
                Some(node) if Some(node.held()) == pin.value.map(ImageValue::Value) => {}
                Some(node) => *node = ImageNode::Unknown,
                None => image.unpredictable = true,
            }
        }
        image
    }

    fn with_operators(mut self, operators: Document<'s>) -> Result<Self, UpsertFails> {
        for (operator, fields) in operators.elements().map(|element| (element.key, element.value)) {
            for field in fields.as_document().unwrap_or(Document::EMPTY).elements() {
                self.apply(operator, field.key, field.value)?;
            }
        }
        Ok(self)
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

    /// Applies one operator to one path, as the server does for a new document.
    fn apply(&mut self, operator: &[u8], path: &'s [u8], value: Value<'s>) -> Result<(), UpsertFails> {
        if operator == b"$rename" {
            return self.rename(path, value);
        }
        let parts = parts(path);
        let absent = match operator {
            b"$unset" => Absent::Ignored,
            b"$pull" | b"$pullAll" | b"$pop" => Absent::NotCreated,
            _ => Absent::Created,
        };
        let Some(node) = self.node_for(&parts, absent)? else { return Ok(()) };
        let (is_new, kind) = (matches!(node, ImageNode::New), node.kind());
        let known = !matches!(node, ImageNode::Unknown);
        match operator {
            b"$set" | b"$setOnInsert" => *node = ImageNode::Value(value),
            b"$unset" => self.remove(&parts),
            b"$currentDate" => *node = ImageNode::Some(Some(kind_of_now(value))),
            b"$inc" | b"$mul" if !value.kind.is_number() || kind.is_some_and(|kind| !kind.is_number()) => {
                return Err(UpsertFails);
            }
            b"$inc" if is_new => *node = ImageNode::Value(value),
            b"$inc" => *node = sum(node, value).map_or(ImageNode::Some(None), ImageNode::Owned),
            b"$mul" if is_new => *node = zero_like(value),
            b"$mul" => *node = ImageNode::Some(None),
            b"$min" | b"$max" if is_new => *node = ImageNode::Value(value),
            b"$min" | b"$max" => match keeps_known(node, operator, value) {
                Some(true) => {}
                Some(false) => *node = ImageNode::Value(value),
                None => *node = ImageNode::Some(None),
            },
            // A missing field counts as the int 0, which the operand makes a number of its own kind.
            b"$bit" if is_new => {
                *node = ImageNode::Some(value.as_document().and_then(Document::first).map(|one| one.value.kind))
            }
            b"$bit" => *node = ImageNode::Some(None),
            b"$push" | b"$addToSet" if kind.is_some_and(|kind| kind != Kind::Array) => {
                return Err(UpsertFails);
            }
            b"$push" | b"$addToSet" => {
                let array = if is_new { new_array(operator, value) } else { None };
                *node = array.map_or(ImageNode::Some(Some(Kind::Array)), ImageNode::Owned);
            }
            b"$pull" | b"$pullAll" | b"$pop" if kind.is_some_and(|kind| kind != Kind::Array) => {
                return Err(UpsertFails);
            }
            // They do not create the array.
            b"$pull" | b"$pullAll" | b"$pop" if !known => {}
            b"$pull" | b"$pullAll" | b"$pop" => *node = ImageNode::Some(Some(Kind::Array)),
            _ => self.unpredictable = true,
        }
        Ok(())
    }

    /// Returns the node at a path, or `None` if there is nothing to do. A new node is `ImageNode::New`.
    fn node_for(&mut self, parts: &[&'s [u8]], absent: Absent) -> Result<Option<&mut ImageNode<'s>>, UpsertFails> {
        if let Some(depth) = parts.iter().position(|part| is_positional_operator(part)) {
            self.change_elements(parts, depth)?;
            return Ok(None);
        }
        match self.root.path_state(parts) {
            PathState::Free => Ok(self.root.reach(parts, absent == Absent::Created)),
            PathState::Array(depth) if parts.get(depth).is_some_and(|part| position(part).is_none()) => {
                absent.where_no_field_can_be()
            }
            // The path is an element of an array or below one.
            PathState::Array(depth) | PathState::Unknown(depth) => {
                self.change_below(parts.get(..depth).unwrap_or_default());
                Ok(None)
            }
            PathState::Blocked => absent.where_no_field_can_be(),
        }
    }

    /// Applies an operator whose path has a positional part at `depth`. The server fails `$`, because no filter has found
    /// an element. `$[]` and `$[x]` change elements of the array before them, which only an equality of the filter can
    /// have created; the server fails them without it (`UpdateArrayNode::apply`).
    fn change_elements(&mut self, parts: &[&'s [u8]], depth: usize) -> Result<(), UpsertFails> {
        let around = parts.get(..depth).unwrap_or_default();
        if parts.get(depth) == Some(&&b"$"[..]) {
            return Err(UpsertFails);
        }
        match self.root.path_state(around) {
            PathState::Free => match self.root.reach(around, false).map(|node| node.kind()) {
                None => return Err(UpsertFails),
                Some(Some(kind)) if kind != Kind::Array => return Err(UpsertFails),
                Some(_) => self.change_below(around),
            },
            PathState::Array(depth) if self.has_no_array(around, depth) => return Err(UpsertFails),
            PathState::Array(depth) | PathState::Unknown(depth) => {
                self.change_below(parts.get(..depth).unwrap_or_default())
            }
            PathState::Blocked => return Err(UpsertFails),
        }
        Ok(())
    }

    /// Returns whether the value at a path is known to be missing or not an array. The path leads through an array at
    /// `depth`.
    fn has_no_array(&mut self, parts: &[&'s [u8]], depth: usize) -> bool {
        let (around, below) = parts.split_at_checked(depth).unwrap_or_default();
        let Some(ImageValue::Value(array)) = self.root.reach(around, false).map(|node| node.held()) else {
            return below.first().is_some_and(|part| position(part).is_none());
        };
        let found = below.iter().try_fold(array, |value, part| match value.as_array() {
            Some(elements) => elements.elements().nth(position(part)?).map(|element| element.value),
            None => value.as_document()?.get(part),
        });
        found.is_none_or(|value| value.kind != Kind::Array)
    }

    /// Makes the content of a value unknown, if the value exists. An array stays an array.
    fn change_below(&mut self, parts: &[&'s [u8]]) {
        if let Some(node) = self.root.reach(parts, false) {
            *node = match node.kind() {
                Some(Kind::Array) => ImageNode::Some(Some(Kind::Array)),
                _ if matches!(node, ImageNode::Unknown) => ImageNode::Unknown,
                _ => ImageNode::Some(None),
            };
        }
    }

    fn remove(&mut self, parts: &[&[u8]]) {
        let Some((last, around)) = parts.split_last() else { return };
        let parent = if around.is_empty() { Some(&mut self.root) } else { self.root.reach_known(around) };
        if let Some(fields) = parent.and_then(ImageNode::open) {
            fields.remove(last);
        }
    }

    fn rename(&mut self, source: &'s [u8], target: Value<'s>) -> Result<(), UpsertFails> {
        let target = target.as_string_bytes().ok_or(UpsertFails)?;
        let (from, to) = (parts(source), parts(target));
        let is_uncertain = matches!(self.root.path_state(&from), PathState::Array(_) | PathState::Unknown(_));
        let Some(node) = self.node_for(&from, Absent::NotCreated)? else {
            if is_uncertain {
                self.may_hold(target);
            }
            return Ok(());
        };
        let moved = std::mem::replace(node, ImageNode::Unknown);
        self.remove(&from);
        if matches!(moved, ImageNode::Unknown) {
            // The server creates the target only if the source exists.
            self.may_hold(target);
        } else if let Some(node) = self.node_for(&to, Absent::Created)? {
            *node = moved;
        }
        Ok(())
    }
}

fn parts(path: &[u8]) -> SmallVec<[&[u8]; 4]> {
    path.split(|byte| *byte == b'.').collect()
}

/// Returns the type of the time that `$currentDate` writes.
fn kind_of_now(argument: Value<'_>) -> Kind {
    let named = argument.as_document().and_then(|argument| argument.get("$type")).and_then(Value::as_str);
    if named == Some("timestamp") { Kind::Timestamp } else { Kind::DateTime }
}

#[cfg(test)]
mod tests {
    use bson::{Bson, doc, raw::RawDocumentBuf};

    use super::*;
    use crate::document::{CowDocument, Path};

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
        check(doc! {"a": 2}, doc! {"$max": {"a": 3.5}}, "a", "3.5");
        check(doc! {"a": 2}, doc! {"$max": {"a": 1}}, "a", "2");
        check(doc! {"a": 2}, doc! {"$min": {"a": 1_i64}}, "a", "1");
        check(doc! {"a": 2}, doc! {"$min": {"a": 2.0}}, "a", "2");
        check(doc! {"a": 2}, doc! {"$max": {"a": f64::NAN}}, "a", "Some(None)");
        check(doc! {"a": "x"}, doc! {"$max": {"a": 1}}, "a", "Some(None)");
        check(doc! {}, doc! {"$push": {"a": {"b": 1}}}, "a", "[{ \"b\": 1 }]");
        check(doc! {}, doc! {"$push": {"a": {"$each": [1, 2]}}}, "a", "[1, 2]");
        check(doc! {}, doc! {"$push": {"a": {"$each": [1, 2], "$slice": 1}}}, "a", "Some(Some(Array))");
        check(doc! {}, doc! {"$currentDate": {"a": true}}, "a", "Some(Some(DateTime))");
        check(doc! {}, doc! {"$currentDate": {"a": {"$type": "timestamp"}}}, "a", "Some(Some(Timestamp))");
        check(doc! {}, doc! {"$currentDate": {"a": true}}, "a.b", "Blocked(DateTime)");
        check(doc! {}, doc! {"$bit": {"a": {"or": 5}}}, "a.b", "Blocked(Int32)");
        check(doc! {"$or": [{"a": 1}, {"a": 1, "b": 2}]}, set(), "a", "Unknown");
        check(doc! {"a": {"$gt": 1}}, set(), "a", "Missing");
        // A positional operator changes only the array before it, which must exist.
        check(doc! {"a": 1}, doc! {"$set": {"b.$": 2}}, "c", "fails");
        check(doc! {"a": [1]}, doc! {"$setOnInsert": {"a.$": 2}}, "c", "fails");
        check(doc! {"a": 1}, doc! {"$set": {"b.$[]": 2}}, "c", "fails");
        check(doc! {"a": 1}, doc! {"$set": {"a.$[x].b": 2}}, "c", "fails");
        check(doc! {"a": []}, doc! {"$set": {"a.x.$[]": 2}}, "c", "fails");
        check(doc! {"a": [[1]]}, doc! {"$set": {"a.0.$[]": 2}}, "a", "Some(Some(Array))");
        check(doc! {"a": [[1]]}, doc! {"$set": {"a.1.$[]": 2}}, "c", "fails");
        check(doc! {"a": [{"b": 1}]}, doc! {"$set": {"a.0.b.$[]": 2}}, "c", "fails");
        check(doc! {"a": 5}, doc! {"$set": {"a.b.$[]": 2}}, "c", "fails");
        // A name cannot be an index of an array.
        check(doc! {"a": [{}]}, doc! {"$set": {"a.x": 2}}, "c", "fails");
        check(doc! {"a": [{}]}, doc! {"$pop": {"a.x": 1}}, "c", "fails");
        check(doc! {"a": 5}, doc! {"$pull": {"a.x": 1}}, "c", "fails");
        check(doc! {"a": 5}, doc! {"$rename": {"a.x": "z"}}, "z", "fails");
        check(doc! {"a": [{}]}, doc! {"$unset": {"a.x": 1}}, "a", "[{}]");
        check(doc! {"a.b": [1]}, doc! {"$set": {"a.b.$[]": 2}}, "c", "Missing");
        check(doc! {"a.b": [1]}, doc! {"$set": {"a.b.$[]": 2}}, "a.b", "Some(Some(Array))");
        // The server takes an uncertain equality or not.
        let twice = |path: &str| doc! {"$or": [{path: 3, "z": 1}, {path: 3}]};
        check(twice("a"), doc! {"$pull": {"a": 1}}, "a", "Missing");
        check(twice("a.m"), doc! {"$set": {"a.n": 1}}, "a.m", "Unknown");
        check(twice("a.m"), doc! {"$set": {"a.n": 1}}, "a.n", "1");
        check(doc! {"a.m": {"$in": [2.0, 2]}}, doc! {"$set": {"a.n": 1}}, "a.m", "2");
        check(doc! {"a": {"$not": {"$not": {"$eq": 1}}}}, doc! {"$inc": {"a": 1}}, "a", "Some(None)");
        check(twice("a"), doc! {"$rename": {"a": "c.d"}}, "c", "Unknown");
        check(twice("a"), doc! {"$rename": {"a": "c.d"}}, "a", "Missing");
        check(twice("a"), doc! {"$rename": {"a.n": "c"}}, "c", "Missing");
        check(doc! {"$or": [{"a": {"n": 3}}, {"a": {"n": 3}}]}, doc! {"$rename": {"a.n": "c"}}, "c", "Unknown");
        check(doc! {"c.x": 1, "$or": [{"a": 3, "z": 1}, {"a": 3}]}, doc! {"$rename": {"a": "c.d"}}, "c.x", "1");
        // If one equality is certain, the server does not take the other or fails.
        let twice = |path: &str| doc! {"$or": [{path: 3}, {path: 3}]};
        check(doc! {"$and": [twice("a.b"), {"a.b": {}}]}, set(), "c", "Missing");
        check(doc! {"$and": [twice("a.b"), {"a.b": {}}]}, set(), "a.b", "{}");
        check(doc! {"$and": [twice("a"), {"a.b": 1}]}, set(), "a.b", "1");
        check(doc! {"$and": [twice("a.b"), {"a": 1}]}, set(), "a", "1");
        check(doc! {"$and": [twice("a.b"), {"a.b": 3.0}]}, set(), "a.b", "Some(None)");
        check(doc! {"$and": [twice("a.b"), twice("a")]}, set(), "c", "Missing");
        check(doc! {"$and": [twice("a.b"), {"a.c": 1}]}, set(), "a.c", "1");
    }

    /// A document of 16 MiB has room for so many fields; comparing each with all others takes minutes.
    #[test]
    fn many_fields_take_linear_time() {
        let fields: bson::Document = (0..200_000).map(|number| (format!("f{number}"), 1.into())).collect();
        let (filter, operators) = (bytes(doc! {"_id": 1}), bytes(doc! {"$set": fields}));
        let modification = Modification::Operators(CowDocument::from(Document::parse(&operators).unwrap()));
        let began = std::time::Instant::now();
        let inserted = of_upsert(Document::parse(&filter).unwrap(), &modification).unwrap();
        assert_eq!(inserted.names().len(), 200_001);
        assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
    }

    #[test]
    fn a_replacement_takes_the_id_of_the_filter() {
        let (filter, new) = (bytes(doc! {"_id": {"x": 3}, "b": 1}), bytes(doc! {"a": 1}));
        let modification = Modification::Replacement(CowDocument::from(Document::parse(&new).unwrap()));
        let inserted = of_upsert(Document::parse(&filter).unwrap(), &modification).unwrap();
        let at = |path: &str| inserted.at(&Path::parse(path).unwrap());
        assert!(matches!(at("_id.x"), ImageValue::Value(value) if value.as_i32() == Some(3)));
        assert!(matches!(at("a"), ImageValue::Value(value) if value.as_i32() == Some(1)));
        assert_eq!(at("b"), ImageValue::Missing);
    }
}
