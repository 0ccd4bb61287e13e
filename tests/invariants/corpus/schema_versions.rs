//! Versions of `schema_version`: those that a filter names, and stored numbers of other types.

use super::*;

const VERSIONED: &str = "schema_version: { field: sv, current: 3, minimum: 1 }";

pub(super) fn entries() -> Vec<Entry> {
    let named = |version: Bson, filter: Document| {
        let mut query = doc! { "_id": 1 };
        query.extend(filter);
        Entry {
            name: "schema_version: a filter that names a version",
            rules: &[VERSIONED],
            stored: vec![doc! { "_id": 1, "sv": version }],
            steps: vec![update(query, doc! { "$set": { "x": 1 } })],
            must: "is a statement of that version",
            holds: |seen| seen.code() == 0 && seen.n() == 1 && is(seen, "x", 1),
        }
    };
    let protected = |version: Bson| Entry {
        name: "schema_version: a stored number of another type",
        must: "is newer than the statement",
        holds: |seen| seen.code() == 121 && !seen.one().contains_key("x"),
        ..named(version, doc! {})
    };
    vec![
        named(2.into(), doc! { "sv": { "$in": [Bson::Null, Bson::Int32(2)] } }),
        named(2.into(), doc! { "sv": { "$in": [Bson::Int32(2), Bson::from("x")] } }),
        named(2.into(), doc! { "sv": { "$in": [Bson::Int32(2), Bson::from(1.5)] } }),
        named(2.into(), doc! { "sv": { "$lte": 2.5 } }),
        named(2.into(), doc! { "sv": { "$lt": 2.5 } }),
        named(2.into(), doc! { "$or": [{ "sv": { "$lte": 2 } }] }),
        Entry {
            must: "is not a statement of a newer version",
            holds: |seen| seen.code() == 121 && is(seen, "sv", 2.5),
            ..named(2.5.into(), doc! { "sv": { "$lte": 2.5 } })
        },
        protected(decimal("5")),
        protected(1.5.into()),
        Entry {
            name: "schema_version: an upsert whose $max raises the version of its filter",
            rules: &[VERSIONED],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1, "sv": 2 }, doc! { "$max": { "sv": 3 } })],
            must: "inserts the higher version",
            holds: |seen| seen.code() == 0 && is(seen, "sv", 3),
        },
        Entry {
            name: "schema_version: an upsert whose $max leaves the version of its filter",
            rules: &[VERSIONED],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1, "sv": 2 }, doc! { "$max": { "sv": 1.0 } })],
            must: "inserts the version of the filter",
            holds: |seen| seen.code() == 0 && is(seen, "sv", 2),
        },
    ]
}
