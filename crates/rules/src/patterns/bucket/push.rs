//! A push: to a stored bucket with room, or to one that the same statement opens.

use super::Bucket;
use crate::command::Update;
use crate::document::{Document, Path, Value};
use crate::effect::{equality, touched};
use crate::patterns::Verdict;
use crate::patterns::plain::{self, NotPlain};

impl Bucket {
    /// Evaluates a push of this many elements. Only a filter whose equalities the server inserts as they are opens a bucket.
    pub(super) fn push<'a>(
        &self,
        update: &Update<'a>,
        operators: Document<'_>,
        pushed: i64,
        now: i64,
        versions: &[&Path],
    ) -> Result<Verdict<'a>, NotPlain> {
        if pushed > self.limit {
            return Ok(Verdict::Reject(self.too_many(pushed)));
        }
        if update.multi {
            return Err("it pushes into several buckets at once".to_owned());
        }
        let filter = update.filter.as_document();
        if names_id(filter) {
            return Err("it selects a bucket by _id, and that bucket may be full".to_owned());
        }
        let stored = || self.push_to_stored(update, self.count_pushed(update, operators, pushed, None), pushed);
        // Such a push is about the document that was read.
        let names = |version: &Path| {
            let sets = |(operator, path, _)| operator == b"$set" && path == version.as_str().as_bytes();
            equality(filter, version.as_str()).is_some() || touched(operators).any(sets)
        };
        let checks_version = || versions.iter().any(|version| names(version));
        match update.upsert {
            false if self.has_room_condition(update, pushed) || checks_version() => Ok(stored()),
            is_upsert => match self.opens(filter, operators) {
                true => Ok(self.push_to_any(update, self.count_pushed(update, operators, pushed, Some(now)), pushed)),
                false if is_upsert => Err(format!(
                    "as an upsert, its filter or its operators may give '{}' or '{}' another value",
                    self.array, self.count
                )),
                false => Ok(stored()),
            },
        }
    }

    /// Returns whether the server inserts the equalities of this filter, and these operators do not fail on them.
    fn opens(&self, filter: Document<'_>, operators: Document<'_>) -> bool {
        let Some(given) = plain::given(filter) else { return false };
        let is_own = |path: &[u8]| self.array.overlaps(path) || self.count.overlaps(path);
        let may_fail = |(operator, path, _): (&[u8], &[u8], Value<'_>)| {
            let is_position = path.split(|byte| *byte == b'.').any(|part| part.starts_with(b"$"));
            let sets = matches!(operator, b"$set" | b"$setOnInsert");
            let conflicts = |given: &&[u8]| crate::document::paths_overlap(given, path) && !(sets && *given == path);
            is_position || operator == b"$rename" || given.iter().any(conflicts)
        };
        let is_usual = |path: &&[u8]| !is_own(path) && !path.starts_with(b"_id");
        (filter.is_empty() || !given.is_empty()) && given.iter().all(is_usual) && !touched(operators).any(may_fail)
    }
}

/// Returns whether a condition of the filter is on `_id`.
fn names_id(filter: Document<'_>) -> bool {
    filter.elements().any(|element| match element.key {
        b"$and" | b"$or" | b"$nor" => {
            let branches = element.value.as_array().unwrap_or(Document::EMPTY);
            let is_on_id = |branch: Value<'_>| branch.as_document().is_some_and(|branch| names_id(branch));
            branches.values().any(is_on_id)
        }
        key => key == b"_id" || key.starts_with(b"_id."),
    })
}
