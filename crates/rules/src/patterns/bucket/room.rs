//! The condition that a bucket has room for the pushed elements: `{count: {$lte: 99, $not: {$type: "array"}}}`.
//!
//! A comparison with a number also matches an array that contains one, and the server cannot increment an array.

use super::super::filter::{narrowed, write_no_array};
use super::super::number::Bound;
use super::super::{NoEffect, Verdict};
use super::Bucket;
use crate::command::{Modification, Operation, Update};
use crate::document::{CowDocument, Document, Value, Writer};
use crate::effect::{PathOverlap, touch, touched};

const NO_BUCKET: NoEffect = NoEffect::no_match("it matched nothing: no bucket that it matches has room");

/// Conditions below this depth are not examined.
const MAX_DEPTH: usize = 100;

impl Bucket {
    /// Rewrites a push to one that finds a bucket with room or opens one. The condition is part of the filter, so a
    /// full bucket that the client's filter matches does not prevent the insert.
    pub(super) fn push_to_any<'a>(&self, update: &Update<'a>, operators: CowDocument<'a>, pushed: i64) -> Verdict<'a> {
        let filter = update.filter.as_document();
        // A client that increments the count itself has the server's error if the count is an array.
        let has_room = self.demands_room(filter, pushed, 0) && self.is_incremented(update);
        if has_room && update.upsert && is_unchanged(update, &operators) {
            return Verdict::Forward;
        }
        let mut operation = with_operators(update, operators, true);
        if let (Operation::Update(update), false) = (&mut operation, has_room) {
            let by_count = narrowed(filter, self.count.as_str(), |w, count| {
                w.nested(count, |w| self.write_room(w, pushed));
            });
            let by_parent = |filter: CowDocument<'_>, parent| {
                narrowed(filter.as_document(), parent, |w, parent| w.nested(parent, write_no_array))
            };
            update.filter = self.count.parents().fold(by_count, by_parent);
        }
        Verdict::rewrite(operation)
    }

    /// Rewrites a push to one that finds a stored bucket with room. The client did not ask for an upsert, and its
    /// filter cannot open a bucket; or the server fails the insert of its upsert.
    pub(super) fn push_to_stored<'a>(
        &self,
        update: &Update<'a>,
        operators: CowDocument<'a>,
        pushed: i64,
    ) -> Verdict<'a> {
        let is_conditional = self.has_room_condition(update, pushed);
        if is_conditional && is_unchanged(update, &operators) {
            return Verdict::Forward;
        }
        let mut operation = with_operators(update, operators, update.upsert);
        if let (Operation::Update(update), false) = (&mut operation, is_conditional) {
            update.conditions.push(self.room(pushed));
        }
        Verdict::conditional(operation, true, NO_BUCKET)
    }

    /// Returns the condition for a push that opens no bucket.
    fn room<'a>(&self, pushed: i64) -> CowDocument<'a> {
        CowDocument::build(|w| {
            w.nested(self.count.as_str(), |w| self.write_room(w, pushed));
            self.count.parents().for_each(|parent| w.nested(parent, write_no_array));
        })
    }

    pub(super) fn has_room_condition(&self, update: &Update<'_>, pushed: i64) -> bool {
        if update.conditions.is_empty() {
            return false;
        }
        let room = self.room(pushed);
        update.conditions.iter().any(|known| known.as_document().as_bytes() == room.as_document().as_bytes())
    }

    /// Writes the condition on the count.
    fn write_room(&self, w: &mut Writer<'_>, pushed: i64) {
        w.integer("$lte", self.limit - pushed);
        write_no_array(w);
    }

    fn is_incremented(&self, update: &Update<'_>) -> bool {
        let Some(operators) = update.operators() else { return false };
        let is_count = |path| touch(&self.count, path) == PathOverlap::Exact;
        touched(operators).any(|(operator, path, _)| operator == b"$inc" && is_count(path))
    }

    /// Returns whether the client's filter requires room: `{$lt: 100}`, at its top level or inside `$and`.
    fn demands_room(&self, filter: Document<'_>, pushed: i64, depth: usize) -> bool {
        let is_at_most =
            |value: Value<'_>, most: i64| Bound::Integer(most).compare(value).is_some_and(std::cmp::Ordering::is_le);
        let room = self.limit - pushed;
        filter.elements().any(|element| match element.key {
            b"$and" if depth < MAX_DEPTH => {
                let branches = element.value.as_array().unwrap_or(Document::EMPTY);
                branches.values().filter_map(Value::as_document).any(|one| self.demands_room(one, pushed, depth + 1))
            }
            key if key == self.count.as_str().as_bytes() => element.value.as_document().is_some_and(|condition| {
                condition.get("$lte").is_some_and(|most| is_at_most(most, room))
                    || condition.get("$lt").is_some_and(|below| is_at_most(below, room + 1))
            }),
            _ => false,
        })
    }
}

fn with_operators<'a>(update: &Update<'a>, operators: CowDocument<'a>, upsert: bool) -> Operation<'a> {
    Operation::Update(Update { modification: Modification::Operators(operators), upsert, ..update.clone() })
}

fn is_unchanged(update: &Update<'_>, operators: &CowDocument<'_>) -> bool {
    matches!(update.modification.meaning(), Modification::Operators(own)
        if own.as_document().as_bytes() == operators.as_document().as_bytes())
}
