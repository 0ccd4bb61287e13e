//! The operators that docward sends for a push, and for an upsert that opens a bucket.

use super::Bucket;
use crate::document::{CowDocument, Document, Element, OwnedValue, Path, PathLookup, Value, edit};
use crate::effect::{ImageValue, Inserted, PathOverlap, on_stored, touch};
use crate::patterns::around::SetField;

impl Bucket {
    /// Returns the field for the time of a bucket that is opened, if the inserted document does not have it. `on_insert`:
    /// what `$setOnInsert` sets.
    pub(super) fn missing_time<'i>(
        &self,
        operators: Document<'_>,
        mut on_insert: impl Iterator<Item = (&'i [u8], Value<'i>)>,
        image: Option<&Inserted<'_>>,
    ) -> Option<&Path> {
        let opened = self.opened.as_ref()?;
        // The server rejects two operators on one path.
        let is_set = |(path, value): (&[u8], Value<'_>)| match opened.below(path).zip(value.as_document()) {
            Some((rest, document)) => rest.lookup(document) != PathLookup::Missing,
            None => touch(opened, path) != PathOverlap::Apart,
        };
        let mut others = on_stored(operators);
        let is_missing = image.is_some_and(|image| image.at(opened) == ImageValue::Missing);
        let is_free = is_missing
            && !others.any(|(_, path, _)| touch(opened, path) != PathOverlap::Apart)
            && !on_insert.any(is_set);
        is_free.then_some(opened)
    }

    /// Returns the operators with the count of the pushed elements, which replaces the client's own count, and with the
    /// time of a bucket that is opened.
    pub(super) fn counted<'a>(
        &self,
        operators: Document<'_>,
        on_insert: &[SetField<'_>],
        pushed: i64,
        opened: Option<(&Path, i64)>,
    ) -> CowDocument<'a> {
        let ours = |path: &[u8]| self.count.covers(path);
        let increments = operators.get("$inc").and_then(Value::as_document).unwrap_or(Document::EMPTY);
        let on_insert = || on_insert.iter().filter(|(path, _)| !ours(path));
        CowDocument::build(|w| {
            for operator in operators.elements().filter(|one| one.key != b"$inc" && one.key != b"$setOnInsert") {
                w.element(operator);
            }
            w.nested("$inc", |w| {
                let is_other = |field: &Element<'_>| touch(&self.count, field.key) == PathOverlap::Apart;
                increments.elements().filter(is_other).for_each(|field| w.element(field));
                w.integer(self.count.as_str(), pushed);
            });
            if opened.is_some() || on_insert().next().is_some() {
                let on_insert = CowDocument::build(|w| on_insert().for_each(|(path, value)| w.value(path, *value)));
                w.value("$setOnInsert", Value::document(with_time(on_insert, opened).as_document()));
            }
        })
    }

    /// Returns the operators with the count of a new bucket, and its time if it has none. They are set in a document that
    /// `$setOnInsert` sets around them.
    pub(super) fn with_new_fields<'a>(
        &self,
        operators: Document<'_>,
        image: &Inserted<'_>,
        count: i64,
        now: i64,
    ) -> CowDocument<'a> {
        let fields = operators.get("$setOnInsert").and_then(Value::as_document).unwrap_or(Document::EMPTY);
        let set = fields.elements().map(|field| (field.key, field.value));
        let opened = self.missing_time(operators, set, Some(image)).map(|opened| (opened, now));
        let counted = with_field(fields, &self.count, OwnedValue::integer(count).as_value());
        let on_insert = with_time(counted, opened);
        CowDocument::build(|w| {
            operators.elements().filter(|one| one.key != b"$setOnInsert").for_each(|one| w.element(one));
            w.value("$setOnInsert", Value::document(on_insert.as_document()));
        })
    }
}

fn with_time<'a>(on_insert: CowDocument<'a>, opened: Option<(&Path, i64)>) -> CowDocument<'a> {
    match opened {
        Some((opened, now)) => with_field(on_insert.as_document(), opened, OwnedValue::date(now).as_value()),
        None => on_insert,
    }
}

/// Returns the fields of `$setOnInsert` with one more, which is set in the document around it, if there is one.
fn with_field<'a>(on_insert: Document<'_>, field: &Path, value: Value<'_>) -> CowDocument<'a> {
    CowDocument::build(|w| {
        let mut is_set = false;
        for one in on_insert.elements() {
            match field.below(one.key).zip(one.value.as_document()) {
                Some((rest, around)) => {
                    let edited = CowDocument::from_writer(edit::set(around, &rest, value));
                    w.value(one.key, Value::document(edited.as_document()));
                    is_set = true;
                }
                None => w.element(one),
            }
        }
        if !is_set {
            w.value(field.as_str(), value);
        }
    })
}
