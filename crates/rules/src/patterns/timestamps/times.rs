//! The time of a write: its source time, and the timestamps that the client sets itself.

use super::super::{Context, Rejection};
use super::Timestamps;
use super::pipeline::FieldTimestamp;
use super::settings::{TimeSource, TimestampBytes, TimestampScope, TimestampType, WithoutSource};
use crate::command::current_date_type;
use crate::document::{Document, Path, PathLookup, Value};
use crate::shell::to_iso;

impl Timestamps {
    /// Returns the write's source time, or else `sent`; `None` if there is neither and the rule allows that.
    pub(super) fn source_time<'v>(
        &self,
        context: &Context<'v>,
        sent: Option<TimestampBytes>,
        of_write: impl FnOnce(&Path) -> PathLookup<'v>,
    ) -> Result<Option<TimestampBytes>, Rejection> {
        match (self.source_value(context, of_write), self.without_source) {
            _ if matches!(self.source, TimeSource::Clock) => Ok(Some(self.timestamp_type.clock(context.now))),
            (PathLookup::Found(value), _) => self.accepted(context, value, || self.source_place()).map(Some),
            _ if sent.is_some() => Ok(sent),
            (_, WithoutSource::Clock) => Ok(Some(self.timestamp_type.clock(context.now))),
            (_, WithoutSource::Pass) => Ok(None),
            (_, WithoutSource::Reject) => Err(Rejection::new(
                format!("it writes protected fields without the source time in {}", self.source_place()),
                format!("Add {} as {}.", self.source_place(), self.timestamp_type.description()),
            )),
        }
    }

    /// Returns whether the source gives the time of the write.
    pub(super) fn has_time<'v>(&self, context: &Context<'v>, of_write: impl FnOnce(&Path) -> PathLookup<'v>) -> bool {
        matches!(self.source, TimeSource::Clock) || matches!(self.source_value(context, of_write), PathLookup::Found(_))
    }

    fn source_value<'v>(
        &self,
        context: &Context<'v>,
        of_write: impl FnOnce(&Path) -> PathLookup<'v>,
    ) -> PathLookup<'v> {
        match &self.source {
            TimeSource::Clock => PathLookup::Missing,
            TimeSource::Field(path) => of_write(path),
            TimeSource::Comment(path) => {
                let comment = context.comment.and_then(Value::as_document).unwrap_or(Document::EMPTY);
                path.lookup(comment)
            }
        }
    }

    fn source_place(&self) -> String {
        match &self.source {
            TimeSource::Clock => "the proxy's clock".to_owned(),
            TimeSource::Field(path) => format!("field '{path}'"),
            TimeSource::Comment(path) => format!("field '{path}' of the comment"),
        }
    }

    /// Returns a timestamp that the client sends itself, at `path` of the stored document.
    pub(super) fn sent_time(
        &self,
        context: &Context<'_>,
        path: &str,
        value: Value<'_>,
    ) -> Result<TimestampBytes, Rejection> {
        self.accepted(context, value, || format!("field '{path}'"))
    }

    /// Returns `value` as a timestamp: of the rule's type, and not too far ahead of the clock.
    fn accepted(
        &self,
        context: &Context<'_>,
        value: Value<'_>,
        field: impl Fn() -> String,
    ) -> Result<TimestampBytes, Rejection> {
        let Some(time) = self.timestamp_type.accept(value) else {
            return Err(Rejection::new(
                format!(
                    "its source time in {} has type {} and is not {}",
                    field(),
                    value.kind.name(),
                    self.timestamp_type.description()
                ),
                format!("Send it as {}.", self.timestamp_type.description()),
            ));
        };
        let Some(max_ahead) = self.max_ahead else { return Ok(time) };
        let milliseconds = self.timestamp_type.milliseconds(time);
        if milliseconds <= context.now.saturating_add(max_ahead) {
            return Ok(time);
        }
        Err(Rejection::new(
            format!(
                "its source time in {} is {}, more than `max_ahead` ahead of docward's clock, {}",
                field(),
                moment(milliseconds),
                moment(context.now)
            ),
            "Correct the clock of the source.",
        ))
    }

    /// Returns the timestamp that an operator writes inside the timestamps' field.
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
            TimestampScope::Document => Some(below).filter(|below| below.is_empty()),
            TimestampScope::Field => below.strip_prefix('.'),
        };
        let path = register.ok_or_else(|| match self.per {
            TimestampScope::Field => Rejection::new(
                format!("it replaces the whole of '{}', which would remove the timestamps of other fields", self.store),
                format!("Set the timestamp of each field with its path, such as '{}.FIELD'.", self.store),
            ),
            TimestampScope::Document => self.forged_timestamp(path),
        })?;
        let time = time.map_or_else(|| self.sent_time(context, text, value), Ok)?;
        Ok(FieldTimestamp { path, time })
    }

    /// Returns whether `$currentDate` sets a timestamp of the rule's type.
    fn is_clock(&self, value: Value<'_>) -> bool {
        match self.timestamp_type {
            TimestampType::Date => current_date_type(value) == Some("date"),
            TimestampType::Timestamp => current_date_type(value) == Some("timestamp"),
            TimestampType::Long => false,
        }
    }

    fn forged_timestamp(&self, path: &[u8]) -> Rejection {
        Rejection::new(
            format!("it writes '{}', which holds timestamps", String::from_utf8_lossy(path)),
            format!(
                "Set a timestamp together with its field, to the source time. Or $unset '{}' in a separate \
                 statement; the next write then applies.",
                self.store
            ),
        )
    }

    /// Checks that each timestamp belongs to one protected field that the same statement writes.
    pub(super) fn check_timestamps<'u>(
        &self,
        timestamps: &[FieldTimestamp<'_>],
        protected: impl Iterator<Item = &'u [u8]> + Clone,
    ) -> Result<(), Rejection> {
        for (index, FieldTimestamp { path, .. }) in timestamps.iter().enumerate() {
            let field = if path.is_empty() { self.store().to_owned() } else { format!("{}.{path}", self.store) };
            if timestamps.iter().take(index).any(|other| other.path == *path) {
                return Err(Rejection::new(format!("it sets the timestamp '{field}' twice"), "Set it once."));
            }
            let mut protected = protected.clone();
            let written = match self.per {
                TimestampScope::Document => protected.next().is_some(),
                TimestampScope::Field => protected.any(|written| written == path.as_bytes()),
            };
            if !written {
                return Err(Rejection::new(
                    format!("it sets the timestamp '{field}' without the protected field that it belongs to"),
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
