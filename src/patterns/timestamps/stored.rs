//! Checks of stored timestamps.

use bson::{Bson, Document, doc};

use super::settings::{TimeSource, TimestampScope, TimestampType, TimestampedFields, Timestamps};
use crate::document::Path;
use crate::patterns::stored_data::{DataCheck, all, any, is_absent, is_missing, is_one_of, not, value};

pub(super) fn checks(rule: &Timestamps) -> Vec<DataCheck> {
    let Some(store) = Path::parse(&rule.store) else { return Vec::new() };
    let mut checks = vec![without(rule, &store)];
    if rule.per == TimestampScope::Field {
        checks.push(DataCheck::each(
            format!("whose `{store}` is not a document"),
            "docward replaces it with the next write",
            not(any(vec![is_missing(&store), is_one_of(&store, &["object"])])),
        ));
    }
    if let (Some(ahead), TimestampType::Date) = (rule.max_ahead, rule.timestamp_type) {
        let is_ahead = |time: &str| doc! {"$gt": [time, {"$add": ["$$NOW", ahead]}]};
        let is_date = |time: &str| doc! {"$eq": [{"$type": time}, "date"]};
        let condition: Bson = match rule.per {
            TimestampScope::Document => all(vec![is_date(&value(&store)).into(), is_ahead(&value(&store)).into()]),
            TimestampScope::Field => {
                let times = doc! {"$cond": [is_one_of(&store, &["object"]), {"$objectToArray": value(&store)}, []]};
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
fn without(rule: &Timestamps, store: &Path) -> DataCheck {
    let (found, consequence) = (format!("without `{store}`"), "the next write wins, however old it is");
    let TimeSource::Field(source) = &rule.source else {
        return DataCheck::each(found, consequence, is_absent(store));
    };
    let kind = match rule.timestamp_type {
        TimestampType::Date => "date",
        TimestampType::Long => "long",
        TimestampType::Timestamp => "timestamp",
    };
    let times = match (rule.per, &rule.fields) {
        (TimestampScope::Document, _) => Some(Bson::from(value(source))),
        (TimestampScope::Field, TimestampedFields::Listed(fields)) if fields.iter().all(Path::is_top_level) => {
            let each = |field: &Path| {
                let time = doc! {"$cond": [is_missing(field), "$$REMOVE", value(source)]};
                (field.as_str().to_owned(), Bson::from(time))
            };
            Some(fields.iter().map(each).collect::<Document>().into())
        }
        // A timestamp of a document would also cover the fields inside it.
        (TimestampScope::Field, _) => None,
    };
    let Some(times) = times else { return DataCheck::each(found, consequence, is_absent(store)) };
    let has_time = is_one_of(source, &[kind]);
    DataCheck::each(format!("{found} and with `{source}`"), consequence, all(vec![is_missing(store), has_time]))
        .set(format!("`{store}` to the time in `{source}`"), doc! {store.as_str(): times})
}
