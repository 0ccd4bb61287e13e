//! Statements that two rules change, where the second one must not undo or break what the first one made, and upserts
//! whose document depends on the server's version.

use super::*;

pub(super) fn entries() -> Vec<Entry> {
    vec![
        Entry {
            name: "sequence: a late replacement leaves a number where the document around the field would be",
            rules: &[SEQUENCE_INSIDE, "timestamps: { source: at, per: document }"],
            stored: vec![doc! { "_id": 1, "a": 1, "last_modified": date(PAST + 4000) }],
            steps: vec![upsert(doc! {}, doc! { "at": date(PAST + 2000) })],
            must: "n: 1, and nothing changes",
            holds: |seen| seen.code() == 0 && seen.n() == 1 && is(seen, "a", 1),
        },
        Entry {
            name: "queue: an upsert whose filter pins a field of the lease only on later servers",
            rules: &["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
            stored: vec![],
            steps: vec![upsert(
                doc! { "$or": [{ "tlocked": date(PAST) }, { "tlocked": date(PAST) }] },
                doc! { "$setOnInsert": { "a": 1 } },
            )],
            must: "inserts no job without the field",
            holds: |seen| seen.stored.iter().all(|job| job.contains_key("tlocked")),
        },
    ]
}
