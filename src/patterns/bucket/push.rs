//! A push: to a stored bucket with room, or to one that the same statement opens.

use super::Bucket;
use crate::command::{Statement, Update};
use crate::document::{Document, Path, Value};
use crate::effect::{Equalities, ImageValue, Inserted, equality};
use crate::patterns::around::set_on_insert;
use crate::patterns::{Rejection, Verdict};

impl Bucket {
    pub(super) fn push<'a>(
        &self,
        statement: &Statement<'a>,
        update: &Update<'a>,
        operators: Document<'_>,
        pushed: i64,
        now: i64,
        versions: &[&Path],
    ) -> Result<Verdict<'a>, Rejection> {
        if pushed > self.limit {
            return Err(self.too_many(pushed));
        }
        if update.multi {
            return Err(Rejection::new("it would push into several buckets at once", "Use updateOne."));
        }
        let filter = update.filter.as_document();
        let equalities = Equalities::of_filter(filter);
        let seed = equalities.as_ref().and_then(Equalities::document);
        let names_id = names_id(filter);
        let selected = match seed.as_ref().map(|seed| seed.at_bytes(b"_id")) {
            None | Some(ImageValue::Missing) if !names_id => None,
            Some(ImageValue::Unknown) if !names_id => Some("docward cannot tell which bucket its filter selects"),
            _ => Some("it selects a bucket by _id, and that bucket may be full"),
        };
        if let Some(reason) = selected {
            return Err(Rejection::new(reason, "Filter by the owner's fields instead of _id."));
        }
        let is_given = |path: &[u8]| equalities.as_ref().is_some_and(|given| given.gives_beside(&self.count, path));
        // It is set field by field around the count, because docward increments the count beside it.
        let on_insert = set_on_insert(operators, &self.count, is_given);
        let stored = || {
            // A stored bucket gets none of it.
            let on_insert = on_insert.as_deref().unwrap_or_default();
            self.push_to_stored(update, self.counted(operators, on_insert, pushed, None), pushed)
        };
        let is_valid_upsert = equalities.as_ref().is_some_and(|equalities| !equalities.conflict());
        let seed = seed.as_ref().filter(|_| is_valid_upsert);
        // The server inserts no field without a name.
        let is_known =
            |root: &[u8]| !root.is_empty() && seed.is_some_and(|seed| seed.at_bytes(root) != ImageValue::Unknown);
        let pins = || equalities.iter().flat_map(Equalities::roots);
        let has_collation = statement.option("collation").is_some();
        let may_fail = || equalities.as_ref().is_some_and(|equalities| equalities.may_conflict(has_collation));
        let opens = || filter.is_empty() || (pins().next().is_some() && pins().all(is_known) && !may_fail());
        let checks_version = || versions.iter().any(|version| equality(filter, version.as_str()).is_some());
        if !update.upsert && (self.has_room_condition(update, pushed) || checks_version() || !opens()) {
            return Ok(stored());
        }
        let on_insert = match &on_insert {
            Ok(on_insert) => on_insert,
            Err(unsplittable) if update.upsert => return Err(unsplittable.rejection(&self.count)),
            Err(_) => return Ok(stored()),
        };
        let set = on_insert.iter().map(|(path, value)| (path.as_ref(), *value));
        let opened = self.missing_time(operators, set, seed);
        let opening = self.counted(operators, on_insert, pushed, opened.map(|opened| (opened, now)));
        let image = seed.and_then(|seed| seed.updated(opening.as_document()));
        let holds_only_pushed =
            image.map(|image| self.holds_only_pushed(seed, &image, pushed) && !fails_by_count(seed, operators, &image));
        // Only the increment of the count makes it an error, because the filter contains the count.
        let pins_count = || seed.is_some_and(|seed| seed.updated(operators).is_some());
        match holds_only_pushed {
            // The server fails the insert, but the client's filter may match a full bucket.
            None if update.upsert && !pins_count() => Ok(stored()),
            Some(true) => Ok(self.push_to_any(update, opening, pushed)),
            _ if update.upsert => Err(Rejection::new(
                format!(
                    "as an upsert it would insert a bucket with the '{}' or '{}' of its filter",
                    self.count, self.array
                ),
                format!("Leave '{}' and '{}' out of the filter.", self.count, self.array),
            )),
            _ => Ok(stored()),
        }
    }

    /// Returns whether a bucket that the push opens contains only the pushed elements.
    fn holds_only_pushed(&self, seed: Option<&Inserted<'_>>, image: &Inserted<'_>, pushed: i64) -> bool {
        let is_empty = seed.is_some_and(|seed| match seed.at(&self.array) {
            ImageValue::Missing => true,
            ImageValue::Value(array) => array.as_array().is_some_and(Document::is_empty),
            ImageValue::Some(_) | ImageValue::Unknown | ImageValue::Blocked(_) => false,
        });
        is_empty && matches!(image.at(&self.count), ImageValue::Value(count) if count.as_whole() == Some(pushed))
    }
}

/// Returns whether one of the possible inserts fails with the count, and not by the client's operators alone.
fn fails_by_count(seed: Option<&Inserted<'_>>, operators: Document<'_>, counted: &Inserted<'_>) -> bool {
    seed.filter(|seed| !seed.is_certain())
        .and_then(|seed| seed.updated(operators))
        .is_some_and(|alone| alone.images().count() > counted.images().count())
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
