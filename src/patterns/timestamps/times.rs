//! When a write happened: its source time, and the timestamps that it brings along.

use super::super::{Context, Rejection};
use super::Timestamps;
use super::pipeline::FieldTimestamp;
use super::settings::{Per, Source, Time, TimestampType, WithoutSource};
use crate::document::{Document, Lookup, Path, Value};
use crate::shell::to_iso;

impl Timestamps {
    /// The write's own time, or else `brought`; `None` when it has none and passes without a timestamp.
    pub(super) fn source_time<'v>(
        &self,
        context: &Context<'v>,
        brought: Option<Time>,
        of_write: impl FnOnce(&Path) -> Lookup<'v>,
    ) -> Result<Option<Time>, Rejection> {
        match (self.source_value(context, of_write), self.without_source) {
            _ if matches!(self.source, Source::Clock) => Ok(Some(self.timestamp_type.clock(context.now))),
            (Lookup::Found(value), _) => self.accepted(context, value, || self.source_place()).map(Some),
            _ if brought.is_some() => Ok(brought),
            (_, WithoutSource::Clock) => Ok(Some(self.timestamp_type.clock(context.now))),
            (_, WithoutSource::Pass) => Ok(None),
            (_, WithoutSource::Reject) => Err(Rejection::new(
                format!("it writes protected fields without its source time, {}", self.source_place()),
                format!("Send {} along, as {}.", self.source_place(), self.timestamp_type.wanted()),
            )),
        }
    }

    /// Whether the source says when the write happened.
    pub(super) fn tells_time<'v>(&self, context: &Context<'v>, of_write: impl FnOnce(&Path) -> Lookup<'v>) -> bool {
        matches!(self.source, Source::Clock) || matches!(self.source_value(context, of_write), Lookup::Found(_))
    }

    fn source_value<'v>(&self, context: &Context<'v>, of_write: impl FnOnce(&Path) -> Lookup<'v>) -> Lookup<'v> {
        match &self.source {
            Source::Clock => Lookup::Missing,
            Source::Field(path) => of_write(path),
            Source::Comment(path) => {
                let comment = context.comment.and_then(Value::as_document).unwrap_or(Document::EMPTY);
                path.lookup(comment)
            }
        }
    }

    fn source_place(&self) -> String {
        match &self.source {
            Source::Clock => "the proxy's clock".to_owned(),
            Source::Field(path) => format!("field '{path}'"),
            Source::Comment(path) => format!("field '{path}' of the comment"),
        }
    }

    /// A timestamp that the client sends itself, at `path` of the stored document.
    pub(super) fn brought(&self, context: &Context<'_>, path: &str, value: Value<'_>) -> Result<Time, Rejection> {
        self.accepted(context, value, || format!("field '{path}'"))
    }

    /// `value` as a timestamp: of the rule's type, and not too far ahead of the clock.
    fn accepted(&self, context: &Context<'_>, value: Value<'_>, place: impl Fn() -> String) -> Result<Time, Rejection> {
        let Some(time) = self.timestamp_type.accept(value) else {
            return Err(Rejection::new(
                format!("its source time, {}, is of type {}", place(), value.kind.name()),
                format!("Send it as {}.", self.timestamp_type.wanted()),
            ));
        };
        let Some(max_ahead) = self.max_ahead else { return Ok(time) };
        let milliseconds = self.timestamp_type.milliseconds(time);
        if milliseconds <= context.now.saturating_add(max_ahead) {
            return Ok(time);
        }
        Err(Rejection::new(
            format!(
                "its source time, {}, is {}: more than `max_ahead` ahead of docward's clock, {}",
                place(),
                moment(milliseconds),
                moment(context.now)
            ),
            "Set the clock of the source right.",
        ))
    }

    /// The timestamp that an operator writes inside the timestamps' field.
    pub(super) fn written_timestamp<'u>(
        &self,
        context: &Context<'_>,
        operator: &[u8],
        path: &'u [u8],
        value: Value<'_>,
    ) -> Result<FieldTimestamp<'u>, Rejection> {
        let time = match operator {
            b"$set" => None,
            b"$currentDate" if self.is_clock(value) => Some(self.timestamp_type.clock(context.now)),
            _ => return Err(self.forged_timestamp(path)),
        };
        let text = std::str::from_utf8(path).map_err(|_| self.forged_timestamp(path))?;
        let below = text.strip_prefix(self.store.as_str()).unwrap_or_default();
        let register = match self.per {
            Per::Document => Some(below).filter(|below| below.is_empty()),
            Per::Field => below.strip_prefix('.'),
        };
        let path = register.ok_or_else(|| match self.per {
            Per::Field => Rejection::new(
                format!("it sets '{}' as a whole, and would erase the timestamps of other fields", self.store),
                format!("Set the timestamp of each field by its path, such as '{}.FIELD'.", self.store),
            ),
            Per::Document => self.forged_timestamp(path),
        })?;
        let time = time.map_or_else(|| self.brought(context, text, value), Ok)?;
        Ok(FieldTimestamp { path, time })
    }

    /// Whether `$currentDate` gives a timestamp of the rule's type.
    fn is_clock(&self, value: Value<'_>) -> bool {
        match self.timestamp_type {
            TimestampType::Date => super::sets_a_date(value),
            TimestampType::Timestamp => {
                value.as_document().and_then(|spec| spec.get("$type")).and_then(Value::as_str) == Some("timestamp")
            }
            TimestampType::Long => false,
        }
    }

    fn forged_timestamp(&self, path: &[u8]) -> Rejection {
        Rejection::new(
            format!("it writes '{}', where the timestamps are kept", String::from_utf8_lossy(path)),
            format!(
                "Set a timestamp together with its field, to the time at the source; or $unset '{}' in a statement of its \
                 own, which lets the next write win.",
                self.store
            ),
        )
    }

    /// Each timestamp belongs to one protected field that the same statement writes.
    pub(super) fn check_timestamps<'u>(
        &self,
        timestamps: &[FieldTimestamp<'_>],
        protected: impl Iterator<Item = &'u [u8]> + Clone,
    ) -> Result<(), Rejection> {
        for (index, FieldTimestamp { path, .. }) in timestamps.iter().enumerate() {
            let place = if path.is_empty() { self.store.clone() } else { format!("{}.{path}", self.store) };
            let (before, _) = timestamps.split_at_checked(index).unwrap_or_default();
            if before.iter().any(|other| other.path == *path) {
                return Err(Rejection::new(format!("it sets the timestamp '{place}' twice"), "Set it once."));
            }
            let mut protected = protected.clone();
            let written = match self.per {
                Per::Document => protected.next().is_some(),
                Per::Field => protected.any(|written| written == path.as_bytes()),
            };
            if !written {
                return Err(Rejection::new(
                    format!("it sets the timestamp '{place}', and writes no protected field that it belongs to"),
                    "Write a timestamp only together with its field.",
                ));
            }
        }
        Ok(())
    }
}

fn moment(milliseconds: i64) -> String {
    to_iso(milliseconds).unwrap_or_else(|| format!("{milliseconds} ms after 1970"))
}
