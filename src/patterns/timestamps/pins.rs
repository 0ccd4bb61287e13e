//! Equalities in the filter of an upsert, which it inserts. Protected fields among them get timestamps as if the update
//! had written them. A timestamp among them would be forged.

use super::super::Rejection;
use super::super::filter::remade;
use super::Timestamps;
use super::pipeline::FieldTimestamp;
use super::settings::{TimestampBytes, TimestampScope, TimestampedFields};
use crate::command::{Modification, Update};
use crate::document::{CowDocument, Document, Path, Value};
use crate::effect::{ImageValue, inserted};

/// Protected fields that the filter sets in the inserted document and the update does not write.
#[derive(Debug, Default)]
pub(super) struct Pinned {
    pub(super) paths: Vec<String>,
    /// One of them that only some servers insert.
    uncertain: Option<String>,
    /// Whether the filter gives the `_id`: then the `_id` cannot show whether the document is inserted or stored.
    pub(super) id: bool,
}

impl Pinned {
    pub(super) fn at(&self, time: TimestampBytes) -> Vec<FieldTimestamp<'_>> {
        self.paths.iter().map(|path| FieldTimestamp { path, time }).collect()
    }

    /// Checks that every server inserts them: operators set their timestamps in any case.
    ///
    /// # Errors
    /// Some servers insert a field and others do not.
    pub(super) fn require_certain(&self) -> Result<(), Rejection> {
        match &self.uncertain {
            None => Ok(()),
            Some(path) => Err(Rejection::new(
                format!(
                    "as an upsert, depending on the server, it could insert the protected field '{path}' from its filter"
                ),
                "Write the filter without alternatives, or do not upsert.",
            )),
        }
    }
}

impl Timestamps {
    /// Returns the protected fields in an upsert's filter, except those in `is_other`.
    ///
    /// # Errors
    /// The filter contains a timestamp.
    pub(super) fn pinned(&self, update: &Update<'_>, is_other: impl Fn(&[u8]) -> bool) -> Result<Pinned, Rejection> {
        let filter = update.filter.as_document();
        if !update.upsert || pins_only_id(filter) {
            return Ok(Pinned { id: true, ..Pinned::default() });
        }
        // The operators' own writes are known, so only the filter is evaluated.
        let nothing = Modification::Operators(CowDocument::from(Document::EMPTY));
        let operation = remade(update, update.filter.clone(), nothing, true);
        let Some(inserted) = inserted(&operation) else { return Ok(Pinned::default()) };
        let names = inserted.names();
        if names.contains(&self.store.as_bytes()) {
            return Err(Rejection::new(
                format!("its filter requires a timestamp in '{}', and an upsert would insert it", self.store),
                "Leave the timestamp out of the filter (docward compares it), use $lt or $exists for it, \
                 or do not upsert.",
            ));
        }
        let pinned: Vec<&str> = match &self.fields {
            TimestampedFields::All => names.iter().filter_map(|name| std::str::from_utf8(name).ok()).collect(),
            TimestampedFields::Listed(_) => {
                let held = |path: &&Path| !matches!(inserted.at(path), ImageValue::Missing | ImageValue::Blocked(_));
                self.registers().filter(held).map(Path::as_str).collect()
            }
        };
        let own = |path: &&str| *path != "_id" && !is_other(path.as_bytes());
        let paths: Vec<String> = pinned.into_iter().filter(own).map(str::to_owned).collect();
        let is_uncertain =
            |path: &&String| Path::parse(path).is_some_and(|path| matches!(inserted.at(&path), ImageValue::Unknown));
        let per_field = self.per == TimestampScope::Field;
        Ok(Pinned {
            uncertain: paths.iter().find(is_uncertain).filter(|_| per_field).cloned(),
            paths,
            id: names.contains(&b"_id".as_slice()),
        })
    }

    /// Returns `operators` with timestamps for pinned fields in `$setOnInsert`.
    pub(super) fn timestamped_on_insert<'a>(
        &self,
        operators: Document<'_>,
        pinned: &Pinned,
        time: TimestampBytes,
    ) -> CowDocument<'a> {
        const OPERATOR: &str = "$setOnInsert";
        CowDocument::build(|w| {
            operators.elements().filter(|operator| operator.key != OPERATOR.as_bytes()).for_each(|one| w.element(one));
            w.nested(OPERATOR, |w| {
                let set = operators.get(OPERATOR).and_then(Value::as_document).unwrap_or(Document::EMPTY);
                w.elements(set);
                match self.per {
                    TimestampScope::Document => w.value(&self.store, self.timestamp_type.value(&time)),
                    TimestampScope::Field => pinned.paths.iter().for_each(|path| {
                        w.value(format!("{}.{path}", self.store), self.timestamp_type.value(&time));
                    }),
                }
            });
        })
    }
}

/// Adds to a rejection for a missing time that the upsert could insert protected fields from its filter.
pub(super) fn without_time(pinned: &Pinned, rejection: Rejection) -> Rejection {
    let path = pinned.paths.first().map_or("", String::as_str);
    let reason =
        format!("as an upsert it could insert the protected field '{path}' from its filter: {}", rejection.reason);
    Rejection { reason, ..rejection }
}

/// Returns whether the filter has only `_id`, which is true for most upserts.
fn pins_only_id(filter: Document<'_>) -> bool {
    filter.elements().all(|element| element.key == b"_id")
}
