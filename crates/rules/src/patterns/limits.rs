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
use super::plain::{self, NotPlain};
use super::promise::{BeforeAndAfter, Broken, Facts};
use super::stored_data::{DataCheck, is_one_of, value};
use super::stored_state::of_each;
use super::{
    AnyPattern, Applicability, Context, ExclusiveField, FieldContent, Measured, NoEffect, NoEffectCause, NoEffectKind,
    Pattern, Procedures, Properties, Rejection, Requirement, RuleView, StateCondition, Unmatched, Verdict,
    applicability_for_content,
};
use crate::command::{Namespace, Operation, Statement, StatementKind, Update};
use crate::config::keys::Declaration;
use crate::config::{Node, ReadContext};
use crate::document::{CowDocument, Document, Value};
use crate::text::plural;

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

    fn properties(&self) -> Properties {
        let plain = |limit: &ItemLimit| (limit.array.value.clone(), plain::OF_ARRAYS);
        Properties {
            rewriting: "adds the condition that keeps arrays and documents within their limits to the filter",
            no_effect_causes: &[NoEffectCause::Effect(NoEffectKind::NoMatch)],
            tolerates_unsupported: true,
            exclusive_fields: self.items.iter().map(|limit| ExclusiveField::new("limits", &limit.array)).collect(),
            procedures: match self.document {
                Some(_) => Procedures::Updates,
                None => Procedures::NotPlain(self.items.iter().map(plain).collect()),
            },
            contents: self.items.iter().map(|limit| (limit.array.value.clone(), FieldContent::Array)).collect(),
            requirements: self.document.iter().map(|_| Requirement::Operator("$bsonSize")).collect(),
            ..Properties::default()
        }
    }

    fn makes_ineffective(&self, later: RuleView<'_>) -> bool {
        let AnyPattern::Limits(later) = later.pattern else { return false };
        let has = |limit: &ItemLimit| {
            self.items.iter().any(|own| own.array.value == limit.array.value && own.most <= limit.most)
        };
        let document = later.document.is_none_or(|most| self.document.is_some_and(|own| own <= most));
        document && later.items.iter().all(has)
    }

    fn conflict_with(&self, other: RuleView<'_>, _: Namespace<'_>) -> Option<&'static str> {
        let bucket = other.properties.counted_array.as_ref()?;
        let is_below = |limit: &ItemLimit| limit.array.value == bucket.array && whole(limit.most) < bucket.limit;
        let is_smaller = self.items.iter().any(is_below);
        is_smaller.then_some("the array belongs to a bucket, which is full only above the limit")
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
                format!("with more than {} in `{array}`", plural(*most as u64, "element")),
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

    fn stored_state(&self) -> Vec<StateCondition> {
        let mut conditions = Vec::new();
        for ItemLimit { array, most } in &self.items {
            let array = &array.value;
            let meaning = format!("`{array}` has at most {}", plural(*most as u64, "element"));
            let schema = of_each(array, doc! {"maxItems": whole(*most)});
            conditions.extend(schema.map(|schema| StateCondition::schema(meaning, &[array], schema)));
        }
        conditions.extend(self.document.map(|most| {
            let meaning = format!("it has at most {most} bytes");
            StateCondition::expression(meaning, &[], doc! {"$lte": [{"$bsonSize": "$$ROOT"}, whole(most)]})
        }));
        conditions
    }

    fn evaluate<'a>(&self, statement: &Statement<'a>, _: &Context<'_>) -> Verdict<'a> {
        let conditions = match self.plain(&statement.operation) {
            Ok(Ok(conditions)) => conditions,
            Ok(Err(broken)) => return Verdict::Reject(broken),
            Err(odd) => return Verdict::not_plain(odd),
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

    fn promise(&self, (before, after): BeforeAndAfter<'_>, _: &Facts<'_, '_>) -> Result<(), Broken> {
        let Some(after) = after else { return Ok(()) };
        self.items.iter().try_for_each(|limit| limit.promise(before, after))?;
        let (old, new) = (before.map_or(0, |before| before.as_bytes().len()), after.as_bytes().len());
        match self.document {
            Some(most) if new > most && new > old => Err(length::too_long(new, most).into()),
            _ => Ok(()),
        }
    }

    fn check_final(&self, statement: &Statement<'_>) -> Result<(), Rejection> {
        let conditions = self.plain(&statement.operation).unwrap_or_else(|odd| Err(plain::reason_to_check(odd)))?;
        let Operation::Update(update) = &statement.operation else { return Ok(()) };
        if conditions.iter().all(|condition| has_condition(update, condition)) {
            return Ok(());
        }
        Err(Rejection::new(
            "it can exceed a limit, and its filter has no condition that prevents this",
            "Send the changes as separate statements.",
        ))
    }

    /// The size of the stored document, the most bytes that the statement adds, and the number of elements.
    fn measured(&self, statement: &Statement<'_>) -> Vec<Measured> {
        let mut measured = Vec::new();
        let Operation::Update(update) = &statement.operation else { return measured };
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
            .or_else(|| self.items.iter().find_map(|limit| limit.misled(update, stored)));
        rejection.map_or(Unmatched::Nothing, Unmatched::Reject)
    }
}

/// Names of measured values. They begin like no field of an application.
const LENGTH: &str = "_docward_length";
const GROWTH: &str = "_docward_growth";

impl Limits {
    /// Checks a statement of a plain form. Returns the conditions on the stored document.
    ///
    /// # Errors
    /// The statement is not plain.
    fn plain(&self, operation: &Operation<'_>) -> Result<Result<Vec<CowDocument<'static>>, Rejection>, NotPlain> {
        let mut conditions = Vec::new();
        for limit in &self.items {
            match (limit.plain(operation)?, operation) {
                (Err(broken), _) => return Ok(Err(broken)),
                (Ok(Some(growing)), Operation::Update(update)) => conditions.extend(limit.condition(update, growing)),
                _ => {}
            }
        }
        if let Some(most) = self.document {
            if let Err(broken) = length::check(operation, most)? {
                return Ok(Err(broken));
            }
            conditions.extend(length::condition(operation, most)?);
        }
        Ok(Ok(conditions))
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
