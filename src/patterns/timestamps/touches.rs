//! Updates by operators: the paths that they touch, and what they write there.

use super::pipeline::FieldTimestamp;
use super::registers::{TouchedKind, decides};
use super::settings::{TimestampBytes, TimestampScope, Timestamps};
use super::writes::{NewValue, PathChange, PathWrite, WriteList};
use crate::command::{Update, current_date_type};
use crate::document::{Document, Kind, Path, PathLookup, Value, is_at_or_below, paths_overlap};
use crate::effect::touched;
use crate::patterns::{Context, Rejection, Verdict};

/// A path that an operator touches with a value.
#[derive(Clone, Copy)]
pub(super) struct TouchedPath<'u> {
    pub(super) operator: &'u [u8],
    pub(super) path: &'u [u8],
    pub(super) value: Value<'u>,
    pub(super) protected: bool,
}

/// What the operators of an update touch.
pub(super) struct Touches<'u> {
    /// Whether timestamps are unset.
    pub(super) resets: bool,
    pub(super) paths: Vec<TouchedPath<'u>>,
    /// The timestamps that the update sets itself.
    pub(super) timestamps: Vec<FieldTimestamp<'u>>,
    /// Why the server may reject the update for a part that changes nothing: a `$setOnInsert` without an upsert, or an
    /// operator without fields. A pipeline would drop it.
    pub(super) idle: Option<Rejection>,
}

/// The effect of an update's operators, path by path.
pub(super) struct OperatorChanges<'u> {
    pub(super) writes: WriteList<'u>,
    /// The protected paths among them, in the client's order.
    pub(super) protected: Vec<FieldTimestamp<'u>>,
    /// Why a pipeline cannot express the update.
    pub(super) obstacle: Option<Rejection>,
}

impl Timestamps {
    /// Returns the time that the client itself sets for a field.
    pub(super) fn sent_for(&self, timestamps: &[FieldTimestamp<'_>], path: &[u8]) -> Option<TimestampBytes> {
        let mut own = timestamps
            .iter()
            .filter(|timestamp| self.per == TimestampScope::Document || timestamp.path.as_bytes() == path);
        own.next().map(|timestamp| timestamp.time)
    }

    /// Returns the paths that the operators touch, and the timestamps that they set. A statement may unset timestamps
    /// only if it does not write protected fields or timestamps.
    pub(super) fn touches<'u>(
        &self,
        update: &Update<'_>,
        operators: Document<'u>,
        context: &Context<'_>,
    ) -> Result<Touches<'u>, Rejection> {
        let idle = operators.elements().find(|operator| !is_known(operator.key)).map(|operator| unknown(operator.key));
        let mut touches = Touches { resets: false, paths: Vec::with_capacity(8), timestamps: Vec::new(), idle };
        for (operator, path, value) in touched(operators) {
            if operator == b"$setOnInsert" && !update.upsert {
                touches.idle = touches.idle.or_else(|| named_twice(operators, path)).or_else(|| updatable(path).err());
                continue;
            }
            let protected = match self.reach(path) {
                TouchedKind::Free => false,
                TouchedKind::Protected | TouchedKind::Across(_) if decides(context, path) => false,
                TouchedKind::Protected => {
                    self.check_deciding(context, path)?;
                    true
                }
                TouchedKind::Store if operator == b"$unset" => {
                    touches.resets = true;
                    continue;
                }
                TouchedKind::Store => {
                    touches.timestamps.push(self.written_timestamp(context, operator, path, value)?);
                    continue;
                }
                TouchedKind::Across(register) => return Err(self.across(path, &register)),
            };
            touches.paths.push(TouchedPath { operator, path, value, protected });
        }
        if touches.resets && (!touches.timestamps.is_empty() || touches.paths.iter().any(|touched| touched.protected)) {
            return Err(self.resets_beside_writes());
        }
        Ok(touches)
    }

    /// Returns the effect of the operators on each path, protected fields without their own time at `time`; or a
    /// verdict if an operator on a protected field is unsupported.
    pub(super) fn changes<'u, 'a>(
        &self,
        update: &Update<'a>,
        touches: &Touches<'u>,
        time: Option<TimestampBytes>,
    ) -> Result<Result<OperatorChanges<'u>, Verdict<'a>>, Rejection> {
        let count = touches.paths.len();
        let mut changes = OperatorChanges {
            writes: Vec::with_capacity(count),
            protected: Vec::with_capacity(count),
            obstacle: touches.idle.clone(),
        };
        if update.array_filters {
            changes.obstacle = Some(Rejection::new(
                "it writes protected fields of many documents, and has arrayFilters",
                "Write the protected fields in a separate statement.",
            ));
        }
        for TouchedPath { operator, path, value, protected } in touches.paths.iter().copied() {
            if may_change_id(operator, path, value) {
                changes.obstacle.get_or_insert_with(|| not_in_a_pipeline(operator, path));
            }
            let text = match updatable(path) {
                Ok(text) => text,
                Err(obstacle) => {
                    changes.obstacle.get_or_insert(obstacle);
                    utf8(path)?
                }
            };
            let time = if protected { self.sent_for(&touches.timestamps, path).or(time) } else { None };
            let put = |put| match time {
                Some(time) => PathChange::ProtectedPut(put, time),
                None => PathChange::Put(put),
            };
            let change = match operator {
                b"$set" => put(NewValue::Value(value)),
                b"$unset" => put(NewValue::Nothing),
                b"$currentDate" if current_date_type(value) == Some("date") => put(NewValue::Now),
                _ if protected => return Ok(Err(not_a_register_write(operator, path))),
                b"$inc" => PathChange::Add(value),
                other => {
                    changes.obstacle.get_or_insert_with(|| not_in_a_pipeline(other, path));
                    PathChange::Put(NewValue::Nothing)
                }
            };
            if let Some(time) = time {
                changes.protected.push(FieldTimestamp { path: text, time });
            }
            changes.writes.push(PathWrite { path: text, change });
        }
        Ok(Ok(changes))
    }
}

/// Returns whether it is an operator of the servers that docward supports.
fn is_known(operator: &[u8]) -> bool {
    matches!(
        operator,
        b"$set"
            | b"$unset"
            | b"$setOnInsert"
            | b"$inc"
            | b"$mul"
            | b"$min"
            | b"$max"
            | b"$bit"
            | b"$rename"
            | b"$currentDate"
            | b"$push"
            | b"$addToSet"
            | b"$pull"
            | b"$pullAll"
            | b"$pop"
    )
}

fn unknown(operator: &[u8]) -> Rejection {
    Rejection::new(
        format!("docward does not know its operator {}", String::from_utf8_lossy(operator)),
        "Write the protected fields in a separate statement.",
    )
}

/// Returns why the server rejects an update in which another operator names this path, or a path around or inside it.
fn named_twice(operators: Document<'_>, path: &[u8]) -> Option<Rejection> {
    let names = touched(operators).filter(|(_, other, _)| paths_overlap(other, path)).count();
    (names > 1).then(|| {
        Rejection::new(
            format!("it writes '{}' twice, or writes a field inside it too", String::from_utf8_lossy(path)),
            "Write each path once.",
        )
    })
}

/// Returns the value that `$set` writes at `path`, by its own name or inside a field around it.
pub(super) fn set_value<'u>(touches: &[TouchedPath<'u>], path: &Path) -> PathLookup<'u> {
    // If protected fields are only inserted, the time may be in $setOnInsert too.
    let only_inserts =
        touches.iter().filter(|touched| touched.protected).all(|touched| touched.operator == b"$setOnInsert");
    let sets = |operator: &[u8]| operator == b"$set" || only_inserts && operator == b"$setOnInsert";
    for field in touches.iter().filter(|touched| sets(touched.operator)) {
        let Some(below) = path.as_str().as_bytes().strip_prefix(field.path) else { continue };
        if below.is_empty() {
            return PathLookup::Found(field.value);
        }
        if let (Some(below), Some(nested)) = (path.below(field.path), field.value.as_document()) {
            return below.lookup(nested);
        }
    }
    PathLookup::Missing
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

/// Returns whether the server could reject the operator for its change of `_id`, and accept it in a pipeline: there the
/// `_id` may become an equal value of another type, and is not removed.
fn may_change_id(operator: &[u8], path: &[u8], value: Value<'_>) -> bool {
    let has_one_type =
        matches!(value.kind, Kind::ObjectId | Kind::String | Kind::Binary | Kind::DateTime | Kind::Boolean);
    is_at_or_below(path, b"_id") && !(operator == b"$set" && path == b"_id" && has_one_type)
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

/// The path as text.
pub(super) fn utf8(path: &[u8]) -> Result<&str, Rejection> {
    std::str::from_utf8(path).map_err(|_| {
        let path = String::from_utf8_lossy(path);
        Rejection::new(format!("its path '{path}' is not valid UTF-8"), "Encode field names as UTF-8.")
    })
}
