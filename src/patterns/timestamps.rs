//! `timestamps`: the last writer by the source's own time wins, whatever order the writes arrive in.
//!
//! A device sends its state; a queue redelivers, a retry overtakes, and an old reading lands on a newer one.
//! Every guarded field is a last-writer-wins register: its stamp lives under `store`, and an update becomes a
//! pipeline that sets field and stamp only where the stamp is not newer.
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
mod pipeline;
mod settings;
mod writes;

use std::ops::ControlFlow;

use super::filter::remade;
use super::{CommandVerdict, Concern, Context, Judge, Phase, Rejection, Verdict, WholeCommand, concern_for_content};
use crate::command::{Class, Insert, Modification, Namespace, Operation, Pipeline, Statement, StatementKind, Update};
use crate::document::{CowDocument, Document, Kind, Lookup, OwnedValue, Path, Value, edit};
use crate::effect::{Touch, touch, touched};
use crate::rules::Laxity;
use pipeline::Stage;
pub use settings::Timestamps;
use settings::{Fields, Missing, Per, Source};
use writes::{Change, Put, Write, WriteList, Writes};

/// How a touched path relates to the guarded ones.
enum Reach {
    /// It is a register.
    Guarded,
    /// It touches none.
    Free,
    /// It is the stamps' own field, or inside it.
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
    guarded: bool,
}

impl Judge for Timestamps {
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

    fn laxities(&self) -> Vec<Laxity> {
        let passes = Laxity { what: "lets writes without a source time pass", setting: "missing" };
        let some = Laxity { what: "guards some of the fields only", setting: "fields" };
        let passing = (self.missing == Missing::Pass).then_some(passes);
        passing.into_iter().chain(matches!(self.fields, Fields::Listed(_)).then_some(some)).collect()
    }

    fn concern(&self, kind: StatementKind, _: Namespace<'_>) -> Concern {
        concern_for_content(kind)
    }

    fn judge<'a>(&self, statement: &Statement<'a>, context: &Context<'_>) -> Verdict<'a> {
        let judged = match &statement.operation {
            Operation::Insert(insert) => self.insert(insert, context),
            Operation::Delete(_) => Ok(Verdict::Forward),
            Operation::Update(update) => match &update.modification {
                Modification::Operators(operators) => self.update(update, operators.as_document(), context),
                Modification::Replacement(document) => self.replacement(update, document.as_document(), context),
                Modification::ClientPipeline(_) | Modification::Pipeline(_) => Ok(Verdict::client_pipeline()),
            },
        };
        judged.unwrap_or_else(Verdict::Reject)
    }

    fn looks_at_comment(&self) -> bool {
        matches!(self.source, Source::Comment(_))
    }

    fn judges_command(&self, class: Class, _: Option<StatementKind>) -> bool {
        self.hide && matches!(class, Class::Find | Class::FindAndModify | Class::Aggregate)
    }

    /// Keeps the stamps out of reads that do not ask for them.
    fn judge_command(&self, command: &WholeCommand<'_>) -> CommandVerdict {
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
    /// The top-level field that holds the stamps.
    pub fn store(&self) -> &str {
        &self.store
    }

    /// An inserted document gets stamps for what it holds; stamps it brings along were read, and are not kept.
    fn insert<'a>(&self, insert: &Insert<'a>, context: &Context<'_>) -> Result<Verdict<'a>, Rejection> {
        let document = insert.document.as_document();
        let Some(time) = self.source_time(context, |path| path.lookup(document))? else { return Ok(Verdict::Forward) };
        let document = CowDocument::from_writer(self.stamped(document, &time)?);
        Ok(Verdict::rewrite(Operation::Insert(Insert { document })))
    }

    /// `document` with its stamps, all of them `time`.
    fn stamped(&self, document: Document<'_>, time: &OwnedValue) -> Result<Vec<u8>, Rejection> {
        let kept = edit::without(document, &self.store);
        let kept = CowDocument::from_writer(kept);
        let kept = kept.as_document();
        if self.per == Per::Document {
            return Ok(edit::append(kept, |w| w.value(&self.store, time.as_value())));
        }
        let stamp = |path| Write { path, change: Change::Put(Put::Value(time.as_value())) };
        let stamps = match &self.fields {
            Fields::All => {
                let fields = kept.elements().filter(|field| field.key != b"_id");
                Writes::new(
                    fields.map(|field| field_name(field.key).map(stamp)).collect::<Result<WriteList<'_>, _>>()?,
                )?
            }
            Fields::Listed(_) => {
                let found = self.registers().filter(|path| matches!(path.lookup(kept), Lookup::Found(_)));
                Writes::new(found.map(|path| stamp(path.as_str())).collect())?
            }
        };
        Ok(edit::append(kept, |w| w.nested(&self.store, |w| stamps.tree().write_values(w))))
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
            Fields::All => Reach::Guarded,
            Fields::Listed(_) => {
                let reached = self.registers().map(|register| (register, touch(register, path)));
                match reached.into_iter().find(|(_, touch)| *touch != Touch::Apart) {
                    None => Reach::Free,
                    Some((_, Touch::Exact)) => Reach::Guarded,
                    // One stamp for the whole document: parts of a field are as well guarded as the field.
                    Some(_) if self.per == Per::Document => Reach::Guarded,
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
        let touches = self.touches(operators)?;
        if !touches.iter().any(|touched| touched.guarded) {
            return Ok(Verdict::Forward);
        }
        let Some(time) = self.source_time(context, |path| set_value(&touches, path))? else {
            return Ok(Verdict::Forward);
        };
        if update.array_filters {
            return Ok(unguardable("it uses arrayFilters"));
        }
        let changes = match self.changes(update, &touches)? {
            ControlFlow::Continue(changes) => changes,
            ControlFlow::Break(verdict) => return Ok(verdict),
        };
        // In the client's order, as its stamps come.
        let mut guarded = Vec::with_capacity(changes.len());
        guarded.extend(changes.iter().filter(|write| write.is_guarded()).map(|write| write.path));
        // `$setOnInsert` without an upsert changes nothing.
        if guarded.is_empty() {
            return Ok(Verdict::Forward);
        }
        let writes = Writes::new(changes)?;
        let stage = Stage::new(&self.forms, time.as_value()).update(writes.tree(), &guarded);
        let modification = pipeline_of(stage, &update.modification);
        Ok(Verdict::rewrite(remade(update, update.filter.clone(), modification, update.upsert)))
    }

    /// The paths that the operators touch, but for stamps that are unset by themselves.
    fn touches<'u>(&self, operators: Document<'u>) -> Result<Vec<Touched<'u>>, Rejection> {
        let mut resets = false;
        let mut touches = Vec::with_capacity(8);
        for (operator, path, value) in touched(operators) {
            let guarded = match self.reach(path) {
                Reach::Free => false,
                Reach::Guarded => true,
                Reach::Store if operator == b"$unset" => {
                    resets = true;
                    continue;
                }
                Reach::Store => return Err(self.forged_stamp(path)),
                Reach::Across(register) => return Err(self.across(path, &register)),
            };
            touches.push(Touched { operator, path, value, guarded });
        }
        if resets && touches.iter().any(|touched| touched.guarded) {
            return Err(Rejection::new(
                format!("it unsets stamps in '{}' and writes guarded fields at once", self.store),
                "Unset the stamps in a statement of its own.",
            ));
        }
        Ok(touches)
    }

    /// What the operators do to each path; a verdict where one of them cannot be told as such.
    fn changes<'u, 'a>(
        &self,
        update: &Update<'a>,
        touches: &[Touched<'u>],
    ) -> Result<ControlFlow<Verdict<'a>, WriteList<'u>>, Rejection> {
        let mut changes = Vec::with_capacity(touches.len());
        for Touched { operator, path, value, guarded } in touches.iter().copied() {
            let put = |put| if guarded { Change::GuardedPut(put) } else { Change::Put(put) };
            let change = match operator {
                b"$set" => put(Put::Value(value)),
                b"$unset" => put(Put::Nothing),
                b"$currentDate" if sets_a_date(value) => put(Put::Now),
                b"$setOnInsert" if !update.upsert => continue,
                b"$inc" if !guarded => match value.kind {
                    Kind::Int32 | Kind::Int64 | Kind::Double | Kind::Decimal128 => Change::Add(value),
                    _ => return Err(Rejection::new("it increments by something that is no number", "Use a number.")),
                },
                other => return Ok(ControlFlow::Break(self.not_a_register_write(other, path))),
            };
            changes.push(Write { path: updatable(path)?, change });
        }
        Ok(ControlFlow::Continue(changes))
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
            return Ok(Verdict::unguardable(
                "it replaces the whole document, and stamps are kept per field",
                "Use updateOne with $set. (For the DBA: `per: document` guards replacements, and a `replacement` \
                 rule with `unguarded: merge` turns them into $set.)",
            ));
        }
        if let Some(field) = document.elements().find(|field| field.key.starts_with(b"$")) {
            let name = String::from_utf8_lossy(field.key);
            return Err(Rejection::new(format!("its field name '{name}' begins with $"), "Rename the field."));
        }
        let Some(time) = self.source_time(context, |path| path.lookup(document))? else { return Ok(Verdict::Forward) };
        let stored = CowDocument::from_writer(self.stamped(document, &time)?);
        let stage = Stage::new(&self.forms, time.as_value()).replacement(stored.as_document());
        let modification = pipeline_of(stage, &update.modification);
        Ok(Verdict::rewrite(remade(update, update.filter.clone(), modification, update.upsert)))
    }

    /// The write's own time; `None` when it has none and passes unguarded.
    fn source_time<'v>(
        &self,
        context: &Context<'v>,
        of_write: impl FnOnce(&Path) -> Lookup<'v>,
    ) -> Result<Option<OwnedValue>, Rejection> {
        let found = match &self.source {
            Source::Clock => return Ok(Some(self.stamp_type.clock(context.now))),
            Source::Field(path) => of_write(path),
            Source::Comment(path) => {
                let comment = context.comment.and_then(Value::as_document).unwrap_or(Document::EMPTY);
                path.lookup(comment)
            }
        };
        let place = || match &self.source {
            Source::Clock => "the proxy's clock".to_owned(),
            Source::Field(path) => format!("field '{path}'"),
            Source::Comment(path) => format!("field '{path}' of the comment"),
        };
        match (found, self.missing) {
            (Lookup::Found(value), _) => self.stamp_type.accept(value).map(Some).ok_or_else(|| {
                Rejection::new(
                    format!("its source time, {}, is of type {}", place(), value.kind.name()),
                    format!("Send it as {}.", self.stamp_type.wanted()),
                )
            }),
            (Lookup::Missing | Lookup::Blocked(_), Missing::Clock) => Ok(Some(self.stamp_type.clock(context.now))),
            (Lookup::Missing | Lookup::Blocked(_), Missing::Pass) => Ok(None),
            (Lookup::Missing | Lookup::Blocked(_), Missing::Reject) => Err(Rejection::new(
                format!("it writes guarded fields without its source time, {}", place()),
                format!("Send {} along, as {}.", place(), self.stamp_type.wanted()),
            )),
        }
    }

    fn forged_stamp(&self, path: &[u8]) -> Rejection {
        Rejection::new(
            format!("it writes '{}', where the stamps are kept", String::from_utf8_lossy(path)),
            format!("Leave '{}' out; only $unset is allowed, which lets the next write win.", self.store),
        )
    }

    fn across(&self, path: &[u8], register: &str) -> Rejection {
        let path = String::from_utf8_lossy(path);
        let hint = match self.fields {
            Fields::All => format!(
                "Write '{register}' as a whole. (For the DBA: list '{path}' under `fields` to give it a stamp of its own.)"
            ),
            Fields::Listed(_) => format!("Write '{register}' as a whole, and by its own path."),
        };
        Rejection::new(format!("'{path}' overlaps the guarded field '{register}', which has one stamp"), hint)
    }

    fn not_a_register_write<'a>(&self, operator: &[u8], path: &[u8]) -> Verdict<'a> {
        let (operator, path) = (String::from_utf8_lossy(operator), String::from_utf8_lossy(path));
        match self.reach(path.as_bytes()) {
            Reach::Guarded => Verdict::unguardable(
                format!("{operator} on the guarded field '{path}' depends on the order of writes"),
                "Use $set with the value the source has.",
            ),
            _ => Verdict::unguardable(
                format!("{operator} on '{path}' cannot be combined with writes to guarded fields"),
                "Send it as a statement of its own.",
            ),
        }
    }
}

/// A pipeline that stands for what the client wrote.
fn pipeline_of<'a>(stage: CowDocument<'a>, meaning: &Modification<'a>) -> Modification<'a> {
    Modification::Pipeline(Box::new(Pipeline { stages: vec![stage], meaning: meaning.clone() }))
}

/// What `$set` writes at `path`, by its own name or inside a field around it.
fn set_value<'u>(touches: &[Touched<'u>], path: &Path) -> Lookup<'u> {
    for field in touches.iter().filter(|touched| touched.operator == b"$set") {
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

fn unguardable<'a>(reason: &str) -> Verdict<'a> {
    Verdict::unguardable(reason, "Write the guarded fields by plain paths with $set, in a statement of their own.")
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
            "Write the object around it, or write this path in a statement without guarded fields.",
        ));
    }
    let text = std::str::from_utf8(path).ok().filter(|_| plain);
    text.ok_or_else(|| {
        Rejection::new(
            format!("its path '{}' has a positional or numeric part", String::from_utf8_lossy(path)),
            "Write the whole array or object, or write this path in a statement without guarded fields.",
        )
    })
}

/// A top-level name that can be a register of its own.
fn field_name(key: &[u8]) -> Result<&str, Rejection> {
    let text = std::str::from_utf8(key).ok();
    text.filter(|name| !name.is_empty() && !name.starts_with('$') && !name.contains('.')).ok_or_else(|| {
        Rejection::new(
            format!("its field name '{}' cannot be stamped", String::from_utf8_lossy(key)),
            "Use a name that is not empty, does not begin with $ and has no dot.",
        )
    })
}
