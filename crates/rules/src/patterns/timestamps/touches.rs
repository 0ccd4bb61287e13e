//! Updates by operators: the paths that they touch, and what they write there.

use super::pipeline::FieldTimestamp;
use super::registers::{TouchedKind, decides};
use super::settings::{TimestampBytes, TimestampScope, Timestamps};
use super::writes::{NewValue, PathChange, PathWrite, WriteList};
use crate::command::{Update, current_date_type};
use crate::document::{Document, Kind, Path, PathLookup, Value, is_at_or_below};
use crate::effect::touched;
use crate::patterns::plain::NotPlain;
use crate::patterns::{Context, Rejection};

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
    /// A part that a pipeline would drop or cannot express.
    pub(super) odd: Option<NotPlain>,
}

/// The effect of an update's operators, path by path.
pub(super) struct OperatorChanges<'u> {
    pub(super) writes: WriteList<'u>,
    /// The protected paths among them, in the client's order.
    pub(super) protected: Vec<FieldTimestamp<'u>>,
    /// The part that a pipeline cannot express.
    pub(super) obstacle: Option<NotPlain>,
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
        let is_idle = |operator: &[u8]| operator == b"$setOnInsert" && !update.upsert;
        let is_odd = |operator: &[u8]| is_idle(operator) || !IN_PIPELINES.contains(&operator);
        let odd = operators.elements().find(|operator| is_odd(operator.key)).map(|operator| beside(operator.key));
        let mut touches = Touches { resets: false, paths: Vec::with_capacity(8), timestamps: Vec::new(), odd };
        for (operator, path, value) in touched(operators).filter(|(operator, ..)| !is_idle(operator)) {
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

    /// Returns the effect of the operators on each path, protected fields without their own time at `time`.
    ///
    /// # Errors
    /// What an operator does to a protected field depends on the stored value.
    pub(super) fn changes<'u>(
        &self,
        update: &Update<'_>,
        touches: &Touches<'u>,
        time: Option<TimestampBytes>,
    ) -> Result<OperatorChanges<'u>, Rejection> {
        let count = touches.paths.len();
        let mut changes = OperatorChanges {
            writes: Vec::with_capacity(count),
            protected: Vec::with_capacity(count),
            obstacle: touches.odd.clone(),
        };
        if update.array_filters {
            changes.obstacle = Some("it writes protected fields, and has arrayFilters".to_owned());
        }
        for TouchedPath { operator, path, value, protected } in touches.paths.iter().copied() {
            if may_change_id(operator, path, value) {
                changes.obstacle.get_or_insert_with(|| beside(operator));
            }
            let text = utf8(path)?;
            changes.obstacle = changes.obstacle.or_else(|| odd_path(text));
            let time = if protected { self.sent_for(&touches.timestamps, path).or(time) } else { None };
            let put = |put| match time {
                Some(time) => PathChange::ProtectedPut(put, time),
                None => PathChange::Put(put),
            };
            let change = match operator {
                b"$set" => put(NewValue::Value(value)),
                b"$unset" => put(NewValue::Nothing),
                b"$currentDate" if current_date_type(value) == Some("date") => put(NewValue::Now),
                b"$setOnInsert" => {
                    changes.obstacle.get_or_insert_with(|| beside(operator));
                    continue;
                }
                _ if protected => return Err(not_a_register_write(operator, path)),
                b"$inc" => PathChange::Add(value),
                _ => {
                    changes.obstacle.get_or_insert_with(|| beside(operator));
                    continue;
                }
            };
            if let Some(time) = time {
                changes.protected.push(FieldTimestamp { path: text, time });
            }
            changes.writes.push(PathWrite { path: text, change });
        }
        Ok(changes)
    }
}

/// The operators of which docward makes a stage.
const IN_PIPELINES: [&[u8]; 5] = [b"$set", b"$unset", b"$inc", b"$currentDate", b"$setOnInsert"];

/// The part of a statement with this operator, for which no stage is written.
fn beside(operator: &[u8]) -> NotPlain {
    format!("it has {} beside writes to protected fields", String::from_utf8_lossy(operator))
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

fn not_a_register_write(operator: &[u8], path: &[u8]) -> Rejection {
    let (operator, path) = (String::from_utf8_lossy(operator), String::from_utf8_lossy(path));
    Rejection::new(
        format!("{operator} on the protected field '{path}' depends on the order of writes"),
        "Use $set with the value from the source.",
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

/// Returns why a path may have another meaning in a pipeline than in an operator. A numeric part could be an array index.
fn odd_path(path: &str) -> Option<NotPlain> {
    let is_position = |part: &[u8]| part.starts_with(b"$") || part.iter().all(u8::is_ascii_digit);
    let (mut parts, mut has_position) = (0, false);
    for part in path.as_bytes().split(|byte| *byte == b'.') {
        parts += 1;
        has_position |= is_position(part);
    }
    if parts > MAX_PARTS {
        return Some(format!("a path in it has more than {MAX_PARTS} parts"));
    }
    has_position.then(|| format!("its path '{path}' has a positional or numeric part"))
}

/// The path as text.
pub(super) fn utf8(path: &[u8]) -> Result<&str, Rejection> {
    std::str::from_utf8(path).map_err(|_| {
        let path = String::from_utf8_lossy(path);
        Rejection::new(format!("its path '{path}' is not valid UTF-8"), "Encode field names as UTF-8.")
    })
}
