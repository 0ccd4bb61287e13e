//! The condition that an array has room: `{"items.999": {$exists: false}}`, or for `$addToSet` an expression that counts the
//! values it does not contain.

use crate::command::{Operation, Update};
use crate::config::Located;
use crate::document::{ArrayWriter, CowDocument, Document, Kind, OwnedValue, Path, Value, Writer, rest_below, root_of};
use crate::effect::{AddedValues, item_count, on_stored, position, selects_only};
use crate::patterns::plain::{self, Form, NotPlain, PlainWrite};
use crate::patterns::promise::held;
use crate::patterns::{Measured, Rejection};
use crate::text::plural;

/// The maximum number of elements of an array.
#[derive(Debug, Clone)]
pub(super) struct ItemLimit {
    pub(super) array: Located<Path>,
    pub(super) most: usize,
}

/// What a statement adds to an array.
#[derive(Debug, Clone, Copy)]
pub(super) enum Growing<'s> {
    /// This number of elements.
    By(usize),
    /// Those of these values that it does not contain.
    Set(AddedValues<'s>),
}

pub(super) fn whole(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl ItemLimit {
    /// Checks a statement of a plain form. Returns what it adds to the stored array, if the result depends on that.
    ///
    /// # Errors
    /// The statement is not plain.
    pub(super) fn plain<'s>(
        &self,
        operation: &'s Operation<'_>,
    ) -> Result<Result<Option<Growing<'s>>, Rejection>, NotPlain> {
        match plain::form(operation) {
            Form::Nothing => Ok(Ok(None)),
            Form::Document(document) => Ok(self.check_count(self.longest(document)).map(|()| None)),
            Form::Update(update) => match update.operators() {
                Some(operators) => self.plain_update(update, operators),
                None => plain::stored(update, &self.array.value).map(|_| Ok(None)),
            },
        }
    }

    fn plain_update<'s>(
        &self,
        update: &'s Update<'_>,
        operators: Document<'s>,
    ) -> Result<Result<Option<Growing<'s>>, Rejection>, NotPlain> {
        let mut growing = None;
        for write in plain::each_write(on_stored(operators), &self.array.value) {
            match self.plain_write(write?, update.filter.as_document())? {
                Ok(None) => {}
                Ok(found) => growing = found,
                Err(broken) => return Ok(Err(broken)),
            }
        }
        if update.upsert {
            match self.plain_write(plain::inserted(update, &self.array.value)?, update.filter.as_document())? {
                // Some of them may be equal.
                Ok(Some(Growing::Set(added))) if added.count() > self.most => {
                    return Err(format!("as an upsert, it may insert too many elements in '{}'", self.array.value));
                }
                Ok(_) => {}
                Err(broken) => return Ok(Err(broken)),
            }
        }
        Ok(Ok(growing))
    }

    fn plain_write<'s>(
        &self,
        write: PlainWrite<'s>,
        filter: Document<'_>,
    ) -> Result<Result<Option<Growing<'s>>, Rejection>, NotPlain> {
        let array = self.array.value.as_str().as_bytes();
        let (operator, path, value) = match write {
            PlainWrite::Untouched | PlainWrite::Removed | PlainWrite::Shrinks(_) => return Ok(Ok(None)),
            PlainWrite::Set(value) => return Ok(self.check_count(item_count(value)).map(|()| None)),
            PlainWrite::InElement(_) => return Err(format!("it writes '{}' in an array element", self.array.value)),
            PlainWrite::Operator(write) => write,
        };
        let part = rest_below(path, array).map(root_of);
        match (operator, part) {
            (b"$push" | b"$addToSet", None) if path == array => return Ok(self.check_growth(operator, value)),
            // The server fails them on arrays, and their results are not arrays.
            (b"$inc" | b"$mul" | b"$bit" | b"$currentDate", None) if path == array => return Ok(Ok(None)),
            (b"$min" | b"$max", None) if path == array && value.kind != Kind::Array => return Ok(Ok(None)),
            (_, Some(b"$")) if selects_only(filter, array) => {
                return Ok(Ok(None));
            }
            // The server fills the array with nulls up to a position.
            (_, Some(part)) if part != b"$" && position(part).is_none_or(|position| position < self.most) => {
                return Ok(Ok(None));
            }
            _ => {}
        }
        let text = String::from_utf8_lossy;
        Err(format!("its {} of '{}' may add elements to '{}'", text(operator), text(path), self.array.value))
    }

    fn check_growth<'s>(&self, operator: &[u8], argument: Value<'s>) -> Result<Option<Growing<'s>>, Rejection> {
        let added = AddedValues::in_argument(operator, argument);
        let modifiers = argument.as_document().filter(|_| matches!(added, AddedValues::Each(_)));
        let slice = modifiers.and_then(|modifiers| modifiers.get("$slice")).and_then(Value::as_whole);
        let is_kept_by = |slice: i64| slice.unsigned_abs() <= self.most as u64;
        match (operator, added.count()) {
            (b"$addToSet", _) => Ok(Some(Growing::Set(added))),
            (_, 0) => Ok(None),
            _ if slice.is_some_and(is_kept_by) => Ok(None),
            (_, by) => self.check_count(by).map(|()| Some(Growing::By(by))),
        }
    }

    /// Returns the condition that the stored array has room; `None` if the client's filter has it.
    pub(super) fn condition(&self, update: &Update<'_>, growing: Growing<'_>) -> Option<CowDocument<'static>> {
        match growing {
            Growing::By(by) => (!self.demands_room(update, by)).then(|| self.room(by)),
            Growing::Set(added) => Some(self.room_in_set(added)),
        }
    }

    /// Checks what a statement has made of a document: no array has more elements than allowed, or than before.
    pub(super) fn promise(&self, before: Option<Document<'_>>, after: Document<'_>) -> Result<(), Rejection> {
        let (old, new) = (before.map_or(0, |before| self.longest(before)), self.longest(after));
        if new <= old { Ok(()) } else { self.check_count(new) }
    }

    /// The number of elements of the array in a document; of the longest one if the path leads through arrays.
    fn longest(&self, document: Document<'_>) -> usize {
        held(document, self.array.value.as_str().as_bytes()).into_iter().map(item_count).max().unwrap_or(0)
    }

    /// Returns what [`exceeded_by`](Self::exceeded_by) and [`misled`](Self::misled) need of the stored document.
    pub(super) fn measured(&self, update: &Update<'_>) -> Vec<Measured> {
        let mut measured = Vec::new();
        let array = self.array.value.as_str();
        let expression = CowDocument::build(|w| write_item_count(w, array));
        measured.push(Measured { name: count_name(array), expression });
        if let Some(Growing::Set(added)) = self.growing(update) {
            let expression = CowDocument::build(|w| write_new_item_count(w, array, added));
            measured.push(Measured { name: name_added(array), expression });
        }
        if let Some(position) = self.position_without_room(update) {
            let expression = CowDocument::build(|w| write_has_name(w, array, position));
            measured.push(Measured { name: name_found(array), expression });
            let expression = CowDocument::build(|w| write_is_in_array(w, &self.array.value));
            measured.push(Measured { name: name_around(array), expression });
        }
        measured
    }

    fn check_count(&self, count: usize) -> Result<(), Rejection> {
        if count <= self.most {
            return Ok(());
        }
        Err(Rejection::new(
            format!(
                "'{}' would have {}; the limit is {}",
                self.array.value,
                plural(count as u64, "element"),
                self.most
            ),
            "Store further elements in documents of their own, or remove old ones first.",
        ))
    }

    /// Returns the rejection if the stored array has no room for what the statement adds.
    pub(super) fn exceeded_by(&self, update: &Update<'_>, stored: Document<'_>) -> Option<Rejection> {
        let array = self.array.value.as_str();
        let measured = |name: String| usize::try_from(stored.get(name)?.as_whole()?).ok();
        let added = match self.growing(update)? {
            Growing::Set(_) => measured(name_added(array))?,
            Growing::By(by) => by,
        };
        let count = measured(count_name(array))?;
        (added > 0 && count + added > self.most).then(|| {
            Rejection::new(
                format!(
                    "'{array}' has {} and the statement adds {added}; the limit is {}",
                    plural(count as u64, "element"),
                    self.most
                ),
                "Store further elements in documents of their own, or remove old ones first.",
            )
        })
    }

    fn growing<'u>(&self, update: &'u Update<'_>) -> Option<Growing<'u>> {
        self.plain_update(update, update.operators()?).ok()?.ok()?
    }

    /// Returns the position in [`room`](Self::room), if the statement gets that condition.
    fn position_without_room(&self, update: &Update<'_>) -> Option<usize> {
        match self.growing(update)? {
            Growing::By(by) => Some(self.first_without_room(by)),
            Growing::Set(_) => None,
        }
    }

    /// Returns the rejection if the condition has looked into another array, or mistaken a field's name for a position.
    pub(super) fn misled(&self, update: &Update<'_>, stored: Document<'_>) -> Option<Rejection> {
        let (array, position) = (self.array.value.as_str(), self.position_without_room(update)?);
        let is = |name: String| stored.get(name).and_then(Value::as_bool) == Some(true);
        if is(name_around(array)) {
            return Some(self.inside_array());
        }
        is(name_found(array)).then(|| {
            Rejection::new(
                format!(
                    "'{array}' contains a field named '{position}', which docward's condition takes for an element"
                ),
                format!("Store the elements of '{array}' without fields named by numbers."),
            )
        })
    }

    /// Returns the position that no array with room for `added` elements has.
    fn first_without_room(&self, added: usize) -> usize {
        self.most.saturating_sub(added)
    }

    fn room(&self, added: usize) -> CowDocument<'static> {
        let position = format!("{}.{}", self.array.value, self.first_without_room(added));
        CowDocument::build(|w| w.nested(&position, |w| w.boolean("$exists", false)))
    }

    /// Returns whether the client's filter requires room: `{"items.999": {$exists: false}}` or a smaller position, at
    /// its top level.
    fn demands_room(&self, update: &Update<'_>, added: usize) -> bool {
        update.filter.as_document().elements().any(|condition| {
            let below = rest_below(condition.key, self.array.value.as_str().as_bytes());
            let position = below.and_then(crate::effect::index);
            let is_missing = condition.value.as_document().and_then(|condition| condition.get("$exists"));
            position.is_some_and(|position| position <= self.first_without_room(added))
                && is_missing.and_then(Value::as_bool) == Some(false)
        })
    }

    /// Returns the condition that the array has room for those of the values that it does not contain. An array that is
    /// too long already has room for none.
    fn room_in_set(&self, added: AddedValues<'_>) -> CowDocument<'static> {
        let array = self.array.value.as_str();
        CowDocument::build(|w| {
            w.nested("$expr", |w| {
                w.array("$lte", |a| {
                    a.nested(|w| write_new_item_count(w, array, added));
                    a.nested(|w| {
                        w.array("$max", |a| {
                            a.int32(0);
                            a.nested(|w| {
                                w.array("$subtract", |a| {
                                    a.value(OwnedValue::integer(whole(self.most)).as_value());
                                    a.nested(|w| write_item_count(w, array));
                                });
                            });
                        });
                    });
                });
            });
        })
    }

    fn inside_array(&self) -> Rejection {
        Rejection::new(
            format!("its field '{}' is inside an array", self.array.value),
            "Store the array in a field outside arrays.",
        )
    }
}

fn count_name(array: &str) -> String {
    format!("_docward_items_{}", array.replace('.', "/"))
}

fn name_around(array: &str) -> String {
    format!("_docward_around_{}", array.replace('.', "/"))
}

fn name_added(array: &str) -> String {
    format!("_docward_added_to_{}", array.replace('.', "/"))
}

fn name_found(array: &str) -> String {
    format!("_docward_name_in_{}", array.replace('.', "/"))
}

/// Writes `{$cond: [{$isArray: "$items"}, {$size: "$items"}, 0]}`.
pub(super) fn write_item_count(w: &mut Writer<'_>, array: &str) {
    if_array(w, array, |a, items| a.nested(|w| w.string("$size", items)), |a, _| a.int32(0));
}

/// Writes whether a field around this one is an array.
fn write_is_in_array(w: &mut Writer<'_>, field: &Path) {
    w.array("$or", |a| {
        field.parents().for_each(|parent| a.nested(|w| w.array("$isArray", |a| a.string(format!("${parent}")))));
    });
}

/// Writes whether the field is a document, or an array with one, that has a field with the name of the position.
fn write_has_name(w: &mut Writer<'_>, array: &str, position: usize) {
    w.array("$anyElementTrue", |a| {
        a.nested(|w| {
            w.nested("$map", |w| {
                w.nested("input", |w| {
                    if_array(w, array, |a, items| a.string(items), |a, value| a.array(|a| a.string(value)));
                });
                w.nested("in", |w| {
                    // The name of a field here: a path in an expression has no positions.
                    w.array("$and", |a| {
                        a.nested(|w| {
                            w.array("$eq", |a| {
                                a.nested(|w| w.string("$type", "$$this"));
                                a.string("object");
                            });
                        });
                        a.nested(|w| {
                            w.array("$ne", |a| {
                                a.nested(|w| w.string("$type", format!("$$this.{position}")));
                                a.string("missing");
                            });
                        });
                    });
                });
            });
        });
    });
}

/// Writes one of two expressions, with a reference to the field: for an array, and for any other value or none.
pub(super) fn if_array(
    w: &mut Writer<'_>,
    array: &str,
    then: impl FnOnce(&mut ArrayWriter<'_>, &str),
    otherwise: impl FnOnce(&mut ArrayWriter<'_>, &str),
) {
    let reference = format!("${array}");
    w.array("$cond", |a| {
        a.nested(|w| w.string("$isArray", &reference));
        then(a, &reference);
        otherwise(a, &reference);
    });
}

fn write_new_item_count(w: &mut Writer<'_>, array: &str, added: AddedValues<'_>) {
    w.nested("$size", |w| write_new_items(w, array, added));
}

/// Writes the values that the array does not contain. Like `$addToSet`, `$setDifference` adds equal ones once.
fn write_new_items(w: &mut Writer<'_>, array: &str, added: AddedValues<'_>) {
    w.array("$setDifference", |a| {
        a.nested(|w| {
            w.array("$literal", |a| added.values().for_each(|value| a.value(value)));
        });
        a.nested(|w| if_array(w, array, |a, items| a.string(items), |a, _| a.array(|_| {})));
    });
}
