//! Checks of stored timestamps.

use bson::{Bson, Document, doc};

use super::settings::{TimeSource, TimestampScope, TimestampType, TimestampedFields, Timestamps};
use crate::document::Path;
use crate::patterns::stored_data::{DataCheck, all, any, is_absent, is_missing, is_one_of, not, value};

pub(super) fn checks(rule: &Timestamps) -> Vec<DataCheck> {
    let store = &rule.store;
    let mut checks = without(rule, store);
    if rule.per == TimestampScope::Field {
        checks.push(DataCheck::each(
            format!("whose `{store}` is not a document"),
            "docward replaces it with the next write",
            not(any(vec![is_missing(store), is_one_of(store, &["object"])])),
        ));
    }
    if let (Some(ahead), TimestampType::Date) = (rule.max_ahead, rule.timestamp_type) {
        let is_ahead = |time: &str| doc! {"$gt": [time, {"$add": ["$$NOW", ahead]}]};
        let is_date = |time: &str| doc! {"$eq": [{"$type": time}, "date"]};
        let condition: Bson = match rule.per {
            TimestampScope::Document => all(vec![is_date(&value(store)).into(), is_ahead(&value(store)).into()]),
            TimestampScope::Field => {
                let times = doc! {"$cond": [is_one_of(store, &["object"]), {"$objectToArray": value(store)}, []]};
                let each = doc! {"$and": [is_date("$$this.v"), is_ahead("$$this.v")]};
                doc! {"$anyElementTrue": {"$map": {"input": times, "in": each}}}.into()
            }
        };
        checks.push(DataCheck::each(
            "with a timestamp further ahead of the server's clock than `max_ahead`",
            "every write is late until then; docward reset-clock removes the timestamps",
            condition,
        ));
    }
    checks
}

/// Documents without timestamps. Their own source time is set where one timestamp is enough for all that it covers.
fn without(rule: &Timestamps, store: &Path) -> Vec<DataCheck> {
    let (found, consequence) = (format!("without `{store}`"), "the next write wins, however old it is");
    let all_without = || vec![DataCheck::each(found.clone(), consequence, is_absent(store))];
    let TimeSource::Field(source) = &rule.source else { return all_without() };
    let (has_time, time) = source_time(source, rule.timestamp_type);
    let times = match (rule.per, &rule.fields) {
        (TimestampScope::Document, _) => time,
        (TimestampScope::Field, TimestampedFields::Listed(fields)) if fields.iter().all(Path::is_top_level) => {
            let each = |field: &Path| {
                let time = doc! {"$cond": [is_missing(field), "$$REMOVE", time.clone()]};
                (field.as_str().to_owned(), Bson::from(time))
            };
            fields.iter().map(each).collect::<Document>().into()
        }
        // A timestamp of a document would also cover the fields inside it.
        (TimestampScope::Field, _) => return all_without(),
    };
    let with_time = DataCheck::each(
        format!("{found} and with `{source}`"),
        consequence,
        all(vec![is_missing(store), has_time.clone()]),
    );
    let mut checks = with_time.set(format!("`{store}` to the time in `{source}`"), store, times);
    checks.push(DataCheck::each(
        format!("{found} and without a time in `{source}`"),
        consequence,
        all(vec![is_absent(store), not(all(vec![is_missing(store), has_time]))]),
    ));
    checks
}

/// Whether the field has a time that the rule accepts, and the time as timestamps are stored.
fn source_time(source: &Path, timestamp_type: TimestampType) -> (Bson, Bson) {
    let is = |kind: &str| is_one_of(source, &[kind]);
    match timestamp_type {
        TimestampType::Date => (is("date"), value(source).into()),
        TimestampType::Timestamp => (is("timestamp"), value(source).into()),
        TimestampType::Long => {
            // A double without a fraction equals the long.
            let convert = doc! {"input": value(source), "to": "long", "onError": Bson::Null, "onNull": Bson::Null};
            let long = Bson::from(doc! {"$convert": convert});
            let is_whole = doc! {"$eq": [&long, value(source)]};
            (all(vec![is_one_of(source, &["int", "long", "double"]), is_whole.into()]), long)
        }
    }
}
