//! What an upsert inserts because its filter demands it: protected fields get timestamps as if the update had written them, and
//! a demanded timestamp would be a forged one.

use super::super::Rejection;
use super::super::filter::remade;
use super::Timestamps;
use super::pipeline::FieldTimestamp;
use super::settings::{Fields, Per, Time};
use crate::command::{Modification, Update};
use crate::document::{CowDocument, Document, Path, Value};
use crate::effect::{Held, inserted};

/// Protected fields that the filter puts into the inserted document and the update does not write.
#[derive(Debug, Default)]
pub(super) struct Pinned {
    pub(super) paths: Vec<String>,
    /// The filter gives the `_id`, so that an inserted document cannot be told from a stored one by that.
    pub(super) id: bool,
}

impl Pinned {
    pub(super) fn at(&self, time: Time) -> Vec<FieldTimestamp<'_>> {
        self.paths.iter().map(|path| FieldTimestamp { path, time }).collect()
    }
}

impl Timestamps {
    /// What an upsert's filter pins besides what `is_written`.
    ///
    /// # Errors
    /// It pins a timestamp.
    pub(super) fn pinned(&self, update: &Update<'_>, is_written: impl Fn(&[u8]) -> bool) -> Result<Pinned, Rejection> {
        let filter = update.filter.as_document();
        if !update.upsert || pins_only_id(filter) {
            return Ok(Pinned { paths: Vec::new(), id: true });
        }
        // What the operators write is known without the model.
        let nothing = Modification::Operators(CowDocument::from(Document::EMPTY));
        let operation = remade(update, update.filter.clone(), nothing, true);
        let Some(inserted) = inserted(&operation) else { return Ok(Pinned::default()) };
        let names = inserted.names();
        if names.contains(&self.store.as_bytes()) {
            return Err(Rejection::new(
                format!("its filter demands a timestamp in '{}', which an upsert would insert", self.store),
                "Leave the timestamp out of the filter (docward compares it), compare it by $lt or $exists, or do not upsert.",
            ));
        }
        let pinned: Vec<&str> = match &self.fields {
            Fields::All => names.iter().filter_map(|name| std::str::from_utf8(name).ok()).collect(),
            Fields::Listed(_) => {
                let held = |path: &&Path| !matches!(inserted.at(path), Held::Missing | Held::Blocked(_));
                self.registers().filter(held).map(Path::as_str).collect()
            }
        };
        let own = |path: &&str| *path != "_id" && !is_written(path.as_bytes());
        Ok(Pinned {
            paths: pinned.into_iter().filter(own).map(str::to_owned).collect(),
            id: names.contains(&b"_id".as_slice()),
        })
    }

    /// `operators` with timestamps for pinned fields, in case it inserts them.
    pub(super) fn timestamped_on_insert<'a>(
        &self,
        operators: Document<'_>,
        pinned: &Pinned,
        time: Time,
    ) -> CowDocument<'a> {
        const OPERATOR: &str = "$setOnInsert";
        CowDocument::build(|w| {
            operators.elements().filter(|operator| operator.key != OPERATOR.as_bytes()).for_each(|one| w.element(one));
            w.nested(OPERATOR, |w| {
                let set = operators.get(OPERATOR).and_then(Value::as_document).unwrap_or(Document::EMPTY);
                w.elements(set);
                match self.per {
                    Per::Document => w.value(&self.store, self.timestamp_type.value(&time)),
                    Per::Field => pinned.paths.iter().for_each(|path| {
                        w.value(format!("{}.{path}", self.store), self.timestamp_type.value(&time));
                    }),
                }
            });
        })
    }
}

/// Why an upsert that could insert protected fields of its filter needs a time.
pub(super) fn without_time(pinned: &Pinned, rejection: Rejection) -> Rejection {
    let path = pinned.paths.first().map_or("", String::as_str);
    let reason =
        format!("as an upsert it could insert the protected field '{path}' of its filter: {}", rejection.reason);
    Rejection { reason, ..rejection }
}

/// Most upserts pick their document by its `_id` alone.
fn pins_only_id(filter: Document<'_>) -> bool {
    filter.elements().all(|element| element.key == b"_id")
}
