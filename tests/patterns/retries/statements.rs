//! Statements for every pattern that checks or rewrites, as mongosh text. Each case has a number, `#`.

/// A collection with its rules.
pub(super) struct Protected {
    pub collection: &'static str,
    pub rules: &'static [&'static str],
    /// What is stored for each case. `_id` or `owner` is its number.
    pub stored: &'static [&'static str],
    pub plain: &'static [&'static str],
    /// Statements that keep the rule.
    pub checked: &'static [&'static str],
    /// Statements that the rule rejects, at once or after a check.
    pub rejected: &'static [&'static str],
}

/// Of any collection.
const NONE: Protected = Protected { collection: "", rules: &[], stored: &[], plain: &[], checked: &[], rejected: &[] };

const ADD: &str = "updateOne({_id: #}, {$inc: {n: 1}})";
/// A pipeline that makes another document.
const MERGED: &str =
    "updateOne({_id: #}, [{$replaceWith: {$mergeObjects: ['$$ROOT', {x: {$add: [{$ifNull: ['$x', 0]}, 1]}}]}}])";
const BLIND: &str = "updateOne({_id: #}, [{$replaceWith: {x: {$add: [{$ifNull: ['$x', 0]}, 1]}}}])";

pub(super) const PROTECTED: &[Protected] = &[
    Protected {
        collection: "bounded",
        rules: &["bounds: { field: n, min: 0 }"],
        stored: &["{_id: #, n: 5}"],
        plain: &[
            "updateOne({_id: #}, {$inc: {n: -1}})",
            "updateOne({_id: #}, {$set: {n: 3}, $inc: {x: 1}})",
            "updateOne({_id: #}, [{$set: {n: {$add: ['$n', -1]}}}])",
            "replaceOne({_id: #}, {n: 2})",
        ],
        checked: &["updateOne({_id: #}, {$mul: {n: 2}})", "updateOne({_id: #}, [{$set: {n: {$subtract: ['$n', 1]}}}])"],
        rejected: &["updateOne({_id: #}, {$set: {n: -1}, $inc: {x: 1}})", "updateOne({_id: #}, {$mul: {n: -1}})"],
    },
    Protected {
        collection: "strict",
        rules: &["bounds: { field: n, min: 0, on_no_room: error }"],
        stored: &["{_id: #, n: 5}"],
        plain: &["updateOne({_id: #}, {$inc: {n: -5}})", "updateOne({_id: #}, {$inc: {n: 1}}, {upsert: true})"],
        checked: &["updateOne({_id: #}, {$mul: {n: 2}})"],
        rejected: &["updateOne({_id: #}, {$inc: {n: -6}})", "updateOne({_id: #}, {$inc: {n: -5}}, {upsert: true})"],
    },
    Protected {
        collection: "lists",
        rules: &["limits: { items: { tags: 2 } }"],
        stored: &["{_id: #, tags: [0]}"],
        plain: &[
            "updateOne({_id: #}, {$push: {tags: 1}})",
            "updateOne({_id: #}, {$addToSet: {tags: 1}, $inc: {n: 1}})",
            "updateOne({_id: #}, {$set: {'tags.1': 1}, $inc: {n: 1}})",
        ],
        checked: &["updateOne({_id: #}, [{$set: {tags: {$concatArrays: ['$tags', [1]]}}}])"],
        rejected: &[
            "updateOne({_id: #}, {$push: {tags: {$each: [1, 2]}}})",
            "updateOne({_id: #}, [{$set: {tags: {$concatArrays: ['$tags', [1, 2]]}}}])",
        ],
    },
    Protected {
        collection: "small",
        rules: &["limits: { document: 100B }"],
        stored: &["{_id: #, x: 'abc', tags: []}"],
        plain: &[
            "updateOne({_id: #}, {$set: {x: 'abcd'}, $push: {tags: 1}})",
            "updateOne({_id: #}, {$push: {tags: 'a'}})",
        ],
        checked: &["updateOne({_id: #}, [{$set: {x: {$concat: ['$x', 'd']}}}])"],
        rejected: &[
            "updateOne({_id: #}, {$push: {tags: '0123456789012345678901234567890123456789012345678901234567890123456789'}})",
            "updateOne({_id: #}, [{$set: {tags: {$range: [0, 20]}, n: {$add: ['$_id', 1]}}}])",
        ],
    },
    Protected {
        collection: "shapes",
        rules: &["schema_version: { field: v, current: 3, minimum: 1 }"],
        stored: &["{_id: #, v: 1}"],
        plain: &[
            ADD,
            "updateOne({_id: #}, {$set: {v: 2}, $inc: {n: 1}})",
            "replaceOne({_id: #}, {v: 2, n: 1})",
            "insertOne({_id: '#b', owner: #, v: 3})",
        ],
        checked: &["updateOne({_id: #}, {$inc: {v: 1}})", MERGED],
        rejected: &[
            "replaceOne({_id: #}, {v: 0})",
            "updateOne({_id: #}, {$unset: {v: 1}, $inc: {n: 1}})",
            "updateOne({_id: #, v: 1}, {$set: {v: 9}, $inc: {n: 1}})",
        ],
    },
    Protected {
        collection: "merged",
        rules: &["replacement: { policy: merge }"],
        stored: &["{_id: #, a: 1, b: 1}"],
        plain: &["replaceOne({_id: #}, {a: 2})", ADD],
        checked: &[MERGED],
        rejected: &[BLIND],
    },
    Protected {
        collection: "blind",
        rules: &["replacement: {}"],
        stored: &["{_id: #, a: 1, b: 1}"],
        plain: &[ADD],
        checked: &[MERGED],
        rejected: &["replaceOne({_id: #}, {a: 2})", "replaceOne({_id: #}, {a: 2}, {upsert: true})", BLIND],
    },
    Protected {
        collection: "saves",
        rules: &["replacement: { policy: check_version, version: v }"],
        stored: &["{_id: #, v: 1}"],
        plain: &[
            "replaceOne({_id: #}, {v: 1, a: 1})",
            "replaceOne({_id: #, v: 1}, {v: 2, a: 1})",
            "replaceOne({_id: #}, {v: 1, a: 1}, {upsert: true})",
            "updateOne({_id: #}, {$set: {v: 1}, $inc: {n: 1}})",
            "updateOne({_id: #}, [{$set: {n: {$add: [{$ifNull: ['$n', 0]}, 1]}}}])",
            ADD,
        ],
        checked: &[MERGED, "updateOne({_id: #}, {$mul: {v: 2}, $inc: {n: 1}})"],
        rejected: &["replaceOne({_id: #}, {v: 0, a: 1})", "updateOne({_id: #}, {$inc: {v: -1}})"],
    },
    Protected {
        collection: "revisions",
        rules: &["replacement: { version: v, count_updates: false }"],
        stored: &["{_id: #, v: 'a', b: 1}"],
        plain: &["replaceOne({_id: #, v: 'a'}, {v: 'b'})", ADD],
        checked: &[MERGED],
        rejected: &["replaceOne({_id: #}, {v: 'b'})", BLIND],
    },
    Protected {
        collection: "inbox",
        rules: &["bucket: { array: m, count: c, limit: 2, opened: t }"],
        stored: &["{_id: #, owner: #, m: [0], c: 1}"],
        plain: &["updateOne({owner: #}, {$push: {m: 1}})", "updateOne({owner: #}, {$push: {m: 1}}, {upsert: true})"],
        checked: &[
            "updateOne({_id: #}, {$push: {m: 1}})",
            "updateOne({owner: #}, {$pull: {m: 0}, $inc: {n: 1}})",
            MERGED,
        ],
        rejected: &["updateOne({owner: #}, {$push: {m: {$each: [1, 2, 3]}}})"],
    },
    Protected {
        collection: "full",
        rules: &["bucket: { array: m, count: c, limit: 2 }"],
        stored: &["{_id: #, owner: #, m: [0, 0], c: 2}"],
        // It opens a new bucket.
        plain: &["updateOne({owner: #}, {$push: {m: 1}})"],
        checked: &[MERGED],
        rejected: &["updateOne({_id: #}, {$push: {m: 1}})"],
    },
    Protected {
        collection: "unopened",
        rules: &["bucket: { array: m, count: c, limit: 2, opened: t }"],
        stored: &[],
        // Without the rule it changes nothing.
        plain: &["updateOne({owner: #}, {$push: {m: 1}})"],
        checked: &[],
        rejected: &[],
    },
    Protected {
        collection: "jobs",
        rules: &["queue: { lease: 5m }"],
        stored: &[
            "{_id: '#a', owner: #, locked: false, try: 0, tlocked: null}",
            "{_id: '#b', owner: #, locked: false, try: 0, tlocked: null}",
        ],
        plain: &[
            "updateOne({owner: #, locked: false}, {$set: {locked: true}, $inc: {n: 1}})",
            "updateOne({_id: '#a', try: 0}, {$set: {done: true}, $inc: {n: 1}})",
            "deleteOne({owner: #, try: 0})",
            "insertOne({_id: '#c', owner: #})",
            "updateOne({_id: '#c'}, {$setOnInsert: {owner: #}}, {upsert: true})",
            "replaceOne({_id: '#c'}, {owner: #}, {upsert: true})",
        ],
        checked: &[
            "updateOne({owner: #, locked: false}, [{$replaceWith: {$mergeObjects: ['$$ROOT', {locked: true, n: 1}]}}])",
            "updateOne({owner: #, try: 0}, {$inc: {n: 1}, $rename: {x: 'y'}})",
        ],
        rejected: &["updateOne({_id: '#a'}, {$set: {done: true}, $inc: {n: 1}})", "deleteOne({_id: '#a'})"],
    },
    Protected {
        collection: "orders",
        rules: &["sequence: { field: no, counter: no, on_upsert: true }"],
        stored: &["{_id: #, no: 7}"],
        plain: &[ADD, "replaceOne({_id: #}, {x: 1})"],
        checked: &["updateOne({_id: #}, {$set: {no: 7}, $inc: {n: 1}})", MERGED],
        rejected: &["updateOne({_id: #}, {$set: {no: 8}, $inc: {n: 1}})", "updateOne({_id: #}, {$inc: {no: 1}})"],
    },
    Protected {
        collection: "numbered",
        rules: &["sequence: { field: no, counter: no2, on_upsert: true }"],
        stored: &[],
        plain: &[
            "insertOne({_id: #})",
            "insertOne({_id: #, no: 1000})",
            "insertMany([{_id: '#a', owner: #}, {_id: '#b', owner: #}])",
            "updateOne({_id: #}, {$inc: {n: 1}}, {upsert: true})",
            "updateOne({owner: #, x: 1}, {$inc: {n: 1}}, {upsert: true})",
            "replaceOne({_id: #}, {x: 1}, {upsert: true})",
            "updateOne({owner: #, x: {$in: [1]}}, {$inc: {n: 1}}, {upsert: true})",
        ],
        checked: &["updateOne({owner: #}, [{$replaceWith: {$mergeObjects: ['$$ROOT', {x: 1}]}}], {upsert: true})"],
        rejected: &[],
    },
    Protected {
        collection: "users",
        rules: &["sequence: { field: no, strategy: optimistic }"],
        stored: &[],
        plain: &["insertOne({_id: #})", "insertMany([{_id: '#a', owner: #}, {_id: '#b', owner: #}])"],
        checked: &[],
        rejected: &[],
    },
    Protected {
        collection: "invoices",
        rules: &["frozen: [c]"],
        stored: &["{_id: #, c: 'Ada'}"],
        plain: &[ADD],
        checked: &[
            "updateOne({_id: #}, {$set: {c: 'Ada'}, $inc: {n: 1}})",
            "replaceOne({_id: #}, {c: 'Ada', x: 1})",
            MERGED,
        ],
        rejected: &["updateOne({_id: #}, {$set: {c: 'Bob'}, $inc: {n: 1}})"],
    },
    Protected {
        collection: "loans",
        rules: &["together: [n, tags]"],
        stored: &["{_id: #, n: 0, tags: []}"],
        plain: &["updateOne({_id: #}, {$inc: {n: 1}, $push: {tags: 1}})"],
        checked: &["updateOne({_id: #}, [{$set: {n: {$add: ['$n', 1]}, tags: {$concatArrays: ['$tags', [1]]}}}])"],
        rejected: &[ADD, "updateOne({_id: #}, [{$set: {n: {$add: ['$n', 1]}}}])"],
    },
    Protected {
        collection: "events",
        rules: &["timestamps: { source: at, type: long, fields: [title] }"],
        stored: &["{_id: #, owner: #, tags: []}"],
        plain: &[
            "updateOne({_id: #}, {$set: {at: NumberLong(7), title: 't'}, $inc: {n: 1}})",
            "updateOne({owner: #}, {$set: {at: NumberLong(7), title: 't', owner: #}})",
        ],
        checked: &["updateOne({_id: #}, {$set: {at: NumberLong(7), title: 't'}, $push: {tags: 1}})"],
        rejected: &[
            "updateOne({_id: #}, {$set: {title: 'u'}, $inc: {n: 1}})",
            "replaceOne({_id: #}, {owner: #, at: NumberLong(7), title: 't'})",
        ],
    },
    Protected {
        collection: "states",
        rules: &["timestamps: { source: at, type: long, per: document }"],
        stored: &["{_id: #, tags: []}"],
        plain: &[
            "replaceOne({_id: #}, {at: NumberLong(7), x: 1})",
            "updateOne({_id: #}, {$set: {at: NumberLong(7), x: 1}})",
        ],
        checked: &[],
        rejected: &[
            "replaceOne({_id: #}, {x: 1})",
            "updateOne({_id: #}, {$set: {at: NumberLong(7)}, $push: {tags: 1}})",
        ],
    },
    Protected {
        collection: "nodes",
        rules: &["tree: { path: path, parent: parent }"],
        stored: &["{_id: '#', owner: #, path: null}", "{_id: '#a', owner: #, path: null}"],
        plain: &["updateOne({_id: '#'}, {$inc: {n: 1}})"],
        checked: &[
            "updateOne({_id: '#'}, {$set: {parent: '#a'}, $inc: {n: 1}})",
            "insertOne({_id: '#b', owner: #, parent: '#'})",
            "insertMany([{_id: '#b', owner: #, parent: '#'}, {_id: '#c', owner: #, parent: '#b'}])",
            "deleteOne({owner: #})",
        ],
        rejected: &["updateOne({_id: '#'}, {$set: {parent: '#'}, $inc: {n: 1}})"],
    },
    Protected {
        collection: "authors",
        rules: &[
            "copies: [{ into: DATABASE.books, key: author_id, fields: { name: author_name }, on_delete: reject }]",
        ],
        stored: &["{_id: '#a', owner: #, name: 'Ada'}", "{_id: '#b', owner: #, name: 'Ada'}"],
        plain: &["updateOne({_id: '#a'}, {$set: {name: 'Bob'}, $inc: {n: 1}})"],
        checked: &["deleteOne({owner: #})"],
        rejected: &[],
    },
    Protected {
        collection: "books",
        stored: &["{_id: #, author_id: 0, author_name: 'Ada'}"],
        plain: &[ADD],
        checked: &["updateOne({_id: #}, {$set: {author_id: 0, author_name: 'Ada'}, $inc: {n: 1}})"],
        rejected: &["updateOne({_id: #}, {$set: {author_id: 7}, $inc: {n: 1}})"],
        ..NONE
    },
    Protected {
        collection: "people",
        rules: &[
            "copies: [{ into: DATABASE.people, key: friend.id, fields: { name: friend.name }, on_delete: unset }]",
        ],
        stored: &["{_id: #, name: 'Ada', friend: {id: 0, name: 'Ada'}}"],
        plain: &["updateOne({_id: #}, {$set: {friend: {id: #, name: 'Ada'}}, $inc: {n: 1}})", "deleteOne({_id: #})"],
        checked: &[MERGED],
        rejected: &["updateOne({_id: #}, {$set: {'friend.id': 7}, $inc: {n: 1}})"],
    },
    Protected {
        collection: "protected",
        rules: &["deny: { operations: [update, delete], when: { uses: [$where] } }"],
        stored: &["{_id: #}"],
        rejected: &["updateOne({_id: #, $where: 'true'}, {$inc: {n: 1}})", "deleteOne({_id: #, $where: 'true'})"],
        ..NONE
    },
    // Rules that rewrite a statement before others evaluate it.
    Protected {
        collection: "two",
        rules: &["replacement: { policy: merge }", "frozen: [c]", "bounds: { field: n, min: 0 }"],
        stored: &["{_id: #, c: 'Ada', n: 5, x: 1}"],
        plain: &["replaceOne({_id: #}, {n: 4})", "updateOne({_id: #}, {$inc: {n: -1}})"],
        checked: &["replaceOne({_id: #}, {c: 'Ada', n: 4})", "updateOne({_id: #}, {$mul: {n: 2}})", MERGED],
        rejected: &["replaceOne({_id: #}, {c: 'Bob', n: 4})", "replaceOne({_id: #}, {n: -1})"],
    },
    Protected {
        collection: "timed",
        rules: &["timestamps: { source: at, type: long, fields: [n] }", "replacement: { version: v }"],
        stored: &["{_id: #, owner: #, v: 1, n: 0}"],
        plain: &[
            "updateOne({owner: #}, {$set: {at: NumberLong(7), n: 2}})",
            "updateOne({_id: #}, {$set: {at: NumberLong(7), n: 2}})",
        ],
        checked: &["updateOne({_id: #}, {$set: {at: NumberLong(7), n: 2}, $push: {tags: 1}})"],
        rejected: &["updateOne({_id: #}, {$set: {n: 2}})"],
    },
    Protected {
        collection: "queued",
        rules: &[
            "queue: { lease: 5m }",
            "limits: { items: { tags: 2 } }",
            "schema_version: { field: s, current: 2, minimum: 1 }",
        ],
        stored: &["{_id: #, owner: #, locked: false, try: 0, tlocked: null, tags: [0], s: 1}"],
        plain: &["updateOne({owner: #, locked: false}, {$set: {locked: true}, $push: {tags: 1}})"],
        checked: &["updateOne({_id: #, try: 0}, [{$set: {tags: {$concatArrays: ['$tags', [1]]}}}])"],
        rejected: &["updateOne({_id: #, try: 0}, {$push: {tags: {$each: [1, 2]}}})"],
    },
];
