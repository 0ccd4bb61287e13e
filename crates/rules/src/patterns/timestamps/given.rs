//! Equalities in the filter of an upsert, which it inserts. Protected fields among them get timestamps as if the update
//! had written them. A timestamp among them would be forged.

use super::super::Rejection;
use super::Timestamps;
use super::pipeline::FieldTimestamp;
use super::settings::{TimestampBytes, TimestampScope, TimestampedFields};
use crate::command::Update;
use crate::document::{CowDocument, Document, Writer, root_of};
use crate::patterns::on_insert::with_set_on_insert;
use crate::patterns::plain::{self, NotPlain};

/// Protected fields that the filter sets in the inserted document and the update does not write.
#[derive(Debug, Default)]
pub(super) struct GivenFields {
    pub(super) paths: Vec<String>,
    /// Whether the filter gives the `_id`: then the `_id` cannot show whether the document is inserted or stored.
    pub(super) id: bool,
}

impl GivenFields {
    pub(super) fn at(&self, time: TimestampBytes) -> Vec<FieldTimestamp<'_>> {
        self.paths.iter().map(|path| FieldTimestamp { path, time }).collect()
    }
}

impl Timestamps {
    /// Returns the protected fields in an upsert's filter, except those in `is_other`.
    ///
    /// # Errors
    /// The filter is not plain for them, or has a timestamp.
    pub(super) fn given(&self, update: &Update<'_>, is_other: impl Fn(&[u8]) -> bool) -> Result<GivenFields, NotPlain> {
        let filter = update.filter.as_document();
        if !update.upsert || has_only_id(filter) {
            return Ok(GivenFields { id: true, ..GivenFields::default() });
        }
        let mut given = GivenFields { id: plain::may_give_id(filter), ..GivenFields::default() };
        let mut names: Vec<&str> = Vec::new();
        match &self.fields {
            TimestampedFields::All => {
                let given = plain::given(filter).ok_or("as an upsert, its filter may give protected fields a value")?;
                let roots = given.into_iter().map(root_of);
                names.extend(roots.filter_map(|root| std::str::from_utf8(root).ok()));
            }
            TimestampedFields::Listed(_) => {
                for field in self.registers().chain([&self.store]) {
                    match plain::taken(filter, field)? {
                        Some((_, false)) => return Err(plain::may_give(field)),
                        Some((_, true)) => names.push(field.as_str()),
                        None => {}
                    }
                }
            }
        }
        if names.contains(&self.store.as_str()) {
            return Err(format!("as an upsert, its filter gives a timestamp in '{}'", self.store));
        }
        let own = |name: &&str| *name != "_id" && !is_other(name.as_bytes());
        given.paths = names.into_iter().filter(own).map(str::to_owned).collect();
        Ok(given)
    }

    /// Returns `operators` with timestamps for such fields in `$setOnInsert`.
    pub(super) fn timestamped_on_insert<'a>(
        &self,
        operators: Document<'_>,
        given: &GivenFields,
        time: TimestampBytes,
    ) -> CowDocument<'a> {
        let time = self.timestamp_type.value(&time);
        let add = |w: &mut Writer<'_>| match self.per {
            TimestampScope::Document => w.value(self.store.as_str(), time),
            TimestampScope::Field => {
                given.paths.iter().for_each(|path| w.value(format!("{}.{path}", self.store), time));
            }
        };
        with_set_on_insert(operators, |_| true, add)
    }
}

/// Adds to a rejection for a missing time that the upsert could insert protected fields from its filter.
pub(super) fn without_time(given: &GivenFields, rejection: Rejection) -> Rejection {
    let path = given.paths.first().map_or("", String::as_str);
    let reason =
        format!("as an upsert it could insert the protected field '{path}' from its filter: {}", rejection.reason);
    Rejection { reason, ..rejection }
}

/// Returns whether the filter has only `_id`, which is true for most upserts.
fn has_only_id(filter: Document<'_>) -> bool {
    filter.elements().all(|element| element.key == b"_id")
}
