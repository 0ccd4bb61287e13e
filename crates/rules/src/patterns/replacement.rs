//! `replacement`: protects documents from whole-document saves that overwrite other writers' fields.
//!
//! Two services read an order, change different fields and save the whole document. The second save overwrites the
//! first one's change. The pattern evaluates updates and findAndModify whose update is a document without operators.
//!
//! | setting | before | after |
//! |---|---|---|
//! | `policy: reject` | `replaceOne({_id: 1}, {a: 2})` | rejected, if the document is there |
//! | `policy: merge` | `replaceOne({_id: 1}, {a: 2})` | `updateOne({_id: 1}, {$set: {a: 2}})` |
//! | `policy: check_version` | `replaceOne({_id: 1}, {a: 2, version: 3})` | `replaceOne({_id: 1, version: 3}, {a: 2, version: 4})` |
//! | any, versioned | `replaceOne({_id: 1, version: 3}, {a: 2})` | `replaceOne({_id: 1, version: 3}, {a: 2, version: 4})` |
//! | with `version` | `updateOne({_id: 1}, {$set: {a: 2}})` | `updateOne({_id: 1}, {$set: {a: 2}, $inc: {version: 1}})` |
//!
//! A replacement is versioned if the client's own filter names the version. This file evaluates replacements,
//! `versions.rs` evaluates updates by operators and pipelines, and `increment.rs` increments their version.

mod increment;
mod versions;

use super::around::cannot_be_set;
use super::collation::contains_text;
use super::field_path::ChangingField;
use super::filter::{remade, write_equality};
use super::plain::{self, NotPlain, PlainWrite};
use super::promise::{BeforeAndAfter, shown, stage_targets};
use super::stored_data::{DataCheck, is_absent};
use super::{
    Applicability, Broken, Context, Facts, Incrementing, NoEffect, NoEffectCause, NoEffectKind, Pattern, Procedures,
    Properties, Rejection, Requirement, Settled, StoredKind, Unmatched, Verdict, WeakerSetting, selection,
};
use crate::command::{Modification, Namespace, Operation, Statement, StatementKind, Update};
use crate::config::keys::{Boolean, Constraint, Declaration, DeclaredScalar, Keys, Keywords, Setting};
use crate::config::{Code, MapReader, Node, ReadContext};
use crate::document::{CowDocument, Document, Element, Kind, OwnedValue, Path, PathLookup, Value, Writer, edit};
use crate::effect::{equality, given_roots, is_empty_timestamp, is_equal, may_match_nothing};

/// Settings of the pattern.
#[derive(Debug, Clone)]
pub struct Replacement {
    policy: ReplacementPolicy,
    /// The field that holds the version.
    version_field: Option<Path>,
    on_conflict: OnConflict,
    /// Updates by operators increment the version too.
    count_updates: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReplacementPolicy {
    Reject,
    Merge,
    CheckVersion,
}

/// The action for a statement that finds another version than the one it was sent with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnConflict {
    /// The reply has a write error with code 112.
    Error,
    /// The reply has n: 0.
    Ignore,
}

const NONE: Value<'static> = Value { kind: Kind::Null, bytes: &[] };

const POLICY: Setting<Keywords<ReplacementPolicy>> = Setting::with_default(
    "policy",
    Keywords(&[
        (
            "reject",
            ReplacementPolicy::Reject,
            "It is rejected if the document exists; a replacement that inserts is allowed.",
        ),
        ("merge", ReplacementPolicy::Merge, "It becomes a $set of its fields, so other fields are kept."),
        (
            "check_version",
            ReplacementPolicy::CheckVersion,
            "The version in the document is added to the filter, and the stored version becomes that + 1.",
        ),
    ]),
    DeclaredScalar::Text("reject"),
    "The action for a replacement whose filter does not name the version.",
);
const VERSION: Setting<ChangingField> = Setting::optional(
    "version",
    ChangingField,
    "The field that holds the version. An equality on it in the filter makes a replacement a versioned one. \
     Required for `policy: check_version`.",
)
.examples(&["version"]);
const ON_CONFLICT: Setting<Keywords<OnConflict>> = Setting::with_default(
    "on_conflict",
    Keywords(&[
        ("error", OnConflict::Error, "An error with code 112 for that statement."),
        ("ignore", OnConflict::Ignore, "The reply has n: 0."),
    ]),
    DeclaredScalar::Text("error"),
    "The reply when the stored document has another version than the statement.",
);
const COUNT_UPDATES: Setting<Boolean> = Setting::with_default(
    "count_updates",
    Boolean,
    DeclaredScalar::Boolean(true),
    "Whether updates by operators and pipelines increment the version too. Needs `version`. Set it to false if the \
     version is not a number.",
);
const KEYS: Keys = Keys::new(
    "Whole-document replacements (replaceOne, save, findOneAndReplace) that remove fields their writer did not read.",
    &[&POLICY, &VERSION, &ON_CONFLICT, &COUNT_UPDATES],
)
.constrained(&[
    Constraint::Needs { key: "count_updates", other: "version" },
    Constraint::RequiredIf { key: "version", other: "policy", value: "check_version" },
]);

const OTHER_VERSION: NoEffect =
    NoEffect::no_match("it matched nothing: the stored document has another version, or there is no such document");

impl Pattern for Replacement {
    fn declaration() -> Declaration {
        Declaration::mapping(&KEYS).example("{ policy: reject }")
    }

    fn read(settings: &Node, context: &mut ReadContext<'_>) -> Option<Self> {
        context.mapping(settings, &KEYS, Self::read_keys)
    }

    fn properties(&self) -> Properties {
        let version: Vec<Path> = self.version_field.iter().cloned().collect();
        let counts = self.version_field.is_some() && self.count_updates;
        let needed = [Requirement::PipelineUpdates, Requirement::Operator("$isNumber")];
        Properties {
            rewriting: match self.policy {
                ReplacementPolicy::Merge => {
                    "sets the fields of a replacement, so other fields are kept, and increments the version if there is one"
                }
                ReplacementPolicy::Reject | ReplacementPolicy::CheckVersion => {
                    "requires the stored version to be the one that was read, and increments it if it is a number"
                }
            },
            no_effect_causes: match (&self.version_field, self.on_conflict) {
                (None, _) => &[],
                (Some(_), OnConflict::Ignore) => &[NoEffectCause::Effect(NoEffectKind::NoMatch)],
                (Some(_), OnConflict::Error) => &[NoEffectCause::Version, NoEffectCause::Effect(NoEffectKind::NoMatch)],
            },
            exclusive: true,
            weaker_settings: self.weaker_settings(),
            tolerates_unsupported: true,
            own_fields: version.clone(),
            deciding_fields: version.clone(),
            procedures: self.procedures(),
            checked_fields: version,
            version: self.version_field.clone(),
            requirements: needed.into_iter().filter(|_| counts).collect(),
            ..Properties::default()
        }
    }

    fn data_checks(&self, _: Namespace<'_>) -> Vec<DataCheck> {
        let Some(version) = &self.version_field else { return Vec::new() };
        let check = DataCheck::each(
            format!("without `{version}`"),
            "a save without a version is accepted until their first versioned change",
            is_absent(version),
        );
        // A version that updates do not count may be of any type.
        let increments = self.count_updates;
        if increments { check.set(format!("`{version}: 1`"), version, 1) } else { vec![check] }
    }

    fn applicability(&self, kind: StatementKind, _: Namespace<'_>) -> Applicability {
        match kind {
            StatementKind::Replacement | StatementKind::Pipeline => Applicability::Each,
            StatementKind::Operators if self.version_field.is_some() => Applicability::Each,
            StatementKind::Insert | StatementKind::Operators | StatementKind::Delete => Applicability::None,
        }
    }

    fn evaluate<'a>(&self, statement: &Statement<'a>, _: &Context<'_>) -> Verdict<'a> {
        let Operation::Update(update) = &statement.operation else { return Verdict::Forward };
        let evaluated = match (&update.modification, &self.version_field) {
            // mongod rejects the replacement of many documents and returns its own error.
            (Modification::Replacement(_), _) if update.multi => return Verdict::Forward,
            (Modification::Replacement(document), _) => self.replacement(statement, update, document.as_document()),
            (Modification::ClientPipeline(stages), version_field) => {
                let part = match version_field {
                    Some(version) => plain::stored(update, version).err(),
                    None if stage_targets(*stages).is_none() => {
                        Some("it is a pipeline that can replace the document".to_owned())
                    }
                    None => None,
                };
                return part.map_or(Verdict::Forward, Verdict::not_plain);
            }
            (Modification::Operators(operators), Some(version_field)) => {
                self.operators(statement, update, operators.as_document(), version_field)
            }
            (Modification::Operators(_) | Modification::Pipeline(_), _) => return Verdict::Forward,
        };
        evaluated.unwrap_or_else(Verdict::Reject)
    }

    fn incrementing(&self) -> Option<&dyn Incrementing> {
        self.version_field.as_ref().map(|_| self as &dyn Incrementing)
    }

    /// The version after the stored one, unless the statement has written a higher one.
    fn settle(&self, before: Option<Document<'_>>, after: Document<'_>, facts: &Facts<'_, '_>) -> Vec<Settled> {
        let Some(version_field) = self.version_field.as_ref().filter(|_| self.counts(facts)) else { return Vec::new() };
        let (old, new) =
            (before.map_or(NONE, |before| stored_version(before, version_field)), stored_version(after, version_field));
        let is_unchanged = before.is_none() && new.kind == Kind::Null || before.is_some() && is_equal(old, new);
        let next = next_version(old)
            .filter(|_| is_unchanged && !matches!(version_field.lookup(after), PathLookup::Blocked(_)));
        next.into_iter().map(|next| Settled::value(version_field, next)).collect()
    }

    fn promise(&self, (before, after): BeforeAndAfter<'_>, facts: &Facts<'_, '_>) -> Result<(), Broken> {
        let Some(after) = after else { return Ok(()) };
        let sent = self.version_field.as_ref().and_then(|version| Some((version, self.sent_version(facts, version)?)));
        let is_ignored = self.on_conflict == OnConflict::Ignore;
        match (before, sent) {
            // A document with a version was read before; one that the filter's version inserts is new.
            (None, Some((version, sent)))
                if sent.kind != Kind::Null && self.is_save(facts) && version_in_filter(facts, version).is_none() =>
            {
                let rejection = versions::other_version(version, NONE, sent);
                return Err(Broken { rejection, is_ignored });
            }
            (Some(before), Some((version, sent))) if !is_equal(stored_version(before, version), sent) => {
                let rejection = versions::other_version(version, stored_version(before, version), sent);
                return Err(Broken { rejection, is_ignored });
            }
            _ => {}
        }
        let Some(before) = before else { return Ok(()) };
        if facts.names_all()
            && sent.is_none()
            && let Some(lost) = self.lost(before, after)
        {
            let Rejection { hint, .. } = self.unversioned_rejection();
            let reason = format!("it would erase '{}'", String::from_utf8_lossy(lost));
            return Err(Rejection::new(reason, hint).into());
        }
        let Some(version) = &self.version_field else { return Ok(()) };
        let (old, new) = (stored_version(before, version), stored_version(after, version));
        // A version with a fraction cannot be incremented any more.
        let is_raised = versions::is_above(new, old) && next_version(new).is_some();
        let is_lower = old.kind.is_number() && !is_equal(old, new) && !is_raised;
        let is_first = old.kind == Kind::Null && new.kind != Kind::Null && sent.is_none();
        if is_first && next_version(new).is_none() {
            return Err(versions::cannot_be_incremented(version).into());
        }
        if is_lower || old.kind != Kind::Null && new.kind == Kind::Null {
            let reason = format!("'{version}' would go from {} to {}", shown(&[old]), shown(&[new]));
            return Err(Rejection { reason, ..versions::set_back(version) }.into());
        }
        Ok(())
    }

    fn partial_change_reason(&self, field: &Path) -> Option<&'static str> {
        let version = self.version_field.as_ref().filter(|_| self.count_updates)?;
        let overlaps = field.overlaps(version.as_str().as_bytes());
        overlaps.then_some("an update increments the version in one of the fields and leaves the others")
    }

    fn unmatched(&self, statement: &Statement<'_>, stored: Option<Document<'_>>) -> Unmatched {
        let (Operation::Update(update), Some(version_field)) = (&statement.operation, &self.version_field) else {
            return Unmatched::Nothing;
        };
        // There is no conflict if no document matches.
        let conflict = stored.and_then(|stored| versions::conflict(update, version_field, stored));
        conflict.map_or(Unmatched::Nothing, Unmatched::Reject)
    }
}

impl Incrementing for Replacement {
    fn incremented<'a>(&self, statement: &Statement<'a>) -> Verdict<'a> {
        match (&statement.operation, &self.version_field) {
            (Operation::Update(update), Some(version_field)) if self.count_updates => {
                increment::incremented(update, version_field)
            }
            _ => Verdict::Forward,
        }
    }

    fn stored_kind(&self, stored: Document<'_>) -> StoredKind {
        self.version_field.as_ref().map_or(StoredKind::Number, |version| increment::stored_kind(stored, version))
    }

    fn form_for<'a>(&self, statement: &Statement<'a>, stored: StoredKind) -> Option<Operation<'a>> {
        let Operation::Update(update) = &statement.operation else { return None };
        increment::form_for(update, self.version_field.as_ref()?, stored)
    }
}

impl Replacement {
    fn weaker_settings(&self) -> Vec<WeakerSetting> {
        let merges = self.policy == ReplacementPolicy::Merge;
        let is_silent = match self.version_field {
            Some(_) => self.on_conflict == OnConflict::Ignore,
            None => merges,
        };
        let merging = WeakerSetting { what: "turns unversioned replacements into $set", setting: "policy" };
        let silence = WeakerSetting { what: "does not report version conflicts", setting: "on_conflict" };
        [merges.then_some(merging), is_silent.then_some(silence)].into_iter().flatten().collect()
    }

    fn procedures(&self) -> Procedures {
        // No update changes an `_id`.
        let field = self.version_field.clone().or_else(|| Path::parse("_id"));
        let operators: &[&str] = match self.policy {
            ReplacementPolicy::Merge => &["$set", "$inc", "$unset"],
            _ => &["$set", "$inc", "$unset", plain::REPLACEMENT],
        };
        Procedures::NotPlain(field.into_iter().map(|field| (field, operators)).collect())
    }
}

impl Replacement {
    fn read_keys(reader: &mut MapReader<'_, '_, '_>) -> Option<Self> {
        let policy = reader.get_or_default(&POLICY);
        let version_given = reader.has(&VERSION);
        let version_field = reader.get(&VERSION);
        let on_conflict = reader.get_or_default(&ON_CONFLICT);
        let count_given = reader.has(&COUNT_UPDATES);
        let count_updates = reader.get_or_default(&COUNT_UPDATES);
        if !version_given {
            reader.warn_without_effect(&[ON_CONFLICT.name], "without `version`");
        }
        if let Some(count) = count_updates.as_ref().filter(|_| count_given && !version_given) {
            let message = "`count_updates` needs `version`, the field that holds the version";
            reader.context().error(Code::ConflictingSettings, count.span, message);
        }
        let policy = policy?;
        if policy.value == ReplacementPolicy::CheckVersion && !version_given {
            let message = "`policy: check_version` needs `version`, the field that holds the version";
            reader.context().error(Code::ConflictingSettings, policy.span, message);
            return None;
        }
        Some(Self {
            policy: policy.value,
            version_field: version_field.map(|path| path.value),
            on_conflict: on_conflict?.value,
            count_updates: count_updates?.value,
        })
    }

    /// Whether a checked statement increments the version, if it does not do so itself.
    fn counts(&self, facts: &Facts<'_, '_>) -> bool {
        self.count_updates || self.is_save(facts)
    }

    /// Whether the statement is a replacement that is about a version.
    fn is_save(&self, facts: &Facts<'_, '_>) -> bool {
        let Operation::Update(update) = facts.operation() else { return false };
        let is_versioned =
            self.version_field.as_ref().is_some_and(|version| version_in_filter(facts, version).is_some());
        matches!(update.modification.meaning(), Modification::Replacement(_))
            && (self.policy == ReplacementPolicy::CheckVersion || is_versioned)
    }

    /// Returns the version that the statement was made for: the one in its filter or, under `check_version`, the one that it
    /// sends.
    fn sent_version<'s>(&self, facts: &Facts<'s, '_>, version_field: &Path) -> Option<Value<'s>> {
        let Operation::Update(update) = facts.operation() else { return None };
        version_in_filter(facts, version_field).or_else(|| match update.modification.meaning() {
            _ if self.policy != ReplacementPolicy::CheckVersion => None,
            Modification::Replacement(document) => version_of(document.as_document(), version_field).ok(),
            Modification::Operators(_) => match plain::stored(update, version_field) {
                Ok(PlainWrite::Set(version)) => Some(version),
                _ => None,
            },
            Modification::Pipeline(_) | Modification::ClientPipeline(_) => None,
        })
    }

    /// Returns a field that a document has lost.
    fn lost<'d>(&self, before: Document<'d>, after: Document<'_>) -> Option<&'d [u8]> {
        let is_own =
            |name: &[u8]| self.version_field.as_ref().is_some_and(|version| version.as_str().as_bytes() == name);
        before.elements().map(|field| field.key).find(|name| !is_own(name) && after.get(*name).is_none())
    }

    fn replacement<'a>(
        &self,
        statement: &Statement<'a>,
        update: &Update<'a>,
        document: Document<'_>,
    ) -> Result<Verdict<'a>, Rejection> {
        let filter = update.filter.as_document();
        let named = self
            .version_field
            .as_ref()
            .and_then(|version_field| Some((version_field, equality(filter, version_field.as_str())?)));
        match (named, self.policy, &self.version_field) {
            (Some((version_field, version)), _, _) => versioned(update, document, version_field, version),
            (None, ReplacementPolicy::Merge, _) => Ok(self.merged(update, document).unwrap_or_else(Verdict::not_plain)),
            (None, ReplacementPolicy::CheckVersion, Some(version_field)) => {
                self.check_version(statement, update, document, version_field)
            }
            (None, _, _) => Ok(self.only_new(update)),
        }
    }

    /// Allows the replacement only if no document matches the filter: then it inserts, or the reply has n: 0.
    fn only_new<'a>(&self, update: &Update<'a>) -> Verdict<'a> {
        Verdict::insert_only(Operation::Update(update.clone()), self.unversioned_rejection())
    }

    fn unversioned_rejection(&self) -> Rejection {
        let hint = match &self.version_field {
            Some(version_field) => format!(
                "Use updateOne with $set for the fields you change, or put the '{version_field}' you read \
                 into the filter."
            ),
            None => "Use updateOne with $set for the fields you change.".to_owned(),
        };
        Rejection::new("it replaces the whole document and would erase fields that others wrote", hint)
    }

    /// The document has the version it was read with, which must still be the stored one. Such a document was stored
    /// before, so the replacement must not insert it.
    fn check_version<'a>(
        &self,
        statement: &Statement<'a>,
        update: &Update<'a>,
        document: Document<'_>,
        version_field: &Path,
    ) -> Result<Verdict<'a>, Rejection> {
        let version = version_of(document, version_field).map_err(|kind| blocked(version_field, kind))?;
        let stored = match next_version(version) {
            Some(next) => edit::set(document, version_field, next.as_value()),
            None => document.as_bytes().to_vec(),
        };
        let upsert = update.upsert && version.kind == Kind::Null;
        let modification = Modification::Replacement(CowDocument::from_writer(stored));
        Ok(self.conditional(statement, Update { modification, upsert, ..update.clone() }, version_field, version))
    }

    /// Returns the update with the condition that this version is stored.
    fn conditional<'a>(
        &self,
        statement: &Statement<'a>,
        mut update: Update<'a>,
        version_field: &Path,
        version: Value<'_>,
    ) -> Verdict<'a> {
        if statement.option("collation").is_some() && contains_text(version) {
            return Verdict::not_plain(format!(
                "its collation can take another version in '{version_field}' for the one that it names"
            ));
        }
        update.conditions.push(has_version(version_field, version, selection::selects_element(statement)));
        Verdict::conditional(Operation::Update(update), self.on_conflict == OnConflict::Error, OTHER_VERSION)
    }

    /// Rewrites the replacement to `$set` of the document's fields, so that other fields are kept.
    fn merged<'a>(&self, update: &Update<'a>, document: Document<'_>) -> Result<Verdict<'a>, NotPlain> {
        let version = self.version_field.as_ref();
        let filter = update.filter.as_document();
        let filter_id = || equality(filter, "_id");
        // The stored `_id` is the same for the server, which rejects a $set of an equal one of another numeric type. By
        // a collation, which may be that of the collection, the filter matches other texts too. The server decides then.
        let is_stored_id = |field: &Element<'_>| {
            let is_filter_id = || filter_id().is_some_and(|id| is_equal(id, field.value));
            field.key == b"_id" && is_filter_id() && !contains_text(field.value)
        };
        // The version that the document was read with must not be written back.
        let is_named =
            |version: &Path, field: &Element<'_>| version.is_top_level() && version.as_str().as_bytes() == field.key;
        let is_version = |field: &Element<'_>| version.is_some_and(|version| is_named(version, field));
        // Nor with a document around it, which is merged too.
        let is_around =
            |field: &Element<'_>| version.is_some_and(|version| version.is_below(field.key)) && !cannot_be_set(field);
        let mut inside = Vec::new();
        if let Some(version) = version {
            for field in document.elements().filter(is_around) {
                inside.extend(increment::beside(version, field).ok_or_else(|| {
                    format!("its '{}' cannot be set around the version", String::from_utf8_lossy(field.key))
                })?);
            }
        }
        // An upsert takes it from its filter, unless the server sees that nothing matches this. The server changes the
        // type of a number on insert, but not those inside a document.
        let is_inserted = |id: &Element<'_>| {
            let is_of_other_type = || id.value.kind.is_number() && filter_id() != Some(id.value);
            is_stored_id(id) && (is_of_other_type() || may_match_nothing(filter))
        };
        let id = document.elements().find(|field| update.upsert && is_inserted(field));
        let is_written = |field: &Element<'_>| !is_stored_id(field) && !is_version(field) && !is_around(field);
        let fields = || document.elements().filter(is_written);
        if let Some(field) = fields().find(cannot_be_set) {
            return Err(format!("$set cannot write its field '{}'", String::from_utf8_lossy(field.key)));
        }
        // An upsert by operators inserts the filter's equalities too; a replacement does not.
        let is_missing = |root: &&[u8]| {
            let has_version = version.is_some_and(|version| version.root().as_bytes() == *root);
            *root != b"_id" && (has_version || document.get(root).is_none())
        };
        if let Some(root) = update.upsert.then(|| given_roots(filter).find(is_missing)).flatten() {
            let field = String::from_utf8_lossy(root);
            return Err(format!("it is an upsert with '{field}' in the filter but not in the document"));
        }
        // An update that writes nothing does not count; the inserted document has a version all the same.
        let writes_nothing = fields().next().is_none() && inside.is_empty();
        let first_version = version.filter(|_| self.count_updates && update.upsert && writes_nothing);
        let times = || fields().filter(is_empty_timestamp);
        let operators = CowDocument::build(|w| {
            w.nested("$set", |w| {
                fields().filter(|field| !is_empty_timestamp(field)).for_each(|field| w.element(field));
                inside.iter().for_each(|(path, value)| w.value(path, *value));
            });
            if times().next().is_some() {
                // The server sets empty timestamps to the current time in a replacement, but not in $set.
                let now = |w: &mut Writer<'_>| w.string("$type", "timestamp");
                w.nested("$currentDate", |w| times().for_each(|field| w.nested(field.key, now)));
            }
            if id.is_some() || first_version.is_some() {
                w.nested("$setOnInsert", |w| {
                    id.into_iter().for_each(|id| w.element(id));
                    first_version.into_iter().for_each(|version| w.int32(version.as_str(), 1));
                });
            }
        });
        let modification = Modification::Operators(operators);
        Ok(Verdict::rewrite(Operation::Update(Update { modification, array_filters: false, ..update.clone() })))
    }
}

/// Returns the version that the filter requires.
fn version_in_filter<'s>(facts: &Facts<'s, '_>, version_field: &Path) -> Option<Value<'s>> {
    let Operation::Update(update) = facts.operation() else { return None };
    equality(update.filter.as_document(), version_field.as_str())
}

/// Returns the version of a document; null if it has none. Undefined counts as null: the server rejects a condition with
/// undefined, and one with null matches it.
///
/// # Errors
/// A field on the path is not a document.
fn version_of<'v>(document: Document<'v>, version_field: &Path) -> Result<Value<'v>, Kind> {
    match version_field.lookup(document) {
        PathLookup::Found(version) if version.kind != Kind::Undefined => Ok(version),
        PathLookup::Found(_) | PathLookup::Missing => Ok(NONE),
        PathLookup::Blocked(kind) => Err(kind),
    }
}

/// Returns the version of a stored document.
fn stored_version<'d>(document: Document<'d>, version_field: &Path) -> Value<'d> {
    version_of(document, version_field).unwrap_or(NONE)
}

/// Returns the condition that this version is stored. No version can be stored below an array, which `null` does not
/// match. `selects_element`: whether the client's `$` has the position of the element that the filter selects; the
/// server takes none from an `$or` (`OrMatchExpression::matches`; seen on 6.0).
fn has_version<'a>(version_field: &Path, version: Value<'_>, selects_element: bool) -> CowDocument<'a> {
    let path = version_field.as_str();
    if version.kind == Kind::Null && !version_field.is_top_level() {
        let is_array = |w: &mut Writer<'_>| w.string("$type", "array");
        return CowDocument::build(|w| {
            w.array("$or", |a| {
                a.nested(|w| w.value(path, version));
                version_field.parents().for_each(|parent| a.nested(|w| w.nested(parent, is_array)));
            });
        });
    }
    if selects_element {
        return selection::equality(version_field, version);
    }
    CowDocument::build(|w| write_equality(w, path, version))
}

/// Evaluates a replacement whose filter names the version, so that it matches no other one. The new version is the
/// written one, if that is higher than that one or not a number; otherwise it is the next one.
fn versioned<'a>(
    update: &Update<'a>,
    document: Document<'_>,
    version_field: &Path,
    version: Value<'_>,
) -> Result<Verdict<'a>, Rejection> {
    let written = match version_field.lookup(document) {
        PathLookup::Found(written) => Some(written),
        PathLookup::Missing => None,
        PathLookup::Blocked(kind) => return Err(blocked(version_field, kind)),
    };
    let next = match (next_version(version), written) {
        // A number that cannot be incremented would never change again.
        (Some(_), Some(written)) if versions::is_above(written, version) && next_version(written).is_some() => {
            return Ok(Verdict::ForwardConditional(OTHER_VERSION));
        }
        (Some(next), _) => next,
        // A version that is not a number is only compared.
        (None, Some(_)) => return Ok(Verdict::ForwardConditional(OTHER_VERSION)),
        (None, None) => version.into(),
    };
    let stored = CowDocument::from_writer(edit::set(document, version_field, next.as_value()));
    let modification = Modification::Replacement(stored);
    let operation = remade(update, update.filter.clone(), modification, update.upsert);
    Ok(Verdict::rewrite_with(operation, OTHER_VERSION))
}

/// Returns the version after this one; null means that there is no version yet. `None` if the value is not a whole
/// number of 64 bits: such versions are only compared.
fn next_version(version: Value<'_>) -> Option<OwnedValue> {
    /// The largest whole number up to which doubles are exact.
    const EXACT: f64 = 9_007_199_254_740_991.0;
    match version.kind {
        Kind::Null => Some(OwnedValue::int32(1)),
        Kind::Int32 => version.as_i32().map(|v| OwnedValue::integer(i64::from(v) + 1)),
        Kind::Int64 => version.as_raw_i64().and_then(|v| v.checked_add(1)).map(OwnedValue::int64),
        Kind::Double if version.as_f64().is_some_and(|v| v.fract() == 0.0 && v.abs() < EXACT) => {
            version.as_f64().map(|v| OwnedValue::double(v + 1.0))
        }
        // It is stored as a long from now on.
        Kind::Double | Kind::Decimal128 => version.as_whole().and_then(|v| v.checked_add(1)).map(OwnedValue::int64),
        _ => None,
    }
}

fn blocked(version_field: &Path, kind: Kind) -> Rejection {
    Rejection::new(
        format!("its version '{version_field}' cannot be set: a field on its path has type {}", kind.name()),
        send_as_read(version_field),
    )
}

fn send_as_read(version_field: &Path) -> String {
    format!("Send '{version_field}' as you read it.")
}
