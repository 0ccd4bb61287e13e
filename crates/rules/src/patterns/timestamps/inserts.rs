//! Inserts: adds timestamps to documents.

use super::pipeline::FieldTimestamp;
use super::registers::decides;
use super::settings::{TimestampBytes, TimestampScope, TimestampedFields, Timestamps};
use super::writes::{NewValue, PathChange, PathWrite, PathWrites};
use crate::command::{Insert, Operation};
use crate::document::{CowDocument, Document, Kind, Path, PathLookup, Value, edit};
use crate::patterns::{Context, Rejection, Verdict};

impl Timestamps {
    /// Evaluates an insert: adds timestamps for the fields of the document. Timestamps in the document are the times of
    /// their fields.
    pub(super) fn insert<'a>(&self, insert: &Insert<'a>, context: &Context<'_>) -> Result<Verdict<'a>, Rejection> {
        let document = insert.document.as_document();
        let sent = document.get(self.store.as_str()).filter(|sent| sent.kind != Kind::Null);
        let timestamped = match self.per {
            TimestampScope::Document => {
                let sent = sent.map(|value| self.sent_time(context, self.store(), value)).transpose()?;
                let time = match sent {
                    Some(time) => Some(time),
                    None => self.source_time(context, None, |path| path.lookup(document))?,
                };
                time.map(|time| self.timestamped_as_a_whole(document, time))
            }
            TimestampScope::Field => self.timestamped_by_field(document, sent, context)?,
        };
        Ok(match timestamped {
            // The client sent the timestamps that the rule would add.
            Some(same) if same == document.as_bytes() => Verdict::Forward,
            Some(document) => {
                Verdict::rewrite(Operation::Insert(Insert { document: CowDocument::from_writer(document) }))
            }
            None => Verdict::Forward,
        })
    }

    /// Returns `document` with one timestamp.
    pub(super) fn timestamped_as_a_whole(&self, document: Document<'_>, time: TimestampBytes) -> Vec<u8> {
        let kept = CowDocument::from_writer(edit::without(document, self.store()));
        edit::append(kept.as_document(), |w| w.value(self.store(), self.timestamp_type.value(&time)))
    }

    /// Returns `document` with a timestamp for each protected field: the one in `sent`, or else the source time.
    /// `None` if there is neither.
    fn timestamped_by_field(
        &self,
        document: Document<'_>,
        sent: Option<Value<'_>>,
        context: &Context<'_>,
    ) -> Result<Option<Vec<u8>>, Rejection> {
        let kept = CowDocument::from_writer(edit::without(document, self.store()));
        let kept = kept.as_document();
        let mut timestamps = match sent {
            Some(value) => self.sent_by_field(value, context)?,
            None => Vec::new(),
        };
        let fields = self.protected_fields(kept)?.into_iter().filter(|path| !decides(context, path.as_bytes()));
        let untimed = |path: &&str| !timestamps.iter().any(|timestamp| timestamp.path == *path);
        let untimed: Vec<&str> = fields.filter(untimed).collect();
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
            PathWrite { path, change: PathChange::Put(NewValue::Value(value)) }
        });
        let writes = PathWrites::new(writes.collect())?;
        Ok(Some(edit::append(kept, |w| w.nested(self.store(), |w| writes.tree().write_values(w)))))
    }

    /// Returns the paths of the protected fields in `document`.
    pub(super) fn protected_fields<'d>(&'d self, document: Document<'d>) -> Result<Vec<&'d str>, Rejection> {
        match &self.fields {
            TimestampedFields::All => {
                document.elements().filter(|field| field.key != b"_id").map(|field| field_name(field.key)).collect()
            }
            TimestampedFields::Listed(_) => {
                let held = self.registers().filter(|path| matches!(path.lookup(document), PathLookup::Found(_)));
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
            TimestampedFields::All => {
                timestamps.elements().map(|field| timestamp(field_name(field.key)?, field.value)).collect()
            }
            TimestampedFields::Listed(_) => {
                let held = self.registers().filter_map(|path| match path.lookup(timestamps) {
                    PathLookup::Found(value) => Some(timestamp(path.as_str(), value)),
                    PathLookup::Missing | PathLookup::Blocked(_) => None,
                });
                held.collect()
            }
        }
    }
}

/// Returns a top-level name that can be a register.
pub(super) fn field_name(key: &[u8]) -> Result<&str, Rejection> {
    let text = std::str::from_utf8(key).ok();
    text.filter(|name| !name.is_empty() && !name.starts_with('$') && !name.contains('.')).ok_or_else(|| {
        Rejection::new(
            format!("its field name '{}' cannot have a timestamp", String::from_utf8_lossy(key)),
            "Use a name that is not empty, does not begin with $ and has no dot.",
        )
    })
}
