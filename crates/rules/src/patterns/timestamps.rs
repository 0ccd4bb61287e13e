//! `timestamps`: the value with the newest source time wins, independent of the order in which writes arrive.
//!
//! A device sends its state. A queue redelivers a message or a retry arrives late, and an old reading overwrites a
//! newer one. Every protected field is a last-writer-wins register: its timestamp is stored under `store`, and an
//! update becomes a pipeline that sets field and timestamp only if the stored timestamp is not newer.
//!
//! before: `updateOne({_id: 1}, {$set: {temp: 20, published_at: T}})`
//!
//! after: `updateOne({_id: 1}, [{$set: {temp: {$cond: [STALE, "$temp", {$literal: 20}]}, ...,
//! last_modified: {temp: {$cond: [STALE, "$last_modified.temp", T]}, ...}}}])`, with STALE =
//! `{$and: [{$eq: [{$type: "$last_modified.temp"}, "date"]}, {$gt: ["$last_modified.temp", T]}]}`
//!
//! The update is a pipeline and not a narrowed filter: a stale upsert then matches and changes nothing, while with a
//! narrowed filter it would try to insert and fail with E11000. [`hide`] changes reads, `pipeline.rs` writes pipelines.
//!
//! `settings.rs`, `pipeline.rs` and `writes.rs` import each other: the settings hold the expressions that are prepared
//! once at load time, and the expressions depend on the type of the timestamps.

mod given;
mod hide;
mod increment;
mod inserts;
mod pipeline;
mod registers;
mod settings;
mod settled;
mod stored;
mod template;
mod times;
mod touches;
mod writes;

use super::filter::remade;
use super::literal;
use super::plain;
use super::promise::{BeforeAndAfter, Broken, Facts, Settled, is_related, stage_targets};
use super::stored_data::DataCheck;
use super::{
    Applicability, CommandVerdict, Context, NoEffect, NoEffectCause, NoEffectKind, Pattern, Procedures, Properties,
    Rejection, Requirement, RuleView, Verdict, WeakerSetting, WholeCommand, applicability_for_content,
};
use crate::command::{CommandClass, Modification, Namespace, Operation, Statement, StatementKind, Update};
use crate::config::keys::Declaration;
use crate::config::{Node, ReadContext};
use crate::document::{CowDocument, Document, Kind, Path, Value};
use given::{GivenFields, without_time};
use pipeline::StageWriter;
use registers::decides;
pub use settings::Timestamps;
use settings::{TimeSource, TimestampScope, TimestampedFields, WithoutSource};
use touches::{set_value, utf8};
use writes::PathWrites;

/// What the reply shows if an update has no effect.
const STALE: NoEffect = NoEffect::stale("it changed nothing: what is stored is as new or newer");

impl Pattern for Timestamps {
    fn declaration() -> Declaration {
        Declaration::mapping(&settings::KEYS).example("{ source: updated_at }")
    }

    fn read(settings: &Node, context: &mut ReadContext<'_>) -> Option<Self> {
        context.mapping(settings, &settings::KEYS, Self::read_keys)
    }

    fn properties(&self) -> Properties {
        let passes = WeakerSetting { what: "allows writes without a source time", setting: "without_source" };
        let some = WeakerSetting { what: "protects only some of the fields", setting: "fields" };
        let passing = (self.without_source == WithoutSource::Pass).then_some(passes);
        let partial = matches!(self.fields, TimestampedFields::Listed(_)).then_some(some);
        Properties {
            rewriting: "stores the source time of each value; only a newer value replaces it",
            no_effect_causes: &[NoEffectCause::Effect(NoEffectKind::Stale)],
            exclusive: true,
            weaker_settings: passing.into_iter().chain(partial).collect(),
            tolerates_unsupported: true,
            own_fields: vec![self.store.clone()],
            procedures: Procedures::Updates,
            requirements: vec![
                Requirement::PipelineUpdates,
                Requirement::Operator("$isNumber"),
                Requirement::Operator("$setField"),
            ],
            timestamp_field: Some(self.store.clone()),
            may_keep_replaced: self.per == TimestampScope::Document,
            looks_at_comment: matches!(self.source, TimeSource::Comment(_)),
            ..Properties::default()
        }
    }

    fn data_checks(&self, _: Namespace<'_>) -> Vec<DataCheck> {
        stored::checks(self)
    }

    fn conflict_with(&self, other: RuleView<'_>, _: Namespace<'_>) -> Option<&'static str> {
        let TimestampedFields::Listed(listed) = &self.fields else { return None };
        let decides =
            |path: &Path| other.properties.deciding_fields.iter().any(|field| field.overlaps(path.as_str().as_bytes()));
        listed.iter().any(decides).then_some("a late write takes effect on the field that the other rule compares")
    }

    fn partial_change_reason(&self, field: &Path) -> Option<&'static str> {
        self.has_own_timestamp(field).then_some("a stale write to one of the fields still changes the others")
    }

    fn settle(&self, before: Option<Document<'_>>, after: Document<'_>, facts: &Facts<'_, '_>) -> Vec<Settled> {
        self.settled(before, after, facts)
    }

    fn promise(&self, (before, after): BeforeAndAfter<'_>, facts: &Facts<'_, '_>) -> Result<(), Broken> {
        after.map_or(Ok(()), |after| self.check_written(before, after, facts))
    }

    fn applicability(&self, kind: StatementKind, _: Namespace<'_>) -> Applicability {
        applicability_for_content(kind)
    }

    fn evaluate<'a>(&self, statement: &Statement<'a>, context: &Context<'_>) -> Verdict<'a> {
        let evaluated = match &statement.operation {
            Operation::Insert(insert) => self.insert(insert, context),
            Operation::Delete(_) => Ok(Verdict::Forward),
            Operation::Update(update) => match &update.modification {
                Modification::Operators(operators) => self.update(update, operators.as_document(), context),
                Modification::Replacement(document) => self.replacement(update, document.as_document(), context),
                Modification::ClientPipeline(_) if self.is_apart(update) => Ok(Verdict::Forward),
                Modification::ClientPipeline(_) | Modification::Pipeline(_) => self.pipeline(update),
            },
        };
        evaluated.unwrap_or_else(Verdict::Reject)
    }

    fn evaluates_command(&self, class: CommandClass, _: Option<StatementKind>, _: Namespace<'_>) -> bool {
        self.hide && matches!(class, CommandClass::Find | CommandClass::FindAndModify | CommandClass::Aggregate)
    }

    /// Removes the timestamps from reads that do not ask for them.
    fn evaluate_command(&self, command: &WholeCommand<'_>) -> CommandVerdict {
        let change = match command.class {
            CommandClass::Find => {
                hide::projection(command.body.get("projection"), self.store()).map(|value| ("projection", value))
            }
            CommandClass::FindAndModify => {
                hide::projection(command.body.get("fields"), self.store()).map(|value| ("fields", value))
            }
            CommandClass::Aggregate => {
                let stages = command.body.get("pipeline").and_then(Value::as_array);
                stages.and_then(|stages| hide::pipeline(stages, self.store())).map(|value| ("pipeline", value))
            }
            _ => None,
        };
        change.map_or(CommandVerdict::Forward, |(key, value)| CommandVerdict::Set(key, value))
    }
}

impl Timestamps {
    /// Returns the field of a write that has its time.
    pub(super) fn source_field(&self) -> Option<&Path> {
        match &self.source {
            TimeSource::Field(field) => Some(field),
            TimeSource::Comment(_) | TimeSource::Clock => None,
        }
    }

    /// Returns whether a client's pipeline changes no protected field and no timestamp.
    fn is_apart(&self, update: &Update<'_>) -> bool {
        let is_listed = matches!(self.fields, TimestampedFields::Listed(_));
        is_listed && plain::is_apart(update, self.registers().chain([&self.store]))
    }

    /// Evaluates a client's pipeline. It may change protected fields only by value: then it has been read as operators.
    fn pipeline<'a>(&self, update: &Update<'_>) -> Result<Verdict<'a>, Rejection> {
        let computes = |field: &str| {
            Rejection::new(
                format!("it computes {field}, which is protected: the result would depend on the order of writes"),
                "Use $set with the value from the source.",
            )
        };
        let TimestampedFields::Listed(_) = self.fields else { return Err(computes("all fields")) };
        if let Modification::ClientPipeline(stages) = update.modification.meaning()
            && let Some(targets) = stage_targets(*stages)
            && let Some(named) =
                self.registers().chain([&self.store]).find(|field| targets.iter().any(|path| is_related(field, path)))
        {
            return Err(computes(&format!("'{named}'")));
        }
        Ok(Verdict::not_plain("it is a pipeline that may change protected fields"))
    }

    /// The top-level field that holds the timestamps.
    pub fn store(&self) -> &str {
        self.store.as_str()
    }

    fn update<'a>(
        &self,
        update: &Update<'a>,
        operators: Document<'_>,
        context: &Context<'_>,
    ) -> Result<Verdict<'a>, Rejection> {
        let touches = self.touches(update, operators, context)?;
        let protected = touches.paths.iter().filter(|touched| touched.protected);
        self.check_timestamps(&touches.timestamps, protected.clone().map(|touched| touched.path))?;
        let (mut writes_protected, mut all_sent) = (false, true);
        for touched in protected.clone() {
            writes_protected = true;
            all_sent &= self.sent_for(&touches.timestamps, touched.path).is_some();
        }
        let is_other = |path: &[u8]| decides(context, path) || protected.clone().any(|touched| touched.path == path);
        let (mut given, mut not_plain) = match self.given(update, is_other) {
            Ok(given) => (given, None),
            Err(part) => (GivenFields::default(), Some(part)),
        };
        // A $setOnInsert of protected fields does not change them in stored documents.
        let by_operators = writes_protected;
        if touches.timestamps.is_empty() && protected.clone().all(|touched| touched.operator == b"$setOnInsert") {
            writes_protected = false;
            for touched in protected.clone() {
                given.paths.push(utf8(touched.path)?.to_owned());
            }
        }
        if !writes_protected && given.paths.is_empty() {
            return Ok(not_plain.map_or(Verdict::Forward, Verdict::not_plain));
        }
        // An upsert would insert the filter's equalities with a timestamp.
        if touches.resets {
            return Err(self.resets_beside_writes());
        }
        let needs_time = !all_sent || !given.paths.is_empty();
        let time = match needs_time {
            false => None,
            true => {
                // The filter's equalities are as old as the newest timestamp from the client.
                let sent = if all_sent { self.timestamp_type.newest(&touches.timestamps) } else { None };
                let found = self.source_time(context, sent, |path| set_value(&touches.paths, path));
                found.map_err(|rejection| if by_operators { rejection } else { without_time(&given, rejection) })?
            }
        };
        if time.is_none() && touches.timestamps.is_empty() {
            return Ok(not_plain.map_or(Verdict::Forward, Verdict::not_plain));
        }
        let mut changes = self.changes(update, &touches, time)?;
        let on_insert = match time {
            Some(time) if self.per == TimestampScope::Field => given.at(time),
            // The only timestamp is set already.
            _ => Vec::new(),
        };
        if writes_protected && !on_insert.is_empty() && given.id {
            not_plain = not_plain.or(Some("as an upsert it could insert protected fields from its filter".to_owned()));
        }
        if let Some(part) = not_plain.or(changes.obstacle.take().filter(|_| writes_protected)) {
            return Ok(Verdict::not_plain(part));
        }
        if !writes_protected {
            let Some(time) = time else { return Ok(Verdict::Forward) };
            let operators = Modification::Operators(self.timestamped_on_insert(operators, &given, time));
            return Ok(Verdict::rewrite(remade(update, update.filter.clone(), operators, true)));
        }
        let writes = PathWrites::new(changes.writes)?;
        let stage = StageWriter::new(&self.forms).update(writes.tree(), &changes.protected, &on_insert);
        let modification = Modification::stage(stage, update.modification.clone(), true);
        let operation = remade(update, update.filter.clone(), modification, update.upsert);
        Ok(Verdict::rewrite_with(operation, STALE))
    }

    fn replacement<'a>(
        &self,
        update: &Update<'a>,
        document: Document<'_>,
        context: &Context<'_>,
    ) -> Result<Verdict<'a>, Rejection> {
        // mongod rejects the replacement of many documents and returns its own error.
        if update.multi {
            return Ok(Verdict::Forward);
        }
        if self.per == TimestampScope::Field {
            return Ok(Verdict::unsupported(
                "it replaces the whole document, but timestamps are stored per field",
                "Use updateOne with $set. (For the DBA: `per: document` protects replacements, and a `replacement` \
                 rule with `policy: merge` turns them into $set.)",
            ));
        }
        // The document may have been read with the timestamp, so the source has priority.
        let sent = match document.get(self.store.as_str()).filter(|sent| sent.kind != Kind::Null) {
            Some(value) if !self.has_time(context, |path| path.lookup(document)) => {
                Some(self.sent_time(context, self.store(), value)?)
            }
            _ => None,
        };
        let Some(time) = self.source_time(context, sent, |path| path.lookup(document))? else {
            return Ok(Verdict::Forward);
        };
        if let Some(odd) = literal::operator_field(document) {
            return Ok(Verdict::not_plain(odd.reason));
        }
        if update.upsert && plain::taken(update.filter.as_document(), &self.store) != Ok(None) {
            return Ok(Verdict::not_plain(plain::may_give(&self.store)));
        }
        let stored = CowDocument::from_writer(self.timestamped_as_a_whole(document, time));
        let stage = StageWriter::new(&self.forms).replacement(stored.as_document(), time);
        let modification = Modification::stage(stage, update.modification.clone(), true);
        let operation = remade(update, update.filter.clone(), modification, update.upsert);
        Ok(Verdict::rewrite_with(operation, STALE))
    }

    fn resets_beside_writes(&self) -> Rejection {
        Rejection::new(
            format!("it unsets timestamps in '{}' and writes protected fields in one statement", self.store),
            "Unset the timestamps in a separate statement.",
        )
    }
}
