//! The operators that docward sends for a push, and for an upsert that opens a bucket.

use smallvec::SmallVec;

use super::{Bucket, no_room};
use crate::document::{CowDocument, Document, Element, OwnedValue, Path, Value, Writer};
use crate::effect::{ImageValue, Inserted, PathOverlap, touch, touched};
use crate::patterns::Rejection;
use crate::patterns::around::{SetField, set_on_insert};

impl Bucket {
    /// Returns what `$setOnInsert` sets. A document around the count or the time is set field by field, because docward
    /// sets these beside the others.
    pub(super) fn set_on_insert<'v>(&self, operators: Document<'v>) -> Result<Vec<SetField<'v>>, Rejection> {
        let ours: SmallVec<[&Path; 2]> = [&self.count].into_iter().chain(&self.opened).collect();
        set_on_insert(operators, &ours).map_err(|at| no_room(at.field, at.kind))
    }

    /// Returns the field for the time of a bucket that is opened, if the inserted document does not have it.
    /// `on_insert`: of [`Self::set_on_insert`].
    pub(super) fn missing_time(
        &self,
        operators: Document<'_>,
        on_insert: &[SetField<'_>],
        image: Option<&Inserted<'_>>,
    ) -> Option<&Path> {
        // The server rejects two operators on one path.
        let is_named = |opened: &Path| {
            let mut others = touched(operators).filter(|(operator, ..)| *operator != b"$setOnInsert");
            others.any(|(_, path, _)| touch(opened, path) != PathOverlap::Apart)
                || on_insert.iter().any(|(path, _)| touch(opened, path) != PathOverlap::Apart)
        };
        let is_missing = |opened: &Path| image.is_some_and(|image| image.at(opened) == ImageValue::Missing);
        self.opened.as_ref().filter(|opened| is_missing(opened) && !is_named(opened))
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
                w.nested("$setOnInsert", |w| {
                    on_insert().for_each(|(path, value)| w.value(path, *value));
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
    ) -> Result<CowDocument<'a>, Rejection> {
        let on_insert = self.set_on_insert(operators)?;
        let opened = self.missing_time(operators, &on_insert, Some(image));
        Ok(CowDocument::build(|w| {
            operators.elements().filter(|one| one.key != b"$setOnInsert").for_each(|one| w.element(one));
            w.nested("$setOnInsert", |w| {
                on_insert.iter().for_each(|(path, value)| w.value(path, *value));
                w.integer(self.count.as_str(), count);
                write_time(w, opened.map(|opened| (opened, now)));
            });
        }))
    }
}

fn write_time(w: &mut Writer<'_>, opened: Option<(&Path, i64)>) {
    if let Some((opened, now)) = opened {
        w.value(opened.as_str(), OwnedValue::date(now).as_value());
    }
}
