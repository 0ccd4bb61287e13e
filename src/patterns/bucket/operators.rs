//! The operators that docward sends for a push, and for an upsert that opens a bucket.

use super::Bucket;
use crate::document::{CowDocument, Document, OwnedValue, Path, Value, Writer};
use crate::effect::{ImageValue, Inserted, PathOverlap, touch, touched};

impl Bucket {
    /// Returns the field for the time of a bucket that is opened, if the inserted document does not have it.
    pub(super) fn missing_time(&self, operators: Document<'_>, image: Option<&Inserted<'_>>) -> Option<&Path> {
        // The server rejects two operators on one path.
        let is_named = |opened: &Path| touched(operators).any(|(_, path, _)| touch(opened, path) != PathOverlap::Apart);
        let is_missing = |opened: &Path| image.is_some_and(|image| image.at(opened) == ImageValue::Missing);
        self.opened.as_ref().filter(|opened| is_missing(opened) && !is_named(opened))
    }

    /// Returns the operators with the count of the pushed elements, which replaces the client's own count, and with the
    /// time of a bucket that is opened.
    pub(super) fn counted<'a>(
        &self,
        operators: Document<'_>,
        pushed: i64,
        opened: Option<(&Path, i64)>,
    ) -> CowDocument<'a> {
        let ours = |path: &[u8]| touch(&self.count, path) != PathOverlap::Apart;
        let fields = |name: &str| operators.get(name).and_then(Value::as_document).unwrap_or(Document::EMPTY);
        let on_insert = || fields("$setOnInsert").elements().filter(|field| !ours(field.key));
        CowDocument::build(|w| {
            for operator in operators.elements().filter(|one| one.key != b"$inc" && one.key != b"$setOnInsert") {
                w.element(operator);
            }
            w.nested("$inc", |w| {
                fields("$inc").elements().filter(|field| !ours(field.key)).for_each(|field| w.element(field));
                w.integer(self.count.as_str(), pushed);
            });
            if opened.is_some() || on_insert().next().is_some() {
                w.nested("$setOnInsert", |w| {
                    on_insert().for_each(|field| w.element(field));
                    write_time(w, opened);
                });
            }
        })
    }

    /// Returns the operators with the count of a new bucket, and its time if it has none.
    pub(super) fn with_new_fields<'a>(
        &self,
        operators: Document<'_>,
        image: &Inserted<'_>,
        count: i64,
        now: i64,
    ) -> CowDocument<'a> {
        let opened = self.missing_time(operators, Some(image));
        let on_insert = operators.get("$setOnInsert").and_then(Value::as_document).unwrap_or(Document::EMPTY);
        CowDocument::build(|w| {
            operators.elements().filter(|one| one.key != b"$setOnInsert").for_each(|one| w.element(one));
            w.nested("$setOnInsert", |w| {
                w.elements(on_insert);
                w.integer(self.count.as_str(), count);
                write_time(w, opened.map(|opened| (opened, now)));
            });
        })
    }
}

fn write_time(w: &mut Writer<'_>, opened: Option<(&Path, i64)>) {
    if let Some((opened, now)) = opened {
        w.value(opened.as_str(), OwnedValue::date(now).as_value());
    }
}
