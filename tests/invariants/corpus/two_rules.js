// Rules on one collection of which one changes, or keeps, what the other compares; and fields around and beside those of
// a rule.
[
// Updates of many documents, of which some have a version that cannot be incremented, in a transaction of docward's.
{
  name: "replacement + tree: an upsert of many documents, one with a version that is a text",
  must: "changes all, and counts the numbers up",
  rules: ["replacement: { policy: check_version, version: v }", "tree: {}"],
  stored: [{_id: "a", v: 1}, {_id: "b", v: "x"}],
  steps: [{
    command: {update: "c", updates: [{q: {}, u: {$set: {z: 2}}, multi: true, upsert: true}]},
    reply: {n: 2, nModified: 2, ok: 1},
  }],
  after: [{_id: "a", v: 2, z: 2}, {_id: "b", v: "x", z: 2}],
},
{
  name: "replacement + tree: an upsert of many documents in a transaction",
  must: "changes all, and counts the numbers up",
  rules: ["replacement: { policy: check_version, version: v }", "tree: {}"],
  stored: [{_id: "a", v: 1}, {_id: "b", v: "x"}],
  steps: [{
    session: "in a transaction, then commit",
    command: {update: "c", updates: [{q: {}, u: {$set: {z: 2}}, multi: true, upsert: true}]},
    reply: {n: 2, nModified: 2, ok: 1},
    commit: {ok: 1},
  }],
  after: [{_id: "a", v: 2, z: 2}, {_id: "b", v: "x", z: 2}],
},
// Late writes of fields by which another rule decides.
{
  name: "timestamps + replacement: a late write counts the version up",
  must: "the second is a conflict",
  rules: ["replacement: { policy: check_version, version: v }", "timestamps: { source: sent, type: long, store: ts }"],
  stored: [{_id: 1, note: "n", v: 2, sent: Long("9"), ts: {v: Long("9"), sent: Long("9")}}],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {note: "x", v: 2, sent: Long("8")}}}]},
      reply: {n: 1, nModified: 1, ok: 1},
    },
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {note: "y", v: 2, sent: Long("8")}}}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 112, pattern: "replacement"}], ok: 1},
    },
  ],
  after: [{_id: 1, note: "x", v: 3, sent: Long("9"), ts: {v: Long("9"), sent: Long("9"), note: Long("8")}}],
},
{
  name: "timestamps + schema_version: a late write sets the version of its format",
  must: "old code cannot write it any more",
  rules: [
    "schema_version: { field: sv, current: 3, minimum: 2 }",
    "timestamps: { source: sent, type: long, store: ts }",
  ],
  stored: [{_id: 1, name: "Ada", sv: 2, sent: Long("9"), ts: {sv: Long("9")}}],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {sv: 3, first: "Ada", sent: Long("8")}}}]},
      reply: {n: 1, nModified: 1, ok: 1},
    },
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {name: "Grace", sent: Long("10")}}}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "schema_version"}], ok: 1},
    },
  ],
  after: [{
    _id: 1,
    name: "Ada",
    sv: 3,
    sent: Long("8"),
    ts: {sv: Long("9"), first: Long("8"), sent: Long("8")},
    first: "Ada",
  }],
},
{
  name: "timestamps + schema_version: a late write of a document around the version",
  must: "is rejected",
  rules: [
    "schema_version: { field: m.sv, current: 3, minimum: 2 }",
    "timestamps: { source: sent, type: long, store: ts }",
  ],
  stored: [{_id: 1, name: "Ada", m: {sv: 2}, ts: {m: Long("9")}}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {m: {sv: 3}, first: "Ada", sent: Long("8")}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "timestamps"}], ok: 1},
  }],
  after: [{_id: 1, name: "Ada", m: {sv: 2}, ts: {m: Long("9")}}],
},
{
  name: "timestamps + queue: a late claim locks the job",
  must: "only one claim wins",
  rules: ["queue: { lease: 5m }", "timestamps: { source: sent, type: long, store: ts }"],
  stored: [{_id: 1, locked: false, try: 0, tlocked: Long("1000000000000"), sent: Long("7"), ts: {locked: Long("7")}}],
  steps: [
    {
      command: {findAndModify: "c", query: {_id: 1}, update: {$set: {locked: true, by: 1, sent: Long("5")}}},
      reply: {
        lastErrorObject: {n: 1, updatedExisting: true},
        value: {
          _id: 1,
          locked: false,
          try: 0,
          tlocked: Long("1000000000000"),
          sent: Long("7"),
          ts: {locked: Long("7")},
        },
        ok: 1,
      },
    },
    {
      command: {findAndModify: "c", query: {_id: 1}, update: {$set: {locked: true, by: 2, sent: Long("5")}}},
      reply: {lastErrorObject: {n: 0, updatedExisting: false}, value: null, ok: 1},
    },
  ],
  after: [{
    _id: 1,
    locked: true,
    try: 1,
    tlocked: {$now: "date"},
    sent: Long("5"),
    ts: {locked: Long("7"), by: Long("5"), sent: Long("5")},
    by: 1,
  }],
},
{
  name: "timestamps per: document + queue: a late claim locks the job",
  must: "only one claim wins",
  rules: ["queue: { lease: 5m }", "timestamps: { source: sent, type: long, store: ts, per: document }"],
  stored: [{_id: 1, locked: false, try: 0, tlocked: Long("1000000000000"), sent: Long("7"), ts: Long("7")}],
  steps: [
    {
      command: {findAndModify: "c", query: {_id: 1}, update: {$set: {locked: true, by: 1, sent: Long("5")}}},
      reply: {
        lastErrorObject: {n: 1, updatedExisting: true},
        value: {_id: 1, locked: false, try: 0, tlocked: Long("1000000000000"), sent: Long("7"), ts: Long("7")},
        ok: 1,
      },
    },
    {
      command: {findAndModify: "c", query: {_id: 1}, update: {$set: {locked: true, by: 2, sent: Long("5")}}},
      reply: {lastErrorObject: {n: 0, updatedExisting: false}, value: null, ok: 1},
    },
  ],
  after: [{_id: 1, locked: true, try: 1, tlocked: {$now: "date"}, sent: Long("7"), ts: Long("7")}],
},
{
  name: "timestamps per: document + queue: a claim by replacement could be late",
  must: "is rejected",
  rules: ["queue: { lease: 5m }", "timestamps: { source: sent, type: long, store: ts, per: document }"],
  stored: [{_id: 1, locked: true, try: 2, tlocked: Long("1000000000000"), sent: Long("7"), ts: Long("7")}],
  steps: [{
    command: {findAndModify: "c", query: {_id: 1, try: 2}, update: {locked: true, try: 3, sent: Long("5")}},
    reply: {ok: 0, code: 121, pattern: "queue"},
  }],
  after: [{_id: 1, locked: true, try: 2, tlocked: Long("1000000000000"), sent: Long("7"), ts: Long("7")}],
},
{
  name: "together: an operator around one field, or on a number beside it",
  must: "is rejected",
  rules: ["together: [s.p.a, s.q.b]"],
  stored: [{_id: 1, s: {p: {a: 1}, q: {b: 1}}}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {"s.q.b": 9}, $currentDate: {"s.p": true}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
  }],
  after: [{_id: 1, s: {p: {a: 1}, q: {b: 1}}}],
},
{
  name: "together: an operator around one field, or on a number beside it",
  must: "is rejected",
  rules: ["together: [s.p.a, s.q.b]"],
  stored: [{_id: 1, s: {p: {a: 1}, q: {b: 1}}}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {"s.q.b": 9, "s.p.0": 1}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
  }],
  after: [{_id: 1, s: {p: {a: 1}, q: {b: 1}}}],
},
{
  name: "together: an operator around one field, or on a number beside it",
  must: "is rejected",
  rules: ["together: [s.p.a, s.q.b]"],
  stored: [{_id: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {"s.q.b": 9}, $inc: {"s.p": 1}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
  }],
  after: [{_id: 1}],
},
{
  name: "together: an operator around one field, or on a number beside it",
  must: "is rejected",
  rules: ["together: [s.p.a, s.q.b]"],
  stored: [{_id: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {"s.q.b": 9}, $push: {"s.p": 1}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
  }],
  after: [{_id: 1}],
},
{
  name: "together: an operator around one field, or on a number beside it",
  must: "is rejected",
  rules: ["together: [s.p, s.q]"],
  stored: [{_id: 1, s: {p: 1, q: 1}}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {"s.p": 5, "s.0": 3}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
  }],
  after: [{_id: 1, s: {p: 1, q: 1}}],
},
{
  name: "together: an operator around one field, or on a number beside it",
  must: "is rejected",
  rules: ["together: [s.p, s.q]"],
  stored: [{_id: 1, s: {p: 1, q: 1}}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {"s.p": 5}, $unset: {"s.0": ""}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
  }],
  after: [{_id: 1, s: {p: 1, q: 1}}],
},
{
  name: "together: an operator around one field, or on a number beside it",
  must: "is rejected",
  rules: ["together: [s.p, s.q]"],
  stored: [{_id: 1, s: {p: 1, q: 1}}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$unset: {"s.p": 1, "s.0": 1}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
  }],
  after: [{_id: 1, s: {p: 1, q: 1}}],
},
{
  name: "together: an operator around one field, or on a number beside it",
  must: "is rejected",
  rules: ["together: [s.p, s.q]"],
  stored: [{_id: 1, s: [{p: 1, q: 1}]}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$unset: {"s.x": 1}, $set: {"s.0.p": 5}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
  }],
  after: [{_id: 1, s: [{p: 1, q: 1}]}],
},
{
  name: "together: an operator around one field, or on a number beside it",
  must: "is rejected",
  rules: ["together: [s.p, s.q]"],
  stored: [{_id: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {"s.p": 1, "s.0.p": 1, "s.0.q": 1}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
  }],
  after: [{_id: 1}],
},
{
  name: "together: an operator around one field, or on a number beside it",
  must: "is rejected",
  rules: ["together: [s.p, s.q]"],
  stored: [{_id: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$inc: {"s.0": 3}, $push: {"s.p.10": -1}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
  }],
  after: [{_id: 1}],
},
// A save that makes a node a root, with the path that it was read with.
{
  name: "tree: a parent of null beside a path",
  must: "is rejected",
  rules: ["tree: {}"],
  stored: [{_id: "A", path: null}, {_id: "B", parent: "A", path: ",A,", t: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: "B"}, u: {_id: "B", parent: null, path: ",A,", t: 2}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "tree"}], ok: 1},
  }],
  after: [{_id: "A", path: null}, {_id: "B", parent: "A", path: ",A,", t: 1}],
},
{
  name: "tree: an inserted node with a parent of null and a path",
  must: "is rejected",
  rules: ["tree: {}"],
  stored: [{_id: "A", path: null}, {_id: "B", parent: "A", path: ",A,", t: 1}],
  steps: [{
    command: {insert: "c", documents: [{_id: "D", parent: null, path: ",A,"}]},
    reply: {n: 0, writeErrors: [{index: 0, code: 121, pattern: "tree"}], ok: 1},
  }],
  after: [{_id: "A", path: null}, {_id: "B", parent: "A", path: ",A,", t: 1}],
},
{
  name: "tree: an inserted root with a parent of null",
  must: "is inserted",
  rules: ["tree: {}"],
  stored: [{_id: "A", path: null}, {_id: "B", parent: "A", path: ",A,", t: 1}],
  steps: [{command: {insert: "c", documents: [{_id: "D", parent: null}]}, reply: {n: 1, ok: 1}}],
  after: [{_id: "A", path: null}, {_id: "B", parent: "A", path: ",A,", t: 1}, {_id: "D", parent: null, path: null}],
},
{
  name: "tree: a path without a parent still gives the parent",
  must: "gets the parent",
  rules: ["tree: {}"],
  stored: [{_id: "A", path: null}, {_id: "B", parent: "A", path: ",A,", t: 1}],
  steps: [{command: {insert: "c", documents: [{_id: "D", path: ",A,"}]}, reply: {n: 1, ok: 1}}],
  after: [{_id: "A", path: null}, {_id: "B", parent: "A", path: ",A,", t: 1}, {_id: "D", path: ",A,", parent: "A"}],
},
// Upserts by `merge` of a document that has a version and nothing else.
{
  name: "replacement: merge inserts a document with only a version",
  must: "has a version",
  rules: ["replacement: { policy: merge, version: m.v }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 9}, u: {m: {v: 1}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: 9}], nModified: 0, ok: 1},
  }],
  after: [{_id: 9, m: {v: 1}}],
},
{
  name: "replacement: merge inserts a document with only a version",
  must: "has a version",
  rules: ["replacement: { policy: merge, version: m.v }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 9}, u: {m: {}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: 9}], nModified: 0, ok: 1},
  }],
  after: [{_id: 9, m: {v: 1}}],
},
{
  name: "replacement: merge inserts a document with only a version",
  must: "has a version",
  rules: ["replacement: { policy: merge, version: v }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 9}, u: {v: 1}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: 9}], nModified: 0, ok: 1},
  }],
  after: [{_id: 9, v: 1}],
},
{
  name: "replacement: merge inserts a document with only a version",
  must: "has a version",
  rules: ["replacement: { policy: merge, version: v }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 9}, u: {}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: 9}], nModified: 0, ok: 1},
  }],
  after: [{_id: 9, v: 1}],
},
// Saves of an old format whose version is the stored one.
{
  name: "replacement + schema_version: the version is a document",
  must: "is rejected by schema_version, and is no version conflict",
  rules: [
    "replacement: { policy: check_version, version: v }",
    "schema_version: { field: sv, current: 3, minimum: 1 }",
  ],
  stored: [{_id: 1, v: {u: 1}, sv: 3}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {v: {u: Double(1.0)}, sv: 2, x: 1}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "schema_version"}], ok: 1},
  }],
  after: [{_id: 1, v: {u: 1}, sv: 3}],
},
{
  name: "replacement + schema_version: the version is a regular expression",
  must: "is rejected by schema_version, and is no version conflict",
  rules: [
    "replacement: { policy: check_version, version: v }",
    "schema_version: { field: sv, current: 3, minimum: 1 }",
  ],
  stored: [{_id: 1, v: /^x/, sv: 3}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {v: /^x/, sv: 2, x: 1}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "schema_version"}], ok: 1},
  }],
  after: [{_id: 1, v: /^x/, sv: 3}],
},
{
  name: "replacement + schema_version: the version is an element of the stored array",
  must: "is rejected by schema_version, and is no version conflict",
  rules: [
    "replacement: { policy: check_version, version: v }",
    "schema_version: { field: sv, current: 3, minimum: 1 }",
  ],
  stored: [{_id: 1, v: [3, 4], sv: 3}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {v: 4, sv: 2, x: 1}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "schema_version"}], ok: 1},
  }],
  after: [{_id: 1, v: [3, 4], sv: 3}],
},
{
  name: "replacement + schema_version: a version is set over a text",
  must: "is rejected by schema_version, and is no version conflict",
  rules: ["replacement: { version: v }", "schema_version: { field: sv, current: 3, minimum: 1 }"],
  stored: [{_id: 1, v: "a", sv: 3}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {v: 3, sv: 2}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "schema_version"}], ok: 1},
  }],
  after: [{_id: 1, v: "a", sv: 3}],
},
// A rule that reports an error beside one that ignores: only the rule whose condition did not match reports it.
{
  name: "bounds with on_no_room: error: there is room, and another rule does not match",
  must: "n is 0",
  rules: ["bounds: { field: a, min: 0 }", "bounds: { field: b, min: 0, on_no_room: error }"],
  stored: [{_id: 1, a: 0, b: 10.5, sv: 3}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$inc: {a: -1, b: -1}}}]},
    reply: {n: 0, nModified: 0, ok: 1},
  }],
  after: [{_id: 1, a: 0, b: 10.5, sv: 3}],
},
{
  name: "bounds with on_no_room: error: there is room, and another rule does not match",
  must: "n is 0",
  rules: ["bounds: { field: a, min: 0 }", "bounds: { field: b, min: 0, on_no_room: error }"],
  stored: [{_id: 1, a: 0, b: Decimal128("10.50"), sv: 3}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$inc: {a: -1, b: -1}}}]},
    reply: {n: 0, nModified: 0, ok: 1},
  }],
  after: [{_id: 1, a: 0, b: Decimal128("10.50"), sv: 3}],
},
{
  name: "bounds with on_no_room: error: there is room, and another rule does not match",
  must: "n is 0",
  rules: ["bounds: { field: a, min: 0 }", "bounds: { field: b, min: 0, on_no_room: error }"],
  stored: [{_id: 1, a: 0, b: Decimal128("10.50"), sv: 3}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$inc: {a: -1, b: -10.5}}}]},
    reply: {n: 0, nModified: 0, ok: 1},
  }],
  after: [{_id: 1, a: 0, b: Decimal128("10.50"), sv: 3}],
},
{
  name: "bounds with on_no_room: error: there is room, and another rule does not match",
  must: "n is 0",
  rules: ["bounds: { field: a, min: 0 }", "bounds: { field: b, min: 0, on_no_room: error }"],
  stored: [{_id: 1, a: 0, b: 10, sv: 3}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$inc: {a: -1, b: -0.5}}}]},
    reply: {n: 0, nModified: 0, ok: 1},
  }],
  after: [{_id: 1, a: 0, b: 10, sv: 3}],
},
{
  name: "bounds with on_no_room: error: there is room, and another rule does not match",
  must: "n is 0",
  rules: ["bounds: { field: a, min: 0 }", "bounds: { field: b, min: 0, on_no_room: error }"],
  stored: [{_id: 1, a: 0, b: 10, sv: 3}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$inc: {a: -1, b: Decimal128("-10.0")}}}]},
    reply: {n: 0, nModified: 0, ok: 1},
  }],
  after: [{_id: 1, a: 0, b: 10, sv: 3}],
},
{
  name: "bounds with on_no_room: error: there is room, and another rule does not match",
  must: "n is 0",
  rules: ["bounds: { field: a, min: 0 }", "bounds: { field: b, min: 0, on_no_room: error }"],
  stored: [{_id: 1, a: 0, b: 10.5, sv: 3}],
  steps: [{
    session: "in a transaction, then commit",
    command: {update: "c", updates: [{q: {_id: 1}, u: {$inc: {a: -1, b: -1}}}]},
    reply: {n: 0, nModified: 0, ok: 1},
    commit: {ok: 1},
  }],
  after: [{_id: 1, a: 0, b: 10.5, sv: 3}],
},
{
  name: "bounds with on_no_room: error: there is room, and another rule does not match",
  must: "n is 0",
  rules: [
    "schema_version: { field: sv, current: 3, minimum: 2, on_newer: ignore }",
    "bounds: { field: b, min: 0, on_no_room: error }",
  ],
  stored: [{_id: 1, a: 0, b: 10.5, sv: 3}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$inc: {a: -1, b: -1}}}]},
    reply: {n: 0, nModified: 0, ok: 1},
  }],
  after: [{_id: 1, a: 0, b: 10.5, sv: 3}],
},
{
  name: "bounds with on_no_room: error: there is no room for a decimal",
  must: "the reply has the error",
  rules: ["bounds: { field: a, min: 0 }", "bounds: { field: b, min: 0, on_no_room: error }"],
  stored: [{_id: 1, a: 0, b: Decimal128("10.50"), sv: 3}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$inc: {a: -1, b: Decimal128("-10.51")}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "bounds"}], ok: 1},
  }],
  after: [{_id: 1, a: 0, b: Decimal128("10.50"), sv: 3}],
},
{
  name: "bounds with on_no_room: error: there is no room for a fraction",
  must: "the reply has the error",
  rules: ["bounds: { field: a, min: 0 }", "bounds: { field: b, min: 0, on_no_room: error }"],
  stored: [{_id: 1, a: 0, b: 10, sv: 3}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$inc: {a: -1, b: -10.5}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "bounds"}], ok: 1},
  }],
  after: [{_id: 1, a: 0, b: 10, sv: 3}],
},
]
