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
//! is in `length.rs`, that on the number of elements in `items.rs`.

mod items;
mod length;
mod settings;

use bson::doc;

use self::items::{ItemLimit, whole};
use super::stored_data::{DataCheck, is_one_of, value};
use super::{
    AnyPattern, Applicability, Context, ExclusiveField, Measured, NoEffect, NoEffectCause, NoEffectKind, Pattern,
    Rejection, Requirement, Unmatched, Verdict, Violation, applicability_for_content, selection,
};
use crate::command::{Namespace, Operation, Statement, StatementKind, Update};
use crate::config::keys::Declaration;
use crate::config::{Node, ReadContext};
use crate::document::{CowDocument, Document, Value};
use crate::effect::touched;
use crate::text::counted;

/// Settings of the pattern; at least one limit.
#[derive(Debug, Clone)]
pub struct Limits {
    items: Vec<ItemLimit>,
    /// The maximum size of a document in bytes.
    document: Option<usize>,
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
        measured.extend(self.items.iter().flat_map(|limit| limit.measured(update)));
        measured
    }

    /// Rejects if the stored document has no room. Otherwise another condition did not match.
    fn unmatched(&self, statement: &Statement<'_>, stored: Option<Document<'_>>) -> Unmatched {
        let (Some(stored), Operation::Update(update)) = (stored, &statement.operation) else {
            return Unmatched::Nothing;
        };
        let full = self.items.iter().find_map(|limit| limit.exceeded_by(update, stored));
        let rejection = full
            .or_else(|| self.too_long(stored))
            .or_else(|| self.selected_by_other(update, stored))
            .or_else(|| self.items.iter().find_map(|limit| limit.misled(update, stored)));
        rejection.map_or(Unmatched::Nothing, Unmatched::Reject)
    }
}

/// Names of measured values. They begin like no field of an application.
const LENGTH: &str = "_docward_length";
const GROWTH: &str = "_docward_growth";
const OTHER_ARRAY: &str = "_docward_other_array";

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

/// Returns whether the update has a condition, or one for more bytes.
fn has_condition(update: &Update<'_>, condition: &CowDocument<'_>) -> bool {
    let is_enough = |known: &CowDocument<'_>| length::is_as_strict(known.as_document(), condition.as_document());
    update.conditions.iter().any(is_enough)
}
