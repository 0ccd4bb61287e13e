//! Statements that two rules change: the second one must not undo or break what the first one made.

use super::*;

pub(super) fn entries() -> Vec<Entry> {
    vec![Entry {
        name: "sequence: a late replacement leaves a number where the document around the field would be",
        rules: &[SEQUENCE_INSIDE, "timestamps: { source: at, per: document }"],
        stored: vec![doc! { "_id": 1, "a": 1, "last_modified": date(PAST + 4000) }],
        steps: vec![upsert(doc! {}, doc! { "at": date(PAST + 2000) })],
        must: "n: 1, and nothing changes",
        holds: |seen| seen.code() == 0 && seen.n() == 1 && is(seen, "a", 1),
    }]
}
