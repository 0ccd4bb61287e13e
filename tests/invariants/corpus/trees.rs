//! Nodes of `tree`.

use super::*;

pub(super) fn entries() -> Vec<Entry> {
    [placed(), parents_by_path(), changed_beside(), many_upserts(), around_the_path()].into_iter().flatten().collect()
}

fn soon_a_duplicate(seen: &Seen) -> bool {
    seen.code() == 11000 && seen.took < Duration::from_secs(2)
}

/// The path alone names the parent, which docward adds.
fn parents_by_path() -> Vec<Entry> {
    const BOTH: &[&str] = &[TREE, "together: [parent, x]"];
    const NUMBERS: &[&str] = &[TREE, "bounds: { field: parent, min: 0, max: 9 }"];
    let alone = |step| Entry {
        name: "tree and together: the parent is added, and not its partner",
        rules: BOTH,
        stored: vec![doc! { "_id": "a", "path": null }, doc! { "_id": "i", "path": ",a,", "parent": "a", "x": 1 }],
        steps: vec![step],
        must: "is rejected",
        holds: |seen| {
            let count = seen.stored.iter().filter(|node| node.contains_key("parent") != node.contains_key("x")).count();
            seen.code() == 121 && format!("{}", seen.last()).contains("after the changes of rule") && count == 0
        },
    };
    let number = |id: i32, code| Entry {
        name: "tree and bounds: the added parent is in range, or not",
        rules: NUMBERS,
        stored: vec![doc! { "_id": 50, "path": null }, doc! { "_id": 5, "path": null }],
        steps: vec![insert(vec![doc! { "_id": 51, "path": format!(",{id},") }])],
        must: "is rejected if it is not",
        holds: if code == 0 {
            |seen| seen.code() == 0 && seen.stored.len() == 3
        } else {
            |seen| seen.code() == 121 && seen.stored.len() == 2
        },
    };
    vec![
        alone(insert(vec![doc! { "_id": "g", "path": ",a," }])),
        alone(update(doc! { "_id": "i" }, doc! { "path": ",a," })),
        alone(upsert(doc! { "_id": "h", "path": ",a," }, doc! { "$set": { "q": 1 } })),
        Entry {
            name: "tree and together: the parent is added to its partner",
            must: "is stored",
            holds: |seen| seen.code() == 0 && seen.stored.len() == 3,
            ..alone(upsert(doc! { "_id": "h", "path": ",a,", "parent": "a", "x": 1 }, doc! { "$set": { "q": 1 } }))
        },
        number(50, 121),
        number(5, 0),
    ]
}

fn placed() -> Vec<Entry> {
    vec![
        Entry {
            name: "tree: a retry of an upsert that inserted a document, with a limit",
            rules: &[TREE, "limits: { items: { messages: 5 } }"],
            stored: vec![],
            steps: vec![resent(upsert(doc! { "_id": 1 }, doc! { "$push": { "messages": 1 } }))],
            must: "does not report that a document matched",
            holds: |seen| seen.code() == 217 && is(seen, "messages", vec![1]),
        },
        Entry {
            name: "tree: a replacement with another _id",
            rules: &["tree: { path: path, parent: parent, on_delete: cascade }"],
            stored: vec![doc! { "_id": 1, "path": null }],
            steps: vec![find_and_modify(doc! {}, doc! { "_id": 6, "note": 1 })],
            must: "is the server's error",
            holds: |seen| seen.code() == 66 && seen.one().get("_id") == Some(&Bson::Int32(1)),
        },
        Entry {
            name: "tree: an upsert that collides with a stored node",
            rules: &[TREE],
            stored: nodes(),
            steps: vec![upsert(doc! { "_id": "b", "x": 5 }, doc! { "$set": { "y": 1 } })],
            must: "the server's 11000, at once",
            holds: soon_a_duplicate,
        },
        Entry {
            name: "tree: the same beside a version",
            rules: &[TREE, CHECK],
            stored: nodes(),
            steps: vec![upsert(doc! { "_id": "b", "x": 5 }, doc! { "$set": { "y": 1 } })],
            must: "the server's 11000, at once",
            holds: soon_a_duplicate,
        },
        Entry {
            name: "tree: the same beside bounds",
            rules: &[TREE, "bounds: { field: n, min: 0 }"],
            stored: nodes(),
            steps: vec![upsert(doc! { "_id": "b", "x": 5 }, doc! { "$set": { "y": 1 } })],
            must: "the server's 11000, at once",
            holds: soon_a_duplicate,
        },
        Entry {
            name: "tree: an upsert with its parent in a branch of $or",
            rules: &[TREE],
            stored: nodes(),
            steps: vec![upsert(doc! { "_id": "d", "$or": [{ "parent": "b" }] }, doc! { "$set": { "y": 1 } })],
            must: "the node gets the parent's path, or is not inserted",
            holds: |seen| seen.stored.get(3).is_none_or(|node| matches!(node.get_str("path"), Ok(",a,b,"))),
        },
        Entry {
            name: "tree: an upsert with its parent in $in",
            rules: &[TREE],
            stored: nodes(),
            steps: vec![upsert(doc! { "_id": "d", "parent": { "$in": ["b"] } }, doc! { "$set": { "y": 1 } })],
            must: "the node gets the parent's path, or is not inserted",
            holds: |seen| seen.stored.get(3).is_none_or(|node| matches!(node.get_str("path"), Ok(",a,b,"))),
        },
        Entry {
            name: "tree: a replacing upsert whose filter has a parent that the document has not",
            rules: &[TREE],
            stored: nodes(),
            steps: vec![upsert(doc! { "_id": "d", "parent": "x" }, doc! { "y": 1 })],
            must: "inserts a root, as the server does",
            holds: |seen| seen.stored.len() == 4,
        },
        Entry {
            name: "tree: an upsert pins a field in the parent",
            rules: &[TREE],
            stored: nodes(),
            steps: vec![upsert(doc! { "_id": "d", "parent.x": 1 }, doc! { "$set": { "y": 1 } })],
            must: "inserts no node whose parent is none",
            holds: |seen| seen.stored.len() == 3,
        },
        Entry {
            name: "tree: a late move that would close a circle",
            rules: &[TREE, "timestamps: { source: at, fields: [parent] }"],
            stored: vec![
                doc! { "_id": "a", "path": Bson::Null, "last_modified": { "parent": date(PAST + 1000) } },
                doc! { "_id": "b", "parent": "a", "path": ",a," },
            ],
            steps: vec![update(doc! { "_id": "a" }, doc! { "$set": { "parent": "b", "at": date(PAST) } })],
            must: "is ignored, not rejected",
            holds: |seen| seen.code() == 0 && !seen.one().contains_key("parent"),
        },
    ]
}

/// Upserts of many documents that do not move a stored node.
fn many_upserts() -> Vec<Entry> {
    let many = |change: Document| {
        plain(doc! { "update": "c", "updates": [{ "q": { "k": 1 }, "u": change, "multi": true, "upsert": true }] })
    };
    let note = || doc! { "$set": { "note": 1 } };
    let stored =
        || vec![doc! { "_id": "a", "path": null, "k": 1 }, doc! { "_id": "b", "parent": "a", "path": ",a,", "k": 1 }];
    vec![
        Entry {
            name: "tree: an upsert of many documents that sets another field",
            rules: &[TREE],
            stored: stored(),
            steps: vec![many(note())],
            must: "changes all of them",
            holds: |seen| seen.n() == 2 && seen.stored.iter().all(|node| node.contains_key("note")),
        },
        Entry {
            name: "tree: an upsert of many documents, and none is stored",
            rules: &[TREE],
            stored: vec![],
            steps: vec![many(note())],
            must: "inserts a root",
            holds: |seen| seen.code() == 0 && is(seen, "note", 1) && is(seen, "path", Bson::Null),
        },
        Entry {
            name: "tree: an upsert of many documents that inserts a child",
            rules: &[TREE],
            stored: vec![doc! { "_id": "a", "path": null }],
            steps: vec![many(doc! { "$set": { "note": 1 }, "$setOnInsert": { "_id": "b", "parent": "a" } })],
            must: "inserts it with its path",
            holds: |seen| seen.stored.get(1).is_some_and(|node| matches!(node.get_str("path"), Ok(",a,"))),
        },
        Entry {
            name: "tree: an upsert of many documents that sets a parent",
            rules: &[TREE],
            stored: stored(),
            steps: vec![many(doc! { "$set": { "parent": "a" } })],
            must: "is rejected",
            holds: |seen| seen.code() == 121,
        },
    ]
}

/// A field around the path and the parent gets the value of another one.
fn around_the_path() -> Vec<Entry> {
    let of = |moved: Document, must, holds: fn(&Seen) -> bool| Entry {
        name: "tree: a $rename to the field around the path",
        rules: &["tree: { path: t.path, parent: t.up }"],
        stored: vec![
            doc! { "_id": "A", "t": { "path": null } },
            doc! { "_id": "B", "t": { "up": "A", "path": ",A," }, "x": moved },
            doc! { "_id": "C", "t": { "path": null } },
        ],
        steps: vec![update(doc! { "_id": "B" }, doc! { "$rename": { "x": "t" } })],
        must,
        holds,
    };
    vec![
        of(doc! { "up": "A" }, "keeps the path", |seen| seen.code() == 0 && path_of(seen) == Some(",A,".into())),
        of(doc! { "up": "C" }, "gets the path of its new parent", |seen| {
            seen.code() == 0 && path_of(seen) == Some(",C,".into())
        }),
        of(doc! { "up": "A", "path": null }, "keeps the path", |seen| {
            seen.code() == 0 && path_of(seen) == Some(",A,".into())
        }),
        of(doc! { "up": "A", "path": ",C," }, "is rejected", |seen| {
            seen.code() == 121 && path_of(seen) == Some(",A,".into())
        }),
    ]
}

fn path_of(seen: &Seen) -> Option<Bson> {
    seen.stored.get(1).and_then(|node| at(node, "t.path")).cloned()
}

fn changed_beside() -> Vec<Entry> {
    let removes = [
        doc! { "$unset": { "path": 1 } },
        doc! { "$rename": { "path": "way" } },
        doc! { "$set": { "parent": "b" }, "$unset": { "path": 1 } },
    ];
    let mut entries: Vec<Entry> = removes
        .into_iter()
        .map(|change| Entry {
            name: "tree: the path of a root is removed",
            rules: &[TREE],
            stored: vec![doc! { "_id": "a", "path": null }, doc! { "_id": "b", "path": null }],
            steps: vec![update(doc! { "_id": "a" }, change)],
            must: "is rejected",
            holds: |seen| seen.code() == 121 && seen.one() == doc! { "_id": "a", "path": null },
        })
        .collect();
    entries.push(Entry {
        name: "tree: an $unset of a root's path that is not there",
        rules: &[TREE],
        stored: vec![doc! { "_id": "a" }],
        steps: vec![update(doc! { "_id": "a" }, doc! { "$unset": { "path": 1 }, "$set": { "x": 1 } })],
        must: "removes nothing",
        holds: |seen| seen.code() == 0 && is(seen, "x", 1),
    });
    entries.push(Entry {
        name: "tree: a version that cannot be incremented, in a transaction",
        rules: &[CHECK, TREE],
        stored: vec![
            doc! { "_id": "a", "path": null, "version": i64::MAX },
            doc! { "_id": "b", "path": null, "version": "text" },
            doc! { "_id": "c", "path": null, "version": 1 },
        ],
        steps: vec![
            transaction(update(doc! { "_id": "a" }, doc! { "$set": { "parent": "c" } })),
            transaction(update(doc! { "_id": "b" }, doc! { "$set": { "parent": "c" } })),
            transaction(upsert(doc! { "_id": "d" }, doc! { "$set": { "parent": "c" } })),
        ],
        must: "the nodes move, and only a number is incremented",
        holds: |seen| {
            let paths: Vec<_> = seen.stored.iter().map(|node| node.get_str("path").unwrap_or_default()).collect();
            let versions: Vec<_> = seen.stored.iter().filter_map(|node| node.get("version").cloned()).collect();
            paths == [",c,", ",c,", "", ",c,"]
                && versions == [i64::MAX.into(), "text".into(), Bson::Int32(1), Bson::Int32(1)]
        },
    });
    entries
}
