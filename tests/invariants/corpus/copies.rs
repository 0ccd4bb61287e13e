//! References with `copies` in arrays.

use super::*;

const HOBBIES: &str = "copies: [{ into: protected.COLLECTION, key: hobbies.id, fields: { n: hobbies.n } }]";

fn hobbies() -> Vec<Document> {
    vec![doc! {
        "_id": 1,
        "tags": ["x", "y"],
        "hobbies": [{ "id": 100, "n": "A" }, { "id": 200, "n": "B" }],
    }]
}

pub(super) fn entries() -> Vec<Entry> {
    let of = |filter, change| Entry {
        name: "copies: a condition that can select the element of another original",
        rules: &[HOBBIES],
        stored: hobbies(),
        steps: vec![update(filter, change)],
        must: "does not change its copy",
        holds: |seen| seen.code() == 121 && seen.stored == hobbies(),
    };
    let set = || doc! { "$set": { "hobbies.$.n": "A2" } };
    let named = |name, filter| Entry {
        name,
        rules: &[HOBBIES],
        stored: hobbies(),
        steps: vec![update(filter, set())],
        must: "changes the copy of that original",
        holds: |seen| {
            let hobbies = seen.one().get_array("hobbies").cloned().unwrap_or_default();
            seen.code() == 0 && hobbies.first() == Some(&doc! { "id": 100, "n": "A2" }.into())
        },
    };
    vec![
        of(doc! { "hobbies.id": 100, "tags": "y" }, set()),
        of(doc! { "hobbies.id": 100, "tags": "y" }, doc! { "$unset": { "hobbies.$.n": 1 } }),
        of(doc! { "$and": [{ "hobbies.id": 100 }, { "hobbies.n": "B" }] }, set()),
        of(doc! { "hobbies": { "$elemMatch": { "id": 100 }, "$all": [{ "$elemMatch": { "n": "B" } }] } }, set()),
        of(doc! { "hobbies.id": { "$eq": 100, "$gt": 150 } }, set()),
        of(doc! { "hobbies.id": { "$all": [100, 200] } }, set()),
        named(
            "copies: $elemMatch inside $and names the original",
            doc! { "_id": 1, "$and": [{ "hobbies": { "$elemMatch": { "id": 100, "n": "A" } } }] },
        ),
        named("copies: a negated condition beside the key", doc! { "hobbies.id": 100, "tags": { "$ne": "z" } }),
    ]
}
