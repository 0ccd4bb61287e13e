//! The operators that docward sends for a push, and for an upsert that opens a bucket.

use super::Bucket;
use crate::command::Update;
use crate::document::{CowDocument, Document, Element, OwnedValue, Path, Value};
use crate::effect::{PathOverlap, touch, touched};
use crate::patterns::on_insert::with_set_on_insert;
use crate::patterns::plain::{self, PlainWrite};

impl Bucket {
    /// Returns the field for the time of a bucket that the upsert opens, if the inserted document does not have it.
    fn missing_time(&self, update: &Update<'_>, operators: Document<'_>) -> Option<&Path> {
        let opened = self.opened.as_ref()?;
        // The server rejects two operators on one path.
        let is_free = !touched(operators).any(|(_, path, _)| touch(opened, path) != PathOverlap::Apart);
        (is_free && plain::inserted(update, opened) == Ok(PlainWrite::Untouched)).then_some(opened)
    }

    /// Returns the operators with the count of the pushed elements, which replaces the client's own count, and with the
    /// time of a bucket that is `opened`.
    pub(super) fn count_pushed<'a>(
        &self,
        update: &Update<'_>,
        operators: Document<'_>,
        pushed: i64,
        opened: Option<i64>,
    ) -> CowDocument<'a> {
        let is_other = |field: &Element<'_>| touch(&self.count, field.key) == PathOverlap::Apart;
        let fields = |operator| operators.get(operator).and_then(Value::as_document).unwrap_or(Document::EMPTY);
        let opened = opened.and_then(|now| Some((self.missing_time(update, operators)?, OwnedValue::date(now))));
        let on_insert = || fields("$setOnInsert").elements().filter(is_other);
        CowDocument::build(|w| {
            for operator in operators.elements().filter(|one| one.key != b"$inc" && one.key != b"$setOnInsert") {
                w.element(operator);
            }
            w.nested("$inc", |w| {
                fields("$inc").elements().filter(is_other).for_each(|field| w.element(field));
                w.integer(self.count.as_str(), pushed);
            });
            if opened.is_some() || on_insert().next().is_some() {
                w.nested("$setOnInsert", |w| {
                    on_insert().for_each(|field| w.element(field));
                    opened.iter().for_each(|(field, now)| w.value(field.as_str(), now.as_value()));
                });
            }
        })
    }

    /// Returns the operators with the count of a new bucket, and its time if it has none.
    pub(super) fn with_new_fields<'a>(
        &self,
        update: &Update<'_>,
        operators: Document<'_>,
        count: i64,
        now: i64,
    ) -> CowDocument<'a> {
        let opened = self.missing_time(update, operators).map(|opened| (opened, OwnedValue::date(now)));
        with_set_on_insert(
            operators,
            |_| true,
            |w| {
                w.integer(self.count.as_str(), count);
                opened.iter().for_each(|(field, now)| w.value(field.as_str(), now.as_value()));
            },
        )
    }
}
