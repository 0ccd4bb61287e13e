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

mod hide;
mod operators;
mod pins;
mod pipeline;
mod settings;
mod times;
mod writes;

use super::filter::remade;
use super::{
    CommandVerdict, Concern, Context, Pattern, Rejection, Verdict, WeakerSetting, WholeCommand, concern_for_content,
};
use crate::command::{
    CommandClass, Insert, Modification, Namespace, Operation, Pipeline, Statement, StatementKind, Update,
};
use crate::config::keys::Declaration;
use crate::config::{Node, ReadContext};
use crate::document::{CowDocument, Document, Kind, Lookup, Path, Value, edit};
use crate::effect::{Touch, touch, touched};
use operators::OperatorsProcedure;
use pins::without_time;
use pipeline::{FieldTimestamp, Stage};
pub use settings::Timestamps;
use settings::{Fields, Per, Time, TimeSource, WithoutSource};
use writes::{Change, Put, Write, WriteList, Writes};

/// How a touched path relates to the protected ones.
enum Reach {
    /// The path is a register.
    Protected,
    /// The path touches no register.
    Free,
    /// The path is the field with the timestamps, or inside it.
    Store,
    /// The path is a part of a register, or a field around one.
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
    /// Whether timestamps are unset.
    resets: bool,
    paths: Vec<Touched<'u>>,
    /// The timestamps that the update sets itself.
    timestamps: Vec<FieldTimestamp<'u>>,
    /// Paths of a `$setOnInsert` without an upsert, which changes nothing.
    idle: Vec<&'u [u8]>,
}

/// The effect of an update's operators, path by path.
struct Changes<'u> {
    writes: WriteList<'u>,
    /// The protected paths among them, in the client's order.
    protected: Vec<FieldTimestamp<'u>>,
    /// Why a pipeline cannot express the update.
    obstacle: Option<Rejection>,
}

impl Pattern for Timestamps {
    fn declaration() -> Declaration {
        Declaration::mapping(&settings::KEYS)
    }

    fn read(settings: &Node, context: &mut ReadContext<'_>) -> Option<Self> {
        context.mapping(settings, &settings::KEYS, Self::read_keys)
    }

    fn rewriting(&self) -> &'static str {
        "stores the source time of each value; only a newer value replaces it"
    }

    fn exclusive(&self) -> bool {
        true
    }

    fn weaker_settings(&self) -> Vec<WeakerSetting> {
        let passes = WeakerSetting { what: "allows writes without a source time", setting: "without_source" };
        let some = WeakerSetting { what: "protects only some of the fields", setting: "fields" };
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
            Ok(Verdict::Needs(_)) if statement.option("collation").is_some() => unsupported("it has a collation"),
            Ok(verdict) => verdict,
            Err(rejection) => Verdict::Reject(rejection),
        }
    }

    fn looks_at_comment(&self) -> bool {
        matches!(self.source, TimeSource::Comment(_))
    }

    fn evaluates_command(&self, class: CommandClass, _: Option<StatementKind>) -> bool {
        self.hide && matches!(class, CommandClass::Find | CommandClass::FindAndModify | CommandClass::Aggregate)
    }

    /// Removes the timestamps from reads that do not ask for them.
    fn evaluate_command(&self, command: &WholeCommand<'_>) -> CommandVerdict {
        let documents = |key: &str| command.body.get(key).and_then(Value::as_document);
        let change = match command.class {
            CommandClass::Find => {
                hide::projection(documents("projection"), &self.store).map(|value| ("projection", value))
            }
            CommandClass::FindAndModify => {
                hide::projection(documents("fields"), &self.store).map(|value| ("fields", value))
            }
            CommandClass::Aggregate => {
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

    /// Returns whether the field, or a part of it, has a timestamp separate from those of other fields.
    pub(super) fn has_own_timestamp(&self, field: &Path) -> bool {
        self.per == Per::Field && !matches!(self.reach(field.as_str().as_bytes()), Reach::Free)
    }

    /// Evaluates an insert: adds timestamps for the fields of the document. Timestamps in the document are the times of
    /// their fields.
    fn insert<'a>(&self, insert: &Insert<'a>, context: &Context<'_>) -> Result<Verdict<'a>, Rejection> {
        let document = insert.document.as_document();
        let sent = document.get(self.store.as_str()).filter(|sent| sent.kind != Kind::Null);
        let timestamped = match self.per {
            Per::Document => {
                let sent = sent.map(|value| self.sent_time(context, &self.store, value)).transpose()?;
                let time = match sent {
                    Some(time) => Some(time),
                    None => self.source_time(context, None, |path| path.lookup(document))?,
                };
                time.map(|time| self.timestamped_as_a_whole(document, time))
            }
            Per::Field => self.timestamped_by_field(document, sent, context)?,
        };
        Ok(match timestamped {
            Some(document) => {
                Verdict::rewrite(Operation::Insert(Insert { document: CowDocument::from_writer(document) }))
            }
            None => Verdict::Forward,
        })
    }

    /// Returns `document` with one timestamp.
    fn timestamped_as_a_whole(&self, document: Document<'_>, time: Time) -> Vec<u8> {
        let kept = CowDocument::from_writer(edit::without(document, &self.store));
        edit::append(kept.as_document(), |w| w.value(&self.store, self.timestamp_type.value(&time)))
    }

    /// Returns `document` with a timestamp for each protected field: the one in `sent`, or else the source time.
    /// `None` if there is neither.
    fn timestamped_by_field(
        &self,
        document: Document<'_>,
        sent: Option<Value<'_>>,
        context: &Context<'_>,
    ) -> Result<Option<Vec<u8>>, Rejection> {
        let kept = CowDocument::from_writer(edit::without(document, &self.store));
        let kept = kept.as_document();
        let mut timestamps = match sent {
            Some(value) => self.sent_by_field(value, context)?,
            None => Vec::new(),
        };
        let fields = self.protected_fields(kept)?;
        let untimed = |path: &&str| !timestamps.iter().any(|timestamp| timestamp.path == *path);
        let untimed: Vec<&str> = fields.into_iter().filter(untimed).collect();
        // A document without protected fields needs a source time too.
        if !untimed.is_empty() || sent.is_none() {
            let time = self.source_time(context, None, |path| path.lookup(document))?;
            if time.is_none() && sent.is_none() {
                return Ok(None);
            }
            timestamps.extend(untimed.into_iter().filter_map(|path| Some(FieldTimestamp { path, time: time? })));
        }
        let writes = timestamps.iter().map(|FieldTimestamp { path, time }| {
            let value = self.timestamp_type.value(time);
            Write { path, change: Change::Put(Put::Value(value)) }
        });
        let writes = Writes::new(writes.collect())?;
        Ok(Some(edit::append(kept, |w| w.nested(&self.store, |w| writes.tree().write_values(w)))))
    }

    /// Returns the paths of the protected fields in `document`.
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

    /// Returns the timestamps in an inserted document, also those of fields that it does not contain: these fields were
    /// removed at that time. Timestamps of fields that are not protected are dropped.
    fn sent_by_field<'d>(
        &'d self,
        sent: Value<'d>,
        context: &Context<'_>,
    ) -> Result<Vec<FieldTimestamp<'d>>, Rejection> {
        let Some(timestamps) = sent.as_document() else {
            return Err(Rejection::new(
                format!("its field '{}', which holds the timestamps, has type {}", self.store, sent.kind.name()),
                "Leave it out, or send a document with the time of each field.",
            ));
        };
        let timestamp = |path: &'d str, value| {
            let time = self.sent_time(context, &format!("{}.{path}", self.store), value)?;
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

    /// Returns the listed registers, and the source field if no listed one covers it: it must converge too.
    fn registers(&self) -> impl Iterator<Item = &Path> {
        let listed = match &self.fields {
            Fields::All => &[][..],
            Fields::Listed(paths) => paths,
        };
        let source = match &self.source {
            TimeSource::Field(path) if !listed.iter().any(|l| l.overlaps(path.as_str().as_bytes())) => Some(path),
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
                    // With one timestamp for the whole document, parts of a field are protected like the field.
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
        let (mut writes_protected, mut all_sent) = (false, true);
        for touched in protected.clone() {
            writes_protected = true;
            all_sent &= self.sent_for(&touches.timestamps, touched.path).is_some();
        }
        let mut pinned = self.pinned(update, |path| protected.clone().any(|touched| touched.path == path))?;
        // A $setOnInsert of protected fields does not change them in stored documents.
        let by_operators = writes_protected;
        if touches.timestamps.is_empty() && protected.clone().all(|touched| touched.operator == b"$setOnInsert") {
            writes_protected = false;
            for touched in protected.clone() {
                pinned.paths.push(utf8(touched.path)?.to_owned());
            }
        }
        if !writes_protected && pinned.paths.is_empty() {
            return Ok(Verdict::Forward);
        }
        // An upsert would insert the filter's equalities with a timestamp.
        if touches.resets {
            return Err(self.resets_beside_writes());
        }
        let needs_time = !all_sent || !pinned.paths.is_empty();
        let time = match needs_time {
            false => None,
            true => {
                // The filter's equalities are as old as the newest timestamp from the client.
                let sent = if all_sent { self.timestamp_type.newest(&touches.timestamps) } else { None };
                let found = self.source_time(context, sent, |path| set_value(&touches.paths, path));
                found.map_err(|rejection| if by_operators { rejection } else { without_time(&pinned, rejection) })?
            }
        };
        if !writes_protected {
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
        // The only timestamp is set already.
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
                    "as an upsert it could insert protected fields from its filter, and it can change many documents",
                    "Use updateOne.",
                )
            });
        }
        if let Some(obstacle) = changes.obstacle {
            return Ok(match update.multi {
                true => Verdict::Unsupported(obstacle),
                false => Verdict::procedure(OperatorsProcedure::new(self, &changes.protected, &on_insert)),
            });
        }
        let stage = Stage::new(&self.forms).update(writes.tree(), &changes.protected, &on_insert);
        let modification = pipeline_of(stage, &update.modification);
        Ok(Verdict::rewrite(remade(update, update.filter.clone(), modification, update.upsert)))
    }

    /// Returns the time that the client itself sets for a field.
    fn sent_for(&self, timestamps: &[FieldTimestamp<'_>], path: &[u8]) -> Option<Time> {
        let mut own =
            timestamps.iter().filter(|timestamp| self.per == Per::Document || timestamp.path.as_bytes() == path);
        own.next().map(|timestamp| timestamp.time)
    }

    /// Returns the paths that the operators touch, and the timestamps that they set. A statement may unset timestamps
    /// only if it does not write protected fields or timestamps.
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

    /// Returns the effect of the operators on each path, protected fields without their own time at `time`; or a
    /// verdict if an operator on a protected field is unsupported.
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
                "Write the protected fields in a separate statement.",
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
            let time = if protected { self.sent_for(&touches.timestamps, path).or(time) } else { None };
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
                    _ => return Err(Rejection::new("its increment is not a number", "Use a number.")),
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
        // mongod refuses to replace many documents and returns its own error.
        if update.multi {
            return Ok(Verdict::Forward);
        }
        if self.per == Per::Field {
            return Ok(Verdict::unsupported(
                "it replaces the whole document, but timestamps are stored per field",
                "Use updateOne with $set. (For the DBA: `per: document` protects replacements, and a `replacement` \
                 rule with `policy: merge` turns them into $set.)",
            ));
        }
        if let Some(field) = document.elements().find(|field| field.key.starts_with(b"$")) {
            let name = String::from_utf8_lossy(field.key);
            return Err(Rejection::new(format!("its field name '{name}' begins with $"), "Rename the field."));
        }
        self.pinned(update, |_| true)?;
        // The document may have been read with the timestamp, so the source has priority.
        let sent = match document.get(self.store.as_str()).filter(|sent| sent.kind != Kind::Null) {
            Some(value) if !self.has_time(context, |path| path.lookup(document)) => {
                Some(self.sent_time(context, &self.store, value)?)
            }
            _ => None,
        };
        let Some(time) = self.source_time(context, sent, |path| path.lookup(document))? else {
            return Ok(Verdict::Forward);
        };
        let stored = CowDocument::from_writer(self.timestamped_as_a_whole(document, time));
        let stage = Stage::new(&self.forms).replacement(stored.as_document(), time);
        let modification = pipeline_of(stage, &update.modification);
        Ok(Verdict::rewrite(remade(update, update.filter.clone(), modification, update.upsert)))
    }

    fn resets_beside_writes(&self) -> Rejection {
        Rejection::new(
            format!("it unsets timestamps in '{}' and writes protected fields in one statement", self.store),
            "Unset the timestamps in a separate statement.",
        )
    }

    fn across(&self, path: &[u8], register: &str) -> Rejection {
        let path = String::from_utf8_lossy(path);
        let hint = match self.fields {
            Fields::All => format!(
                "Write '{register}' as a whole. (For the DBA: list '{path}' under `fields` to give it \
                 its own timestamp.)"
            ),
            Fields::Listed(_) => format!("Write '{register}' as a whole, with its own path."),
        };
        Rejection::new(format!("'{path}' overlaps the protected field '{register}', which has one timestamp"), hint)
    }
}

fn not_a_register_write<'a>(operator: &[u8], path: &[u8]) -> Verdict<'a> {
    let (operator, path) = (String::from_utf8_lossy(operator), String::from_utf8_lossy(path));
    Verdict::unsupported(
        format!("{operator} on the protected field '{path}' depends on the order of writes"),
        "Use $set with the value from the source.",
    )
}

fn not_in_a_pipeline(operator: &[u8], path: &[u8]) -> Rejection {
    let (operator, path) = (String::from_utf8_lossy(operator), String::from_utf8_lossy(path));
    Rejection::new(
        format!("{operator} on '{path}' cannot be combined with writes to protected fields of many documents"),
        "Send it as a separate statement, or update one document.",
    )
}

/// Returns a pipeline with this stage that replaces the client's modification.
fn pipeline_of<'a>(stage: CowDocument<'a>, meaning: &Modification<'a>) -> Modification<'a> {
    Modification::Pipeline(Box::new(Pipeline { stages: vec![stage], meaning: meaning.clone() }))
}

impl Touches<'_> {
    /// Checks that no path is named by two operators: the server refuses that even in a `$setOnInsert` without an
    /// upsert.
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

/// Returns the value that `$set` writes at `path`, by its own name or inside a field around it.
fn set_value<'u>(touches: &[Touched<'u>], path: &Path) -> Lookup<'u> {
    // If protected fields are only inserted, the time may be in $setOnInsert too.
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

/// Returns whether `$currentDate` sets a date: `{f: true}` or `{f: {$type: "date"}}`.
fn sets_a_date(value: Value<'_>) -> bool {
    let of_type = value.as_document().and_then(|spec| spec.get("$type")).and_then(Value::as_str);
    value.as_bool().is_some() || of_type == Some("date")
}

fn unsupported<'a>(reason: &str) -> Verdict<'a> {
    Verdict::unsupported(reason, "Write the protected fields with $set and plain paths, in a separate statement.")
}

/// Maximum parts of a path in a stage: each part nests six levels there, and servers accept 200 (`BSONDepth`).
const MAX_PARTS: usize = 25;

/// Returns a path that means the same in a pipeline as in an operator. A numeric part could be an array index.
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
        Rejection::new(format!("its path '{path}' is not valid UTF-8"), "Encode field names as UTF-8.")
    })
}

/// Returns a top-level name that can be a register.
fn field_name(key: &[u8]) -> Result<&str, Rejection> {
    let text = std::str::from_utf8(key).ok();
    text.filter(|name| !name.is_empty() && !name.starts_with('$') && !name.contains('.')).ok_or_else(|| {
        Rejection::new(
            format!("its field name '{}' cannot have a timestamp", String::from_utf8_lossy(key)),
            "Use a name that is not empty, does not begin with $ and has no dot.",
        )
    })
}
