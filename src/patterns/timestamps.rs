//! `timestamps`: the last writer by the source's own time wins, whatever order the writes arrive in.
//!
//! A device sends its state; a queue redelivers, a retry overtakes, and an old reading lands on a newer one.
//! Every protected field is a last-writer-wins register: its timestamp lives under `store`, and an update becomes a
//! pipeline that sets field and timestamp only where the timestamp is not newer.
//!
//! before: `updateOne({_id: 1}, {$set: {temp: 20, published_at: T}})`
//!
//! after: `updateOne({_id: 1}, [{$set: {temp: {$cond: [STALE, "$temp", {$literal: 20}]}, ...,
//! last_modified: {temp: {$cond: [STALE, "$last_modified.temp", T]}, ...}}}])`, with STALE =
//! `{$and: [{$eq: [{$type: "$last_modified.temp"}, "date"]}, {$gt: ["$last_modified.temp", T]}]}`
//!
//! A pipeline rather than a filter: a stale upsert then matches and changes nothing, where a narrowed filter
//! would try to insert and fail with E11000. Reads: [`hide`]; the pipeline: `pipeline.rs`.

mod hide;
mod operators;
mod pins;
mod pipeline;
mod settings;
mod times;
mod writes;

use std::sync::Arc;

use super::filter::remade;
use super::{CommandVerdict, Concern, Context, Evaluate, Phase, Rejection, Verdict, WholeCommand, concern_for_content};
use crate::command::{Class, Insert, Modification, Namespace, Operation, Pipeline, Statement, StatementKind, Update};
use crate::document::{CowDocument, Document, Kind, Lookup, Path, Value, edit};
use crate::effect::{Touch, touch, touched};
use crate::rules::WeakerSetting;
use operators::InOperators;
use pins::without_time;
use pipeline::{FieldTimestamp, Stage};
pub use settings::Timestamps;
use settings::{Fields, Per, Source, Time, WithoutSource};
use writes::{Change, Put, Write, WriteList, Writes};

/// How a touched path relates to the protected ones.
enum Reach {
    /// It is a register.
    Protected,
    /// It touches none.
    Free,
    /// It is the timestamps' own field, or inside it.
    Store,
    /// It writes a part of a register, or a field around one.
    Across(String),
}

/// A path that an operator touches with a value.
#[derive(Clone, Copy)]
struct Touched<'u> {
    operator: &'u [u8],
    path: &'u [u8],
    value: Value<'u>,
    protected: bool,
}

/// What the operators of an update touch.
struct Touches<'u> {
    /// FieldTimestamps are unset.
    resets: bool,
    paths: Vec<Touched<'u>>,
    /// The timestamps that it sets itself.
    timestamps: Vec<FieldTimestamp<'u>>,
    /// Paths of a `$setOnInsert` without an upsert, which changes nothing.
    idle: Vec<&'u [u8]>,
}

/// What the operators of an update do, path by path.
struct Changes<'u> {
    writes: WriteList<'u>,
    /// The protected paths among them, in the client's order.
    protected: Vec<FieldTimestamp<'u>>,
    /// Why a pipeline cannot do the same.
    obstacle: Option<Rejection>,
}

impl Evaluate for Timestamps {
    fn name(&self) -> &'static str {
        "timestamps"
    }

    fn phase(&self) -> Phase {
        Phase::Timestamps
    }

    fn rewriting(&self) -> &'static str {
        "each value carries its source time, and only a newer one takes its place"
    }

    fn exclusive(&self) -> bool {
        true
    }

    fn weaker_settings(&self) -> Vec<WeakerSetting> {
        let passes = WeakerSetting { what: "lets writes without a source time pass", setting: "without_source" };
        let some = WeakerSetting { what: "guards some of the fields only", setting: "fields" };
        let passing = (self.without_source == WithoutSource::Pass).then_some(passes);
        passing.into_iter().chain(matches!(self.fields, Fields::Listed(_)).then_some(some)).collect()
    }

    fn concern(&self, kind: StatementKind, _: Namespace<'_>) -> Concern {
        concern_for_content(kind)
    }

    fn evaluate<'a>(&self, statement: &Statement<'a>, context: &Context<'_>) -> Verdict<'a> {
        let evaluated = match &statement.operation {
            Operation::Insert(insert) => self.insert(insert, context),
            Operation::Delete(_) => Ok(Verdict::Forward),
            Operation::Update(update) => match &update.modification {
                Modification::Operators(operators) => self.update(update, operators.as_document(), context),
                Modification::Replacement(document) => self.replacement(update, document.as_document(), context),
                Modification::ClientPipeline(_) | Modification::Pipeline(_) => Ok(Verdict::client_pipeline()),
            },
        };
        match evaluated {
            Ok(Verdict::Procedure(_)) if statement.option("collation").is_some() => unsupported("it has a collation"),
            Ok(verdict) => verdict,
            Err(rejection) => Verdict::Reject(rejection),
        }
    }

    fn looks_at_comment(&self) -> bool {
        matches!(self.source, Source::Comment(_))
    }

    fn evaluates_command(&self, class: Class, _: Option<StatementKind>) -> bool {
        self.hide && matches!(class, Class::Find | Class::FindAndModify | Class::Aggregate)
    }

    /// Keeps the timestamps out of reads that do not ask for them.
    fn evaluate_command(&self, command: &WholeCommand<'_>) -> CommandVerdict {
        let documents = |key: &str| command.body.get(key).and_then(Value::as_document);
        let change = match command.class {
            Class::Find => hide::projection(documents("projection"), &self.store).map(|value| ("projection", value)),
            Class::FindAndModify => hide::projection(documents("fields"), &self.store).map(|value| ("fields", value)),
            Class::Aggregate => {
                let stages = command.body.get("pipeline").and_then(Value::as_array);
                stages.and_then(|stages| hide::pipeline(stages, &self.store)).map(|value| ("pipeline", value))
            }
            _ => None,
        };
        change.map_or(CommandVerdict::Forward, |(key, value)| CommandVerdict::Set(key, value))
    }
}

impl Timestamps {
    /// The top-level field that holds the timestamps.
    pub fn store(&self) -> &str {
        &self.store
    }

    /// Whether the field, or a part of it, has a timestamp apart from those of other fields.
    pub(super) fn has_own_timestamp(&self, field: &Path) -> bool {
        self.per == Per::Field && !matches!(self.reach(field.as_str().as_bytes()), Reach::Free)
    }

    /// An inserted document gets timestamps for what it holds; those that it brings along are the times of their fields.
    fn insert<'a>(&self, insert: &Insert<'a>, context: &Context<'_>) -> Result<Verdict<'a>, Rejection> {
        let document = insert.document.as_document();
        let brought = document.get(self.store.as_str()).filter(|brought| brought.kind != Kind::Null);
        let timestamped = match self.per {
            Per::Document => {
                let brought = brought.map(|value| self.brought(context, &self.store, value)).transpose()?;
                let time = match brought {
                    Some(time) => Some(time),
                    None => self.source_time(context, None, |path| path.lookup(document))?,
                };
                time.map(|time| self.timestamped_as_a_whole(document, time))
            }
            Per::Field => self.timestamped_by_field(document, brought, context)?,
        };
        Ok(match timestamped {
            Some(document) => {
                Verdict::rewrite(Operation::Insert(Insert { document: CowDocument::from_writer(document) }))
            }
            None => Verdict::Forward,
        })
    }

    /// `document` with one timestamp.
    fn timestamped_as_a_whole(&self, document: Document<'_>, time: Time) -> Vec<u8> {
        let kept = CowDocument::from_writer(edit::without(document, &self.store));
        edit::append(kept.as_document(), |w| w.value(&self.store, self.timestamp_type.value(&time)))
    }

    /// `document` with a timestamp for each protected field: the one in `brought`, or else the source time. `None` if it gets
    /// none and brings none.
    fn timestamped_by_field(
        &self,
        document: Document<'_>,
        brought: Option<Value<'_>>,
        context: &Context<'_>,
    ) -> Result<Option<Vec<u8>>, Rejection> {
        let kept = CowDocument::from_writer(edit::without(document, &self.store));
        let kept = kept.as_document();
        let mut timestamps = match brought {
            Some(value) => self.brought_by_field(value, context)?,
            None => Vec::new(),
        };
        let fields = self.protected_fields(kept)?;
        let unstamped = |path: &&str| !timestamps.iter().any(|timestamp| timestamp.path == *path);
        let unstamped: Vec<&str> = fields.into_iter().filter(unstamped).collect();
        // A document without protected fields too says when it was written.
        if !unstamped.is_empty() || brought.is_none() {
            let time = self.source_time(context, None, |path| path.lookup(document))?;
            if time.is_none() && brought.is_none() {
                return Ok(None);
            }
            timestamps.extend(unstamped.into_iter().filter_map(|path| Some(FieldTimestamp { path, time: time? })));
        }
        let writes = timestamps.iter().map(|FieldTimestamp { path, time }| {
            let value = self.timestamp_type.value(time);
            Write { path, change: Change::Put(Put::Value(value)) }
        });
        let writes = Writes::new(writes.collect())?;
        Ok(Some(edit::append(kept, |w| w.nested(&self.store, |w| writes.tree().write_values(w)))))
    }

    /// The paths of the protected fields that `document` holds.
    fn protected_fields<'d>(&'d self, document: Document<'d>) -> Result<Vec<&'d str>, Rejection> {
        match &self.fields {
            Fields::All => {
                document.elements().filter(|field| field.key != b"_id").map(|field| field_name(field.key)).collect()
            }
            Fields::Listed(_) => {
                let held = self.registers().filter(|path| matches!(path.lookup(document), Lookup::Found(_)));
                Ok(held.map(Path::as_str).collect())
            }
        }
    }

    /// The timestamps that an inserted document brings along; also those of fields that it does not hold, which were removed
    /// at that time. FieldTimestamps of what is no protected field are not kept.
    fn brought_by_field<'d>(
        &'d self,
        brought: Value<'d>,
        context: &Context<'_>,
    ) -> Result<Vec<FieldTimestamp<'d>>, Rejection> {
        let Some(timestamps) = brought.as_document() else {
            return Err(Rejection::new(
                format!(
                    "its field '{}', where the timestamps are kept, is of type {}",
                    self.store,
                    brought.kind.name()
                ),
                "Leave it out, or give the time of each field in it.",
            ));
        };
        let timestamp = |path: &'d str, value| {
            let time = self.brought(context, &format!("{}.{path}", self.store), value)?;
            Ok(FieldTimestamp { path, time })
        };
        match &self.fields {
            Fields::All => timestamps.elements().map(|field| timestamp(field_name(field.key)?, field.value)).collect(),
            Fields::Listed(_) => {
                let held = self.registers().filter_map(|path| match path.lookup(timestamps) {
                    Lookup::Found(value) => Some(timestamp(path.as_str(), value)),
                    Lookup::Missing | Lookup::Blocked(_) => None,
                });
                held.collect()
            }
        }
    }

    /// The listed registers, and the source field where no listed one covers it: it must converge too.
    fn registers(&self) -> impl Iterator<Item = &Path> {
        let listed = match &self.fields {
            Fields::All => &[][..],
            Fields::Listed(paths) => paths,
        };
        let source = match &self.source {
            Source::Field(path) if !listed.iter().any(|l| l.overlaps(path.as_str().as_bytes())) => Some(path),
            _ => None,
        };
        listed.iter().chain(source)
    }

    fn reach(&self, path: &[u8]) -> Reach {
        let dot = path.iter().position(|byte| *byte == b'.');
        let root = path.get(..dot.unwrap_or(path.len())).unwrap_or_default();
        if root == self.store.as_bytes() {
            return Reach::Store;
        }
        if root == b"_id" {
            return Reach::Free;
        }
        match &self.fields {
            Fields::All if self.per == Per::Field && dot.is_some() => {
                Reach::Across(String::from_utf8_lossy(root).into_owned())
            }
            Fields::All => Reach::Protected,
            Fields::Listed(_) => {
                let reached = self.registers().map(|register| (register, touch(register, path)));
                match reached.into_iter().find(|(_, touch)| *touch != Touch::Apart) {
                    None => Reach::Free,
                    Some((_, Touch::Exact)) => Reach::Protected,
                    // One timestamp for the whole document: parts of a field are as well protected as the field.
                    Some(_) if self.per == Per::Document => Reach::Protected,
                    Some((register, _)) => Reach::Across(register.as_str().to_owned()),
                }
            }
        }
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
        let (mut guards, mut all_brought) = (false, true);
        for touched in protected.clone() {
            guards = true;
            all_brought &= self.brought_for(&touches.timestamps, touched.path).is_some();
        }
        let mut pinned = self.pinned(update, |path| protected.clone().any(|touched| touched.path == path))?;
        // What writes protected fields by $setOnInsert only leaves those of stored documents alone.
        let by_operators = guards;
        if touches.timestamps.is_empty() && protected.clone().all(|touched| touched.operator == b"$setOnInsert") {
            guards = false;
            for touched in protected.clone() {
                pinned.paths.push(utf8(touched.path)?.to_owned());
            }
        }
        if !guards && pinned.paths.is_empty() {
            return Ok(Verdict::Forward);
        }
        // An upsert would insert what its filter pins with a timestamp.
        if touches.resets {
            return Err(self.resets_beside_writes());
        }
        let needs_time = !all_brought || !pinned.paths.is_empty();
        let time = match needs_time {
            false => None,
            true => {
                // What the filter pins is as old as the newest of what the client has timestamped.
                let brought = if all_brought { self.timestamp_type.newest(&touches.timestamps) } else { None };
                let found = self.source_time(context, brought, |path| set_value(&touches.paths, path));
                found.map_err(|rejection| if by_operators { rejection } else { without_time(&pinned, rejection) })?
            }
        };
        if !guards {
            return Ok(match time {
                Some(time) => {
                    let operators = Modification::Operators(self.timestamped_on_insert(operators, &pinned, time));
                    Verdict::rewrite(remade(update, update.filter.clone(), operators, true))
                }
                None => Verdict::Forward,
            });
        }
        if time.is_none() && touches.timestamps.is_empty() {
            return Ok(Verdict::Forward);
        }
        // One timestamp for all is there already.
        let on_insert = match time {
            Some(time) if self.per == Per::Field => pinned.at(time),
            _ => Vec::new(),
        };
        let mut changes = match self.changes(update, &touches, time)? {
            Ok(changes) => changes,
            Err(verdict) => return Ok(verdict),
        };
        let writes = Writes::new(changes.writes)?;
        touches.check_idle()?;
        if !on_insert.is_empty() && pinned.id {
            changes.obstacle.get_or_insert_with(|| {
                Rejection::new(
                    "as an upsert it could insert protected fields of its filter, and it may touch many documents",
                    "Use updateOne.",
                )
            });
        }
        if let Some(obstacle) = changes.obstacle {
            return Ok(match update.multi {
                true => Verdict::Unsupported(obstacle),
                false => Verdict::Procedure(Arc::new(InOperators::new(self, &changes.protected, &on_insert))),
            });
        }
        let stage = Stage::new(&self.forms).update(writes.tree(), &changes.protected, &on_insert);
        let modification = pipeline_of(stage, &update.modification);
        Ok(Verdict::rewrite(remade(update, update.filter.clone(), modification, update.upsert)))
    }

    /// The time that the client itself timestamps a field with.
    fn brought_for(&self, timestamps: &[FieldTimestamp<'_>], path: &[u8]) -> Option<Time> {
        let mut own =
            timestamps.iter().filter(|timestamp| self.per == Per::Document || timestamp.path.as_bytes() == path);
        own.next().map(|timestamp| timestamp.time)
    }

    /// The paths that the operators touch, and the timestamps that they set; timestamps may be unset only by themselves.
    fn touches<'u>(
        &self,
        update: &Update<'_>,
        operators: Document<'u>,
        context: &Context<'_>,
    ) -> Result<Touches<'u>, Rejection> {
        let mut touches =
            Touches { resets: false, paths: Vec::with_capacity(8), timestamps: Vec::new(), idle: Vec::new() };
        for (operator, path, value) in touched(operators) {
            if operator == b"$setOnInsert" && !update.upsert {
                touches.idle.push(path);
                continue;
            }
            let protected = match self.reach(path) {
                Reach::Free => false,
                Reach::Protected => true,
                Reach::Store if operator == b"$unset" => {
                    touches.resets = true;
                    continue;
                }
                Reach::Store => {
                    touches.timestamps.push(self.written_timestamp(context, operator, path, value)?);
                    continue;
                }
                Reach::Across(register) => return Err(self.across(path, &register)),
            };
            touches.paths.push(Touched { operator, path, value, protected });
        }
        if touches.resets && (!touches.timestamps.is_empty() || touches.paths.iter().any(|touched| touched.protected)) {
            return Err(self.resets_beside_writes());
        }
        Ok(touches)
    }

    /// What the operators do to each path, protected fields without a time of their own at `time`; a verdict where one of
    /// them cannot be told as such.
    fn changes<'u, 'a>(
        &self,
        update: &Update<'a>,
        touches: &Touches<'u>,
        time: Option<Time>,
    ) -> Result<Result<Changes<'u>, Verdict<'a>>, Rejection> {
        let count = touches.paths.len();
        let mut changes =
            Changes { writes: Vec::with_capacity(count), protected: Vec::with_capacity(count), obstacle: None };
        if update.array_filters {
            changes.obstacle = Some(Rejection::new(
                "it writes protected fields of many documents, and has arrayFilters",
                "Write the protected fields in a statement of its own.",
            ));
        }
        for Touched { operator, path, value, protected } in touches.paths.iter().copied() {
            let text = match updatable(path) {
                Ok(text) => text,
                Err(obstacle) => {
                    changes.obstacle.get_or_insert(obstacle);
                    utf8(path)?
                }
            };
            let time = if protected { self.brought_for(&touches.timestamps, path).or(time) } else { None };
            let put = |put| match time {
                Some(time) => Change::ProtectedPut(put, time),
                None => Change::Put(put),
            };
            let change = match operator {
                b"$set" => put(Put::Value(value)),
                b"$unset" => put(Put::Nothing),
                b"$currentDate" if sets_a_date(value) => put(Put::Now),
                _ if protected => return Ok(Err(not_a_register_write(operator, path))),
                b"$inc" => match value.kind {
                    Kind::Int32 | Kind::Int64 | Kind::Double | Kind::Decimal128 => Change::Add(value),
                    _ => return Err(Rejection::new("it increments by something that is no number", "Use a number.")),
                },
                other => {
                    changes.obstacle.get_or_insert_with(|| not_in_a_pipeline(other, path));
                    Change::Put(Put::Nothing)
                }
            };
            if let Some(time) = time {
                changes.protected.push(FieldTimestamp { path: text, time });
            }
            changes.writes.push(Write { path: text, change });
        }
        Ok(Ok(changes))
    }

    fn replacement<'a>(
        &self,
        update: &Update<'a>,
        document: Document<'_>,
        context: &Context<'_>,
    ) -> Result<Verdict<'a>, Rejection> {
        // mongod refuses to replace many documents; that error is the right one.
        if update.multi {
            return Ok(Verdict::Forward);
        }
        if self.per == Per::Field {
            return Ok(Verdict::unsupported(
                "it replaces the whole document, and timestamps are kept per field",
                "Use updateOne with $set. (For the DBA: `per: document` guards replacements, and a `replacement` \
                 rule with `policy: merge` turns them into $set.)",
            ));
        }
        if let Some(field) = document.elements().find(|field| field.key.starts_with(b"$")) {
            let name = String::from_utf8_lossy(field.key);
            return Err(Rejection::new(format!("its field name '{name}' begins with $"), "Rename the field."));
        }
        self.pinned(update, |_| true)?;
        // It may have been read with the timestamp, so the source comes first.
        let brought = match document.get(self.store.as_str()).filter(|brought| brought.kind != Kind::Null) {
            Some(value) if !self.tells_time(context, |path| path.lookup(document)) => {
                Some(self.brought(context, &self.store, value)?)
            }
            _ => None,
        };
        let Some(time) = self.source_time(context, brought, |path| path.lookup(document))? else {
            return Ok(Verdict::Forward);
        };
        let stored = CowDocument::from_writer(self.timestamped_as_a_whole(document, time));
        let stage = Stage::new(&self.forms).replacement(stored.as_document(), time);
        let modification = pipeline_of(stage, &update.modification);
        Ok(Verdict::rewrite(remade(update, update.filter.clone(), modification, update.upsert)))
    }

    fn resets_beside_writes(&self) -> Rejection {
        Rejection::new(
            format!("it unsets timestamps in '{}' and writes protected fields at once", self.store),
            "Unset the timestamps in a statement of its own.",
        )
    }

    fn across(&self, path: &[u8], register: &str) -> Rejection {
        let path = String::from_utf8_lossy(path);
        let hint = match self.fields {
            Fields::All => format!(
                "Write '{register}' as a whole. (For the DBA: list '{path}' under `fields` to give it a timestamp of its own.)"
            ),
            Fields::Listed(_) => format!("Write '{register}' as a whole, and by its own path."),
        };
        Rejection::new(format!("'{path}' overlaps the protected field '{register}', which has one timestamp"), hint)
    }
}

fn not_a_register_write<'a>(operator: &[u8], path: &[u8]) -> Verdict<'a> {
    let (operator, path) = (String::from_utf8_lossy(operator), String::from_utf8_lossy(path));
    Verdict::unsupported(
        format!("{operator} on the protected field '{path}' depends on the order of writes"),
        "Use $set with the value the source has.",
    )
}

fn not_in_a_pipeline(operator: &[u8], path: &[u8]) -> Rejection {
    let (operator, path) = (String::from_utf8_lossy(operator), String::from_utf8_lossy(path));
    Rejection::new(
        format!("{operator} on '{path}' cannot be combined with writes to protected fields of many documents"),
        "Send it as a statement of its own, or update one document.",
    )
}

/// A pipeline that stands for what the client wrote.
fn pipeline_of<'a>(stage: CowDocument<'a>, meaning: &Modification<'a>) -> Modification<'a> {
    Modification::Pipeline(Box::new(Pipeline { stages: vec![stage], meaning: meaning.clone() }))
}

impl Touches<'_> {
    /// The server refuses a path that two operators name, whatever they do.
    fn check_idle(&self) -> Result<(), Rejection> {
        let overlaps = |one: &[u8], other: &[u8]| {
            let is_around = |outer: &[u8], inner: &[u8]| {
                inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
            };
            is_around(one, other) || is_around(other, one)
        };
        let named_twice = self.idle.iter().find(|idle| self.paths.iter().any(|touched| overlaps(touched.path, idle)));
        match named_twice {
            None => Ok(()),
            Some(path) => Err(Rejection::new(
                format!("it writes '{}' twice, or writes a field inside it too", String::from_utf8_lossy(path)),
                "Write each path once.",
            )),
        }
    }
}

/// What `$set` writes at `path`, by its own name or inside a field around it.
fn set_value<'u>(touches: &[Touched<'u>], path: &Path) -> Lookup<'u> {
    // What only inserts has its time there, too.
    let only_inserts =
        touches.iter().filter(|touched| touched.protected).all(|touched| touched.operator == b"$setOnInsert");
    let sets = |operator: &[u8]| operator == b"$set" || only_inserts && operator == b"$setOnInsert";
    for field in touches.iter().filter(|touched| sets(touched.operator)) {
        let Some(below) = path.as_str().as_bytes().strip_prefix(field.path) else { continue };
        if below.is_empty() {
            return Lookup::Found(field.value);
        }
        let below = below.strip_prefix(b".").and_then(|rest| std::str::from_utf8(rest).ok()).and_then(Path::parse);
        if let (Some(below), Some(nested)) = (below, field.value.as_document()) {
            return below.lookup(nested);
        }
    }
    Lookup::Missing
}

/// `$currentDate: {f: true}` or `{f: {$type: "date"}}`.
fn sets_a_date(value: Value<'_>) -> bool {
    let of_type = value.as_document().and_then(|spec| spec.get("$type")).and_then(Value::as_str);
    value.as_bool().is_some() || of_type == Some("date")
}

fn unsupported<'a>(reason: &str) -> Verdict<'a> {
    Verdict::unsupported(reason, "Write the protected fields by plain paths with $set, in a statement of their own.")
}

/// Parts of a path that a stage can write: each nests six levels there, and servers read 200 (`BSONDepth`).
const MAX_PARTS: usize = 25;

/// A path that means the same in a pipeline as in an operator: a numeric part could be an array's index.
fn updatable(path: &[u8]) -> Result<&str, Rejection> {
    let numeric = |part: &[u8]| part.iter().all(u8::is_ascii_digit);
    let (mut parts, mut plain) = (0, true);
    for part in path.split(|byte| *byte == b'.') {
        parts += 1;
        plain &= !part.starts_with(b"$") && !numeric(part);
    }
    if parts > MAX_PARTS {
        return Err(Rejection::new(
            format!("a path in it has more than {MAX_PARTS} parts"),
            "Write the object around it, or write this path in a statement without protected fields.",
        ));
    }
    let text = std::str::from_utf8(path).ok().filter(|_| plain);
    text.ok_or_else(|| {
        Rejection::new(
            format!("its path '{}' has a positional or numeric part", String::from_utf8_lossy(path)),
            "Write the whole array or object, or write this path in a statement without protected fields.",
        )
    })
}

fn utf8(path: &[u8]) -> Result<&str, Rejection> {
    std::str::from_utf8(path).map_err(|_| {
        let path = String::from_utf8_lossy(path);
        Rejection::new(format!("its path '{path}' is no UTF-8"), "Use a name of Unicode characters.")
    })
}

/// A top-level name that can be a register of its own.
fn field_name(key: &[u8]) -> Result<&str, Rejection> {
    let text = std::str::from_utf8(key).ok();
    text.filter(|name| !name.is_empty() && !name.starts_with('$') && !name.contains('.')).ok_or_else(|| {
        Rejection::new(
            format!("its field name '{}' cannot be timestamped", String::from_utf8_lossy(key)),
            "Use a name that is not empty, does not begin with $ and has no dot.",
        )
    })
}
