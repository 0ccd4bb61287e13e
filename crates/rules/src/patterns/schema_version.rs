//! `schema_version`: old code must not write over documents of new code.
//!
//! During a rolling migration an old process reads a document of version 2, a new one stores it as version 3, and the
//! old one saves what it read: the fields that only version 3 has are lost.
//!
//! before: `replaceOne({_id: 1}, {schema_version: 2, name: "Ada"})`
//!
//! after: `replaceOne({_id: 1, schema_version: {$not: {$gt: 2}}}, {schema_version: 2, name: "Ada"})`
//!
//! The version of a statement is the one that it stores, or the highest one that its filter allows, else the minimum.
//! The server checks the condition together with the write.

use std::cmp::Ordering;

use bson::doc;

use super::field_path::ChangingField;
use super::filter::conditions_on;
use super::number::Bound;
use super::plain::{self, Form, NotPlain, PlainWrite};
use super::promise::{BeforeAndAfter, Broken, Facts, held, shown};
use super::stored_data::{DataCheck, all, any, is_missing, is_number, not, value};
use super::stored_state::of_required;
use super::{
    Applicability, Context, ExclusiveField, ExpectedVersion, FieldContent, NoEffect, NoEffectCause, NoEffectKind,
    Pattern, Procedures, Properties, Rejection, StateCondition, Unmatched, Verdict, applicability_for_content,
};
use crate::command::{Namespace, Operation, Statement, StatementKind, Update};
use crate::config::keys::{Declaration, DeclaredScalar, Keys, Keywords, Setting, WholeNumber};
use crate::config::{Code, Located, MapReader, Node, ReadContext};
use crate::document::{CowDocument, Document, Kind, OwnedValue, Path, PathLookup, Value, compare_numbers};
use crate::effect::equality;

/// Settings of the pattern.
#[derive(Debug, Clone)]
pub struct SchemaVersion {
    field: Located<Path>,
    /// The version that new code writes.
    current: i64,
    /// The oldest version that may still be written; at most `current`.
    minimum: i64,
    on_newer: OnNewer,
}

/// The action for a statement whose documents all have a newer version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnNewer {
    /// The reply has a write error with code 121.
    Error,
    /// The reply has n: 0.
    Ignore,
}

const FIELD: Setting<ChangingField> =
    Setting::required("field", ChangingField, "The field with the version of the document's schema.")
        .examples(&["schema_version"]);
const CURRENT: Setting<WholeNumber> = Setting::required("current", VERSIONS, "The newest version.");
const MINIMUM: Setting<WholeNumber> =
    Setting::required("minimum", VERSIONS, "The oldest version that may still be written.");
const ON_NEWER: Setting<Keywords<OnNewer>> = Setting::with_default(
    "on_newer",
    Keywords(&[
        ("error", OnNewer::Error, "An error with code 121 for that statement."),
        ("ignore", OnNewer::Ignore, "The reply has n: 0."),
    ]),
    DeclaredScalar::Text("error"),
    "The reply to a statement whose documents all have a newer version than the statement.",
);
const KEYS: Keys = Keys::new(
    "Versions of documents: old code does not write over documents of new code.",
    &[&FIELD, &CURRENT, &MINIMUM, &ON_NEWER],
);
const VERSIONS: WholeNumber = WholeNumber(0..=i32::MAX as i64);

const NEWER: NoEffect =
    NoEffect::no_match("it matched nothing: the stored document has a newer schema, or there is no such document");

impl Pattern for SchemaVersion {
    fn declaration() -> Declaration {
        Declaration::mapping(&KEYS).example("{ field: schema_version, current: 3, minimum: 2 }")
    }

    fn read(settings: &Node, context: &mut ReadContext<'_>) -> Option<Self> {
        context.mapping(settings, &KEYS, Self::read_keys)
    }

    fn properties(&self) -> Properties {
        let field = &self.field.value;
        Properties {
            rewriting: "adds the condition that the stored document is not newer to the filter",
            no_effect_causes: &[NoEffectCause::Effect(NoEffectKind::NoMatch)],
            expected_version: Some(ExpectedVersion { field: field.as_str().to_owned(), version: self.current }),
            exclusive_fields: vec![ExclusiveField::new("schema_version", &self.field)],
            own_fields: vec![field.clone()],
            deciding_fields: vec![field.clone()],
            procedures: Procedures::NotPlain(vec![(field.clone(), &["$set", "$max"])]),
            checked_fields: vec![field.clone()],
            needed_number: Some((field.clone(), self.current)),
            contents: vec![(field.clone(), FieldContent::Number)],
            ..Properties::default()
        }
    }

    fn data_checks(&self, _: Namespace<'_>) -> Vec<DataCheck> {
        let Self { minimum, current, .. } = self;
        let field = &self.field.value;
        let beyond = |operator: &str, bound: i64| doc! {operator: [value(field), bound]}.into();
        vec![
            DataCheck::each(
                format!("without `{field}`"),
                "they count as older than every version, so statements of each version match them",
                is_missing(field),
            ),
            DataCheck::each(
                format!("whose `{field}` is not a number"),
                "statements of older versions match them too",
                not(any(vec![is_missing(field), is_number(field)])),
            ),
            DataCheck::each(
                format!("whose `{field}` is below {minimum}"),
                "no statement may write their version any more",
                all(vec![is_number(field), beyond("$lt", *minimum)]),
            ),
            DataCheck::each(
                format!("whose `{field}` is above {current}"),
                "statements of the current version do not match them",
                all(vec![is_number(field), beyond("$gt", *current)]),
            ),
        ]
    }

    fn stored_state(&self) -> Vec<StateCondition> {
        let field = &self.field.value;
        let types = ["int", "long", "double"].as_slice();
        let version = doc! {"bsonType": types, "minimum": self.minimum, "maximum": self.current, "multipleOf": 1};
        let meaning = format!("`{field}` is a whole number {}", self.range());
        vec![StateCondition::schema(meaning, &[field], of_required(field, version))]
    }

    fn applicability(&self, kind: StatementKind, _: Namespace<'_>) -> Applicability {
        applicability_for_content(kind)
    }

    fn evaluate<'a>(&self, statement: &Statement<'a>, _: &Context<'_>) -> Verdict<'a> {
        let version = match self.plain(&statement.operation) {
            Ok(Ok(version)) => version,
            Ok(Err(broken)) => return Verdict::Reject(broken),
            Err(odd) => return Verdict::not_plain(odd),
        };
        let Operation::Update(update) = &statement.operation else { return Verdict::Forward };
        if self.keeps(update, version) {
            return Verdict::Forward;
        }
        let mut update = update.clone();
        update.conditions.push(self.condition(version));
        let checks_match = self.on_newer == OnNewer::Error;
        Verdict::conditional(Operation::Update(update), checks_match, NEWER)
    }

    fn promise(&self, (before, after): BeforeAndAfter<'_>, facts: &Facts<'_, '_>) -> Result<(), Broken> {
        let field = &self.field.value;
        let Some(after) = after else { return Ok(()) };
        let Some(before) = before else { return Ok(self.of_document(after).map(|_| ())?) };
        let (old, new) = (held(before, field.as_str().as_bytes()), held(after, field.as_str().as_bytes()));
        let written = new.first().and_then(|new| new.as_whole()).filter(|_| facts.name(field, before));
        let version = written.unwrap_or_else(|| self.named(facts.operation()));
        if let Some(rejection) = self.newer(before, version) {
            return Err(Broken { rejection, is_ignored: self.on_newer == OnNewer::Ignore });
        }
        let is_lost = old.iter().any(|old| old.kind.is_number()) && !new.iter().any(|new| new.kind.is_number());
        let is_lower =
            || matches!((&old[..], &new[..]), ([old], [new]) if compare_numbers(*old, *new) == Some(Ordering::Greater));
        if is_lost || is_lower() {
            let reason = format!("'{field}' would go from {} to {}: it never decreases", shown(&old), shown(&new));
            return Err(Rejection::new(reason, self.remedy()).into());
        }
        // A path through an array leads to no version.
        let was_found = matches!(field.lookup(before), PathLookup::Found(_));
        let is_lost = was_found && !matches!(field.lookup(after), PathLookup::Found(_));
        match old == new && !is_lost {
            true => Ok(()),
            false => Ok(self.of_document(after).map(|_| ())?),
        }
    }

    fn check_final(&self, statement: &Statement<'_>) -> Result<(), Rejection> {
        let version = self.plain(&statement.operation).unwrap_or_else(|odd| Err(plain::reason_to_check(odd)))?;
        let Operation::Update(update) = &statement.operation else { return Ok(()) };
        if self.keeps(update, version) {
            return Ok(());
        }
        Err(Rejection::new(
            format!("its filter does not check '{}'", self.field.value),
            format!("Add {{'{}': {{$lte: {version}}}}} to the filter.", self.field.value),
        ))
    }

    /// Rejects if the stored document is newer. Otherwise another condition did not match.
    fn unmatched(&self, statement: &Statement<'_>, stored: Option<Document<'_>>) -> Unmatched {
        let (Some(stored), Ok(Ok(version))) = (stored, self.plain(&statement.operation)) else {
            return Unmatched::Nothing;
        };
        self.newer(stored, version).map_or(Unmatched::Nothing, Unmatched::Reject)
    }
}

impl SchemaVersion {
    fn read_keys(reader: &mut MapReader<'_, '_, '_>) -> Option<Self> {
        let field = reader.get(&FIELD);
        let (current, minimum) = (reader.get(&CURRENT), reader.get(&MINIMUM));
        let on_newer = reader.get_or_default(&ON_NEWER);
        let (current, minimum) = (current?, minimum?);
        if minimum.value > current.value {
            let message = "`minimum` is more than `current`: no version could be written";
            reader.context().error(Code::ConflictingSettings, minimum.span, message);
            return None;
        }
        Some(Self { field: field?, current: current.value, minimum: minimum.value, on_newer: on_newer?.value })
    }

    /// Checks a statement of a plain form. Returns its version.
    ///
    /// # Errors
    /// The statement is not plain.
    fn plain(&self, operation: &Operation<'_>) -> Result<Result<i64, Rejection>, NotPlain> {
        match plain::form(operation) {
            Form::Nothing => Ok(Ok(self.minimum)),
            Form::Document(document) => Ok(self.of_document(document)),
            Form::Update(update) => self.plain_update(update),
        }
    }

    fn plain_update(&self, update: &Update<'_>) -> Result<Result<i64, Rejection>, NotPlain> {
        let field = &self.field.value;
        let written = match self.plain_write(plain::stored(update, field)?)? {
            Some(Err(broken)) => return Ok(Err(broken)),
            written => written.and_then(Result::ok),
        };
        let inserted = match update.upsert {
            false => None,
            true => match self.plain_write(plain::inserted(update, field)?)? {
                Some(Ok(version)) => Some(version),
                Some(Err(broken)) => return Ok(Err(broken)),
                None => return Ok(Err(self.without_version())),
            },
        };
        let named = || self.named_by_filter(update).map(|highest| highest.version);
        Ok(Ok(written.or_else(named).or(inserted).unwrap_or(self.minimum)))
    }

    /// Returns the version that a write sets; `None` if it leaves the field alone.
    fn plain_write(&self, write: PlainWrite<'_>) -> Result<Option<Result<i64, Rejection>>, NotPlain> {
        let field = self.field.value.as_str().as_bytes();
        match write {
            PlainWrite::Untouched => Ok(None),
            PlainWrite::Set(value) => Ok(Some(self.check(value))),
            // With the condition, the stored version is not higher.
            PlainWrite::Operator((b"$max", path, value)) if path == field => Ok(Some(self.check(value))),
            _ => Err(format!("it changes '{}' other than by $set and $max", self.field.value)),
        }
    }

    /// Returns the version of a checked statement that does not write it.
    fn named(&self, operation: &Operation<'_>) -> i64 {
        let Operation::Update(update) = operation else { return self.minimum };
        let inserted = || match plain::inserted(update, &self.field.value) {
            Ok(PlainWrite::Set(value)) if update.upsert => value.as_whole(),
            _ => None,
        };
        let named = self.named_by_filter(update).map(|highest| highest.version);
        named.or_else(inserted).unwrap_or(self.minimum)
    }

    /// Checks the version of a new document.
    fn of_document(&self, document: Document<'_>) -> Result<i64, Rejection> {
        match self.field.value.lookup(document) {
            PathLookup::Found(value) => self.check(value),
            PathLookup::Missing | PathLookup::Blocked(_) => Err(self.without_version()),
        }
    }

    /// Returns the rejection of a statement of this version if the stored document is newer.
    fn newer(&self, stored: Document<'_>, version: i64) -> Option<Rejection> {
        let PathLookup::Found(found) = self.field.value.lookup(stored) else { return None };
        if Bound::Integer(version).compare(found) != Some(Ordering::Greater) {
            return None;
        }
        let found = match (found.as_integer(), found.as_f64()) {
            (Some(whole), _) => whole.to_string(),
            (None, Some(number)) => number.to_string(),
            (None, None) => {
                found.floor().map_or_else(|| "a higher value".to_owned(), |found| format!("{found} or higher"))
            }
        };
        Some(Rejection::new(
            format!(
                "the stored document has '{}' {found}, and the statement is of version {version}",
                self.field.value
            ),
            "Update the application: it must know the stored version, and name it in what it writes or in its filter.",
        ))
    }

    /// Returns the highest version that the client's filter allows: a statement whose filter names versions knows them.
    fn named_by_filter(&self, update: &Update<'_>) -> Option<Highest> {
        let (filter, field) = (update.filter.as_document(), self.field.value.as_str());
        if let Some(value) = equality(filter, field) {
            return Highest::from_value(value);
        }
        conditions_on(filter, field).filter_map(|condition| highest(condition.as_document()?)).min()
    }

    /// Returns a version that may be written.
    fn check(&self, value: Value<'_>) -> Result<i64, Rejection> {
        let is_integer = matches!(value.kind, Kind::Int32 | Kind::Int64 | Kind::Double);
        let version = value.as_whole().filter(|_| is_integer);
        version.filter(|version| (self.minimum..=self.current).contains(version)).ok_or_else(|| {
            let found = version.map_or_else(|| format!("a value of type {}", value.kind.name()), |one| one.to_string());
            Rejection::new(
                format!("its '{}' is {found}; it must be a whole number {}", self.field.value, self.range()),
                self.remedy(),
            )
        })
    }

    fn range(&self) -> String {
        format!("from {} to {}", self.minimum, self.current)
    }

    fn remedy(&self) -> String {
        format!(
            "Write the version of the schema that the application knows, {}, into '{}'.",
            self.range(),
            self.field.value
        )
    }

    fn without_version(&self) -> Rejection {
        Rejection::new(format!("it stores a document without '{}'", self.field.value), self.remedy())
    }

    /// The condition that the stored version is not higher. It also matches documents without a version.
    fn condition<'a>(&self, version: i64) -> CowDocument<'a> {
        let version = OwnedValue::integer(version);
        CowDocument::build(|w| {
            w.nested(self.field.value.as_str(), |w| w.nested("$not", |w| w.value("$gt", version.as_value())));
        })
    }

    /// Returns whether the filter matches no newer documents.
    fn keeps(&self, update: &Update<'_>, version: i64) -> bool {
        let condition = self.condition(version);
        update.conditions.iter().any(|known| known.as_document() == condition.as_document())
            || self.named_by_filter(update).is_some_and(|highest| highest <= Highest { version, has_fraction: false })
    }
}

/// The highest number that a condition allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Highest {
    /// The number without its fraction.
    version: i64,
    has_fraction: bool,
}

impl Highest {
    fn from_value(value: Value<'_>) -> Option<Self> {
        Some(Self { version: value.floor()?, has_fraction: value.as_whole().is_none() })
    }

    /// Returns the highest version below this number.
    fn below(value: Value<'_>) -> Option<Self> {
        let Self { version, has_fraction } = Self::from_value(value)?;
        Some(Self { version: if has_fraction { version } else { version.checked_sub(1)? }, has_fraction: false })
    }

    /// Returns the highest of the listed numbers: other values are no versions. `None` if one is too large.
    fn listed(values: Document<'_>) -> Option<Self> {
        let numbers = values.values().filter(|value| value.kind.is_number());
        numbers.map(Self::from_value).try_fold(None, |most, number| Some(most.max(Some(number?))))?
    }
}

/// Returns the highest number that a condition allows; `None` if that is not known.
fn highest(condition: Document<'_>) -> Option<Highest> {
    let below = condition.get("$lt").and_then(Highest::below);
    let up_to = condition.get("$lte").and_then(Highest::from_value);
    let listed = condition.get("$in").and_then(Value::as_array).and_then(Highest::listed);
    [below, up_to, listed].into_iter().flatten().min()
}
