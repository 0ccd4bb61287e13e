//! The condition that an array has room: `{"items.999": {$exists: false}}`, or for `$addToSet` an expression that counts the
//! values it does not contain.

use crate::command::{Modification, Operation, Update};
use crate::config::Located;
use crate::document::{
    ArrayWriter, CowDocument, Document, Kind, OwnedValue, Path, PathLookup, Value, Writer, rest_below,
};
use crate::effect::{
    AddedValues, ImageValue, Items, WrittenBy, inserted, inserted_items, item_count, items, other_selections,
};
use crate::patterns::{Measured, Rejection, Violation};
use crate::text::counted;

/// The maximum number of elements of an array.
#[derive(Debug, Clone)]
pub(super) struct ItemLimit {
    pub(super) array: Located<Path>,
    pub(super) most: usize,
}

pub(super) fn whole(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl ItemLimit {
    /// Checks the array in the document that the statement inserts.
    pub(super) fn check_inserted(&self, operation: &Operation<'_>) -> Result<(), Violation> {
        if inserted(operation).is_some_and(|image| image.at(&self.array.value) == ImageValue::Blocked(Kind::Array)) {
            return Err(Violation::Unclear(self.inside_array()));
        }
        match inserted_items(operation, &self.array.value) {
            Some(count) => Ok(self.check_count(count)?),
            None => Err(Violation::Broken(Rejection::new(
                format!("as an upsert it could insert more than {} '{}'", self.most, self.array.value),
                "Insert the document first, or leave the array out of the filter.",
            ))),
        }
    }

    /// Checks what the statement writes into a stored document. Returns the condition on the stored array, if the
    /// result depends on it.
    pub(super) fn condition(&self, operation: &Operation<'_>) -> Result<Option<CowDocument<'static>>, Violation> {
        let Operation::Update(update) = operation else { return Ok(None) };
        let path = &self.array.value;
        match update.modification.meaning() {
            Modification::Replacement(document) => match path.lookup(document.as_document()) {
                PathLookup::Found(value) => Ok(self.check_count(item_count(value)).map(|()| None)?),
                PathLookup::Blocked(Kind::Array) => Err(Violation::Unclear(self.inside_array())),
                PathLookup::Missing | PathLookup::Blocked(_) => Ok(None),
            },
            Modification::Operators(operators) => {
                match items(update.filter.as_document(), operators.as_document(), path) {
                    Items::Kept => Ok(None),
                    Items::UpTo(most) => Ok(self.check_count(most).map(|()| None)?),
                    Items::Pushed { most: Some(most), .. } if most <= self.most => Ok(None),
                    Items::Pushed { by: 0, .. } => Ok(None),
                    Items::Pushed { by, .. } => {
                        self.check_count(by)?;
                        Ok((!self.demands_room(update, by)).then(|| self.room(by)))
                    }
                    Items::AddedToSet(added) => Ok(Some(self.room_in_set(added))),
                    // The condition is that of all limits together.
                    Items::Selected(_) => Ok(None),
                    Items::Unclear(written) => Err(self.unclear(written)),
                }
            }
            Modification::ClientPipeline(_) | Modification::Pipeline(_) => Ok(None),
        }
    }

    /// Returns what [`exceeded_by`](Self::exceeded_by) and [`misled`](Self::misled) need of the stored document.
    pub(super) fn measured(&self, update: &Update<'_>) -> Vec<Measured> {
        let mut measured = Vec::new();
        let array = self.array.value.as_str();
        let expression = CowDocument::build(|w| write_item_count(w, array));
        measured.push(Measured { name: count_name(array), expression });
        if let Some(added) = self.added_to_set(update) {
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
                counted(count as u64, "element"),
                self.most
            ),
            "Store further elements in documents of their own, or remove old ones first.",
        ))
    }

    /// Returns the rejection if the stored array has no room for what the statement adds.
    pub(super) fn exceeded_by(&self, update: &Update<'_>, stored: Document<'_>) -> Option<Rejection> {
        let operators = update.operators()?;
        let array = self.array.value.as_str();
        let measured = |name: String| usize::try_from(stored.get(name)?.as_whole()?).ok();
        let added = match items(update.filter.as_document(), operators, &self.array.value) {
            Items::AddedToSet(_) => measured(name_added(array))?,
            other => self.pushed(&other)?,
        };
        let count = measured(count_name(array))?;
        (added > 0 && count + added > self.most).then(|| {
            Rejection::new(
                format!(
                    "'{array}' has {} and the statement adds {added}; the limit is {}",
                    counted(count as u64, "element"),
                    self.most
                ),
                "Store further elements in documents of their own, or remove old ones first.",
            )
        })
    }

    /// Returns the fields of the filter of which none may be an array, so that the number of elements is known.
    pub(super) fn other_arrays<'u>(&self, update: &'u Update<'_>) -> Vec<&'u str> {
        let Some(operators) = update.operators() else { return Vec::new() };
        let (filter, path) = (update.filter.as_document(), &self.array.value);
        match items(filter, operators, path) {
            Items::Selected(_) => other_selections(filter, path.as_str().as_bytes()).unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    /// Returns the position in [`room`](Self::room), if the statement gets that condition.
    fn position_without_room(&self, update: &Update<'_>) -> Option<usize> {
        let operators = update.operators()?;
        let pushed = self.pushed(&items(update.filter.as_document(), operators, &self.array.value));
        pushed.filter(|by| *by > 0).map(|by| self.first_without_room(by))
    }

    /// Returns the values that the statement adds if the array does not contain them.
    fn added_to_set<'u>(&'u self, update: &'u Update<'_>) -> Option<AddedValues<'u>> {
        match items(update.filter.as_document(), update.operators()?, &self.array.value) {
            Items::AddedToSet(added) => Some(added),
            _ => None,
        }
    }

    /// Returns how many elements are pushed, if the result can be too long.
    fn pushed(&self, items: &Items<'_>) -> Option<usize> {
        match items {
            Items::Pushed { most: Some(most), .. } if *most <= self.most => None,
            Items::Pushed { by, .. } => Some(*by),
            Items::Kept | Items::UpTo(_) | Items::AddedToSet(_) | Items::Selected(_) | Items::Unclear(_) => None,
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

    fn unclear(&self, written: WrittenBy<'_>) -> Violation {
        let text = String::from_utf8_lossy;
        Violation::Unclear(Rejection::new(
            format!(
                "docward cannot count the elements of '{}' after {} on '{}'",
                self.array.value,
                text(written.operator),
                text(written.path)
            ),
            format!("Change '{}' with $push, $addToSet or $set, as a field outside arrays.", self.array.value),
        ))
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
