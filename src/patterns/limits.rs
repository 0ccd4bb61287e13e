//! `limits`: keeps arrays and documents small.
//!
//! Every event of a device is pushed into one array. After a year the document has 15 MiB, each update reads and
//! writes all of it, and at 16 MiB the server rejects every further push.
//!
//! before: `updateOne({_id: 1}, {$push: {items: I}})`
//!
//! after: `updateOne({_id: 1, "items.999": {$exists: false}}, {$push: {items: I}})`
//!
//! The server checks the condition together with the write, so the limits also hold if many clients push at once. A
//! value that is set, inserted or upserted must be within the limits itself. The condition on the size of a document
//! is in `length.rs`.

mod length;
mod settings;

use bson::doc;

use super::stored_data::{DataCheck, is_one_of, value};
use super::{
    AnyPattern, Applicability, Context, ExclusiveField, Measured, NoEffect, NoEffectCause, NoEffectKind, Pattern,
    Rejection, Requirement, Unmatched, Verdict, Violation, applicability_for_content, selection,
};
use crate::command::{Modification, Namespace, Operation, Statement, StatementKind, Update};
use crate::config::keys::Declaration;
use crate::config::{Located, Node, ReadContext};
use crate::document::{
    ArrayWriter, CowDocument, Document, Kind, OwnedValue, Path, PathLookup, Value, Writer, rest_below,
};
use crate::effect::{
    AddedValues, ImageValue, Items, WrittenBy, inserted, inserted_items, item_count, items, other_selections, touched,
};
use crate::text::counted;

/// Settings of the pattern; at least one limit.
#[derive(Debug, Clone)]
pub struct Limits {
    items: Vec<ItemLimit>,
    /// The maximum size of a document in bytes.
    document: Option<usize>,
}

/// The maximum number of elements of an array.
#[derive(Debug, Clone)]
struct ItemLimit {
    array: Located<Path>,
    most: usize,
}

const NO_ROOM: NoEffect =
    NoEffect::no_match("it matched nothing: no document has room for the change, or there is no such document");

impl Pattern for Limits {
    fn declaration() -> Declaration {
        Declaration::mapping(&settings::KEYS).example("{ items: { readings: 1000 } }")
    }

    fn read(settings: &Node, context: &mut ReadContext<'_>) -> Option<Self> {
        context.mapping(settings, &settings::KEYS, Self::read_keys)
    }

    fn no_effect_causes(&self) -> &'static [NoEffectCause] {
        &[NoEffectCause::Effect(NoEffectKind::NoMatch)]
    }

    fn rewriting(&self) -> &'static str {
        "adds the condition that keeps arrays and documents within their limits to the filter"
    }

    fn exclusive_fields(&self) -> Vec<ExclusiveField> {
        let field = |limit: &ItemLimit| limit.array.clone().map(|path| path.as_str().to_owned());
        self.items.iter().map(|limit| ExclusiveField { kind: "limits", field: field(limit) }).collect()
    }

    fn conflict_with(&self, other: &AnyPattern, _: Namespace<'_>) -> Option<&'static str> {
        let counted = other.counted_array()?;
        let is_below = |limit: &ItemLimit| {
            limit.array.value.as_str() == counted.array.as_str() && whole(limit.most) < counted.limit
        };
        let is_smaller = self.items.iter().any(is_below);
        is_smaller.then_some("the array belongs to a bucket, which is full only above the limit")
    }

    fn requirements(&self) -> Vec<Requirement> {
        self.document.iter().map(|_| Requirement::Operator("$bsonSize")).collect()
    }

    fn tolerates_unsupported(&self) -> bool {
        true
    }

    fn applicability(&self, kind: StatementKind, _: Namespace<'_>) -> Applicability {
        applicability_for_content(kind)
    }

    fn data_checks(&self, _: Namespace<'_>) -> Vec<DataCheck> {
        let mut checks = Vec::new();
        for ItemLimit { array, most } in &self.items {
            let array = &array.value;
            // The other branch is not evaluated, so $size gets only arrays.
            let beyond = doc! {"$gt": [{"$size": value(array)}, whole(*most)]};
            checks.push(DataCheck::each(
                format!("with more than {} in `{array}`", counted(*most as u64, "element")),
                "they stay as they are, and the rule rejects each push to them",
                doc! {"$cond": [is_one_of(array, &["array"]), beyond, false]},
            ));
        }
        if let Some(most) = self.document {
            checks.push(DataCheck::each(
                format!("with more than {most} bytes"),
                "they stay as they are, and the rule rejects what makes them longer",
                doc! {"$gt": [{"$bsonSize": "$$ROOT"}, whole(most)]},
            ));
        }
        checks
    }

    fn evaluate<'a>(&self, statement: &Statement<'a>, _: &Context<'_>) -> Verdict<'a> {
        let conditions = match self.conditions(&statement.operation) {
            Ok(conditions) => conditions,
            Err(Violation::Broken(rejection)) => return Verdict::Reject(rejection),
            Err(Violation::Unclear(rejection)) => return Verdict::Unsupported(rejection),
        };
        let Operation::Update(update) = &statement.operation else { return Verdict::Forward };
        let missing: Vec<_> = conditions.into_iter().filter(|condition| !has_condition(update, condition)).collect();
        if missing.is_empty() {
            return Verdict::Forward;
        }
        let mut update = update.clone();
        update.conditions.extend(missing);
        Verdict::conditional(Operation::Update(update), true, NO_ROOM)
    }

    fn check_final(&self, statement: &Statement<'_>) -> Result<(), Rejection> {
        let conditions = match self.conditions(&statement.operation) {
            Ok(conditions) => conditions,
            Err(Violation::Broken(rejection) | Violation::Unclear(rejection)) => return Err(rejection),
        };
        let Operation::Update(update) = &statement.operation else { return Ok(()) };
        if conditions.iter().all(|condition| has_condition(update, condition)) {
            return Ok(());
        }
        Err(Rejection::new(
            "it can exceed a limit, and its filter has no condition that prevents this",
            "Send the changes as separate statements.",
        ))
    }

    /// The size of the stored document, the most bytes that the statement adds, the number of elements, and whether
    /// another array can have given `$` its position.
    fn measured(&self, statement: &Statement<'_>) -> Vec<Measured> {
        let mut measured = Vec::new();
        let Operation::Update(update) = &statement.operation else { return measured };
        let others = self.other_arrays(update);
        if !others.is_empty() {
            measured.push(Measured { name: OTHER_ARRAY.to_owned(), expression: selection::has_array(&others) });
        }
        if let Some(growth) = self.document.and_then(|limit| length::growth(update, limit)) {
            measured.push(Measured { name: LENGTH.to_owned(), expression: length::of_document() });
            measured.push(Measured { name: GROWTH.to_owned(), expression: growth });
        }
        for limit in &self.items {
            let array = limit.array.value.as_str();
            let expression = CowDocument::build(|w| write_item_count(w, array));
            measured.push(Measured { name: count_name(array), expression });
            if let Some(added) = limit.added_to_set(update) {
                let expression = CowDocument::build(|w| write_new_item_count(w, array, added));
                measured.push(Measured { name: name_added(array), expression });
            }
            if let Some(position) = limit.position_without_room(update) {
                let expression = CowDocument::build(|w| write_has_name(w, array, position));
                measured.push(Measured { name: name_found(array), expression });
                let expression = CowDocument::build(|w| write_is_in_array(w, &limit.array.value));
                measured.push(Measured { name: name_around(array), expression });
            }
        }
        measured
    }

    /// Rejects if the stored document has no room. Otherwise another condition did not match.
    fn unmatched(&self, statement: &Statement<'_>, stored: Option<Document<'_>>) -> Unmatched {
        let (Some(stored), Operation::Update(update)) = (stored, &statement.operation) else {
            return Unmatched::Nothing;
        };
        let full = self.items.iter().find_map(|limit| limit.exceeded_by(update, stored));
        let rejection =
            full.or_else(|| self.too_long(stored)).or_else(|| self.selected_by_other(update, stored)).or_else(|| {
                // The condition has looked into another array, or mistaken a field's name for a position.
                let misled =
                    |limit: &ItemLimit| limit.in_array(update, stored).or_else(|| limit.misread(update, stored));
                self.items.iter().find_map(misled)
            });
        rejection.map_or(Unmatched::Nothing, Unmatched::Reject)
    }
}

fn whole(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Names of measured values. They begin like no field of an application.
const LENGTH: &str = "_docward_length";
const GROWTH: &str = "_docward_growth";
const OTHER_ARRAY: &str = "_docward_other_array";

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

impl Limits {
    /// Checks everything that the statement itself stores against the limits. Returns the conditions on the stored
    /// document.
    fn conditions(&self, operation: &Operation<'_>) -> Result<Vec<CowDocument<'static>>, Violation> {
        let mut conditions = Vec::new();
        for limit in &self.items {
            limit.check_inserted(operation)?;
            conditions.extend(limit.condition(operation)?);
        }
        if let Some(most) = self.document {
            length::check(operation, most)?;
            conditions.extend(length::condition(operation, most)?);
        }
        if let Operation::Update(update) = operation
            && let others = self.other_arrays(update)
            && !others.is_empty()
        {
            conditions.push(selection::no_array(&others));
        }
        Ok(conditions)
    }

    /// Returns the fields of the filter of which none may be an array: `$` could have the position of one of its
    /// elements.
    fn other_arrays<'u>(&self, update: &'u Update<'_>) -> Vec<&'u str> {
        let Some(operators) = update.operators() else { return Vec::new() };
        if !touched(operators).any(|(_, path, _)| path.contains(&b'$')) {
            return Vec::new();
        }
        let mut others = match self.document {
            Some(_) => length::other_arrays(update),
            None => Vec::new(),
        };
        for limit in &self.items {
            others.extend(limit.other_arrays(update));
        }
        others.sort_unstable();
        others.dedup();
        others
    }

    /// Returns the rejection if a field of the filter is an array, although the result depends on it.
    fn selected_by_other(&self, update: &Update<'_>, stored: Document<'_>) -> Option<Rejection> {
        let has_array = stored.get(OTHER_ARRAY).and_then(Value::as_bool) == Some(true);
        has_array.then(|| selection::rejection(&self.other_arrays(update)))
    }

    fn too_long(&self, stored: Document<'_>) -> Option<Rejection> {
        let number = |name: &str| stored.get(name).and_then(Value::as_whole);
        let (most, length, growth) = (self.document?, number(LENGTH)?, number(GROWTH)?);
        let exceeds = growth > 0 && length.saturating_add(growth) > i64::try_from(most).unwrap_or(i64::MAX);
        exceeds.then(|| {
            Rejection::new(
                format!(
                    "the document has {length} bytes and the statement can add {growth}; the limit is {most} bytes"
                ),
                "Store growing data in documents of its own, or remove old data first.",
            )
        })
    }
}

impl ItemLimit {
    /// Checks the array in the document that the statement inserts.
    fn check_inserted(&self, operation: &Operation<'_>) -> Result<(), Violation> {
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
    fn condition(&self, operation: &Operation<'_>) -> Result<Option<CowDocument<'static>>, Violation> {
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
    fn exceeded_by(&self, update: &Update<'_>, stored: Document<'_>) -> Option<Rejection> {
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
    fn other_arrays<'u>(&self, update: &'u Update<'_>) -> Vec<&'u str> {
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

    /// Returns the rejection if a field around the array is an array itself, in whose elements the condition finds positions.
    fn in_array(&self, update: &Update<'_>, stored: Document<'_>) -> Option<Rejection> {
        let array = self.array.value.as_str();
        self.position_without_room(update)?;
        let is_inside = stored.get(name_around(array)).and_then(Value::as_bool) == Some(true);
        is_inside.then(|| self.inside_array())
    }

    /// Returns the rejection if a field in the stored array has the name of the position in the condition.
    fn misread(&self, update: &Update<'_>, stored: Document<'_>) -> Option<Rejection> {
        let (array, position) = (self.array.value.as_str(), self.position_without_room(update)?);
        let is_misread = stored.get(name_found(array)).and_then(Value::as_bool) == Some(true);
        is_misread.then(|| {
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

/// Returns whether the update has a condition, or one for more bytes.
fn has_condition(update: &Update<'_>, condition: &CowDocument<'_>) -> bool {
    let is_enough = |known: &CowDocument<'_>| length::is_as_strict(known.as_document(), condition.as_document());
    update.conditions.iter().any(is_enough)
}

/// Writes `{$cond: [{$isArray: "$items"}, {$size: "$items"}, 0]}`.
fn write_item_count(w: &mut Writer<'_>, array: &str) {
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
fn if_array(
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
