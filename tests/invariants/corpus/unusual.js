// Statements of unusual forms: mixed or malformed updates, filters that never match, options of the wrong type.
[
{
  name: "constants beside an update that is no pipeline",
  must: "the server's error, and nothing is written",
  rules: ["timestamps: { source: s, type: long, per: document, store: lm }"],
  stored: [{_id: 1, a: 1}],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {a: 2, s: Long("2")}, c: {e: 1}}]},
      reply: {n: 0, writeErrors: [{index: 0, code: 51198}], nModified: 0, ok: 1},
    },
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {a: 2, s: Long("2")}}, c: {e: 1}}]},
      reply: {n: 0, writeErrors: [{index: 0, code: 51198}], nModified: 0, ok: 1},
    },
  ],
  after: [{_id: 1, a: 1}],
},
{
  name: "an empty list of array filters beside a pipeline of a findAndModify",
  must: "the server's error, and nothing is written",
  rules: ["timestamps: { source: s, type: long, per: document, store: lm }"],
  stored: [{_id: 1, a: 1}],
  steps: [{
    command: {findAndModify: "c", query: {_id: 1}, update: [{$set: {a: 2, s: Long("2")}}], arrayFilters: []},
    reply: {ok: 0, code: 9},
  }],
  after: [{_id: 1, a: 1}],
},
{
  name: "constants beside an update that is no pipeline",
  must: "the server's error, and nothing is written",
  rules: ["replacement: { policy: check_version, version: v }"],
  stored: [{_id: 1, a: 1}],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {a: 2, s: Long("2")}, c: {e: 1}}]},
      reply: {n: 0, writeErrors: [{index: 0, code: 51198}], nModified: 0, ok: 1},
    },
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {a: 2, s: Long("2")}}, c: {e: 1}}]},
      reply: {n: 0, writeErrors: [{index: 0, code: 51198}], nModified: 0, ok: 1},
    },
  ],
  after: [{_id: 1, a: 1}],
},
{
  name: "an empty list of array filters beside a pipeline of a findAndModify",
  must: "the server's error, and nothing is written",
  rules: ["replacement: { policy: check_version, version: v }"],
  stored: [{_id: 1, a: 1}],
  steps: [{
    command: {findAndModify: "c", query: {_id: 1}, update: [{$set: {a: 2, s: Long("2")}}], arrayFilters: []},
    reply: {ok: 0, code: 9},
  }],
  after: [{_id: 1, a: 1}],
},
{
  name: "an update that mixes operators and fields",
  must: "fails as without a rule",
  rules: ["timestamps: { source: s, type: long, per: document, store: lm }"],
  stored: [{_id: 1, a: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {a: 5, s: Long("2")}, status: "done"}}]},
    reply: {n: 0, writeErrors: [{index: 0, code: 9}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, a: 1}],
},
{
  name: "an update that mixes operators and fields",
  must: "fails as without a rule",
  rules: ["timestamps: { source: s, type: long, fields: [a, b, m.x], store: lm }"],
  stored: [{_id: 1, a: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {a: 5, s: Long("2")}, status: "done"}}]},
    reply: {n: 0, writeErrors: [{index: 0, code: 9}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, a: 1}],
},
{
  name: "an update that mixes operators and fields",
  must: "fails as without a rule",
  rules: ["replacement: { policy: check_version, version: v }"],
  stored: [{_id: 1, a: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {a: 5, s: Long("2")}, status: "done"}}]},
    reply: {n: 0, writeErrors: [{index: 0, code: 9}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, a: 1}],
},
{
  name: "a constant pipeline with a stage that the server rejects",
  must: "fails",
  rules: ["timestamps: { source: s, type: long, per: document, store: lm }"],
  stored: [{_id: 1, a: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: [{$set: {s: Long("2")}}, {$unset: ["a", "a"]}]}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "timestamps"}], ok: 1},
  }],
  after: [{_id: 1, a: 1}],
},
{
  name: "a constant pipeline with a stage that the server rejects",
  must: "fails",
  rules: ["timestamps: { source: s, type: long, per: document, store: lm }"],
  stored: [{_id: 1, a: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: [{$set: {s: Long("2")}}, {$unset: []}]}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "timestamps"}], ok: 1},
  }],
  after: [{_id: 1, a: 1}],
},
{
  name: "a constant pipeline with a stage that the server rejects",
  must: "fails",
  rules: ["timestamps: { source: s, type: long, fields: [a, b, m.x], store: lm }"],
  stored: [{_id: 1, a: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: [{$set: {s: Long("2")}}, {$unset: ["a", "a"]}]}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "timestamps"}], ok: 1},
  }],
  after: [{_id: 1, a: 1}],
},
{
  name: "a constant pipeline with a stage that the server rejects",
  must: "fails",
  rules: ["timestamps: { source: s, type: long, fields: [a, b, m.x], store: lm }"],
  stored: [{_id: 1, a: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: [{$set: {s: Long("2")}}, {$unset: []}]}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "timestamps"}], ok: 1},
  }],
  after: [{_id: 1, a: 1}],
},
{
  name: "a constant pipeline with a stage that the server rejects",
  must: "fails",
  rules: ["replacement: { policy: check_version, version: version }"],
  stored: [{_id: 1, a: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: [{$set: {s: Long("2")}}, {$unset: ["a", "a"]}]}]},
    reply: {n: 0, writeErrors: [{index: 0, code: 31250}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, a: 1}],
},
{
  name: "a constant pipeline with a stage that the server rejects",
  must: "fails",
  rules: ["replacement: { policy: check_version, version: version }"],
  stored: [{_id: 1, a: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: [{$set: {s: Long("2")}}, {$unset: []}]}]},
    reply: {n: 0, writeErrors: [{index: 0, code: 31119}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, a: 1}],
},
{
  name: "an operator without a document",
  must: "fails as without a rule",
  rules: ["timestamps: { source: s, type: long, fields: [a, b, m.x], store: lm }"],
  stored: [{_id: 1, a: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {a: 5, s: Long("2")}, $inc: 5}}]},
    reply: {n: 0, writeErrors: [{index: 0, code: 9}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, a: 1}],
},
{
  name: "versions: an error of the client's own operator",
  must: "reaches the client, and no other document is updated",
  rules: ["replacement: { policy: check_version, version: v }"],
  stored: [{_id: 1, t: 5, v: 1}, {_id: 3, v: "uuid"}],
  steps: [{
    command: {update: "c", updates: [{q: {}, u: {$push: {t: 1}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 2}], ok: 1},
  }],
  after: [{_id: 1, t: 5, v: 1}, {_id: 3, v: "uuid"}],
},
{
  name: "versions: an error of the client's own operator, in a findAndModify",
  must: "reaches the client, and no other document is updated",
  rules: ["replacement: { policy: check_version, version: v }"],
  stored: [{_id: 1, t: 5, v: 1}, {_id: 3, v: "uuid"}],
  steps: [{command: {findAndModify: "c", query: {}, update: {$push: {t: 1}}}, reply: {ok: 0, code: 2}}],
  after: [{_id: 1, t: 5, v: 1}, {_id: 3, v: "uuid"}],
},
{
  name: "versions: an error of the client's own operator, and an index on the version",
  must: "reaches the client, and no other document is updated",
  rules: ["replacement: { policy: check_version, version: v }"],
  stored: [{_id: 1, t: 5, v: "b"}, {_id: 3, v: "a"}],
  steps: [
    {
      command: {createIndexes: "c", indexes: [{key: {v: 1}, name: "v"}]},
      reply: {
        numIndexesBefore: 1,
        numIndexesAfter: 2,
        createdCollectionAutomatically: false,
        commitQuorum: "votingMembers",
        ok: 1,
      },
    },
    {
      command: {update: "c", updates: [{q: {}, u: {$push: {t: 1}}}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 2}], ok: 1},
    },
  ],
  after: [{_id: 1, t: 5, v: "b"}, {_id: 3, v: "a"}],
},
{
  name: "versions: an upsert of many whose filter gives the version to null",
  must: "inserts",
  rules: ["replacement: { policy: check_version, version: v }"],
  stored: [{_id: 1, v: 5}],
  steps: [{
    command: {update: "c", updates: [{q: {k: 1, v: null}, u: {$set: {a: 1}}, upsert: true, multi: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, v: 5}, {_id: {$now: "id"}, k: 1, v: 1, a: 1}],
},
{
  name: "an upsert with a number of its own, beside replacement",
  must: "is rejected, not lost",
  rules: ["sequence: { field: no, counter: COLLECTION, provided: reject }", "replacement: { policy: reject }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 2}, u: {no: 9, a: 2}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "sequence"}], ok: 1},
  }],
  after: [],
},
{
  name: "an upsert with an _id that the sequence assigns, beside replacement",
  must: "is rejected, not lost",
  rules: [
    "sequence: { field: _id, counter: COLLECTION, on_upsert: true, provided: reject }",
    "replacement: { policy: reject }",
  ],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 2}, u: {a: 2}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "sequence"}], ok: 1},
  }],
  after: [],
},
{
  name: "an unordered batch keeps its order",
  must: "has the result of the server",
  rules: ["limits: { document: 200B }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      ordered: false,
      updates: [
        {q: {_id: 3}, u: {$set: {s: "xx"}}, upsert: true},
        {q: {_id: 3}, u: {s: "y", a: 2}},
        {q: {}, u: {$set: {ev: 2, a: 1}}},
      ],
    },
    reply: {n: 3, upserted: [{index: 0, _id: 3}], nModified: 2, ok: 1},
  }],
  after: [{_id: 3, s: "y", a: 1, ev: 2}],
},
{
  name: "an unordered batch keeps its order beside an upsert",
  must: "has the result of the server",
  rules: ["schema_version: { field: v, current: 3, minimum: 2 }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      ordered: false,
      updates: [
        {q: {_id: 2, v: {$in: [2, 3]}}, u: {$set: {v: 3, a: 0}}, upsert: true, multi: true},
        {q: {a: 0}, u: {$set: {n: 0, v: 3}}, multi: true},
      ],
    },
    reply: {n: 2, upserted: [{index: 0, _id: 2}], nModified: 1, ok: 1},
  }],
  after: [{_id: 2, a: 0, v: 3, n: 0}],
},
{
  name: "optional fields of a statement that are null",
  must: "has the result of the server",
  rules: ["bounds: { field: n, min: 0 }"],
  stored: [{_id: 1, n: 5}],
  steps: [{
    command: {findAndModify: "c", query: null, update: {$inc: {n: -1}}, upsert: null},
    reply: {lastErrorObject: {n: 1, updatedExisting: true}, value: {_id: 1, n: 5}, ok: 1},
  }],
  after: [{_id: 1, n: 4}],
},
{
  name: "optional fields of a statement that are null",
  must: "has the result of the server",
  rules: ["bounds: { field: n, min: 0 }"],
  stored: [{_id: 1, n: 5}],
  steps: [{
    command: {update: "c", updates: [{q: {}, u: {$inc: {n: -1}}, upsert: null, multi: null}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, n: 4}],
},
{
  name: "optional fields of a statement that are null",
  must: "has the result of the server",
  rules: ["bounds: { field: n, min: 0 }"],
  stored: [{_id: 1, n: 5}],
  steps: [{
    command: {update: "c", updates: [{q: {}, u: {$inc: {n: -1}}}], ordered: null},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, n: 4}],
},
{
  name: "optional fields of a statement that are null",
  must: "has the result of the server",
  rules: ["bounds: { field: n, min: 0 }"],
  stored: [{_id: 1, n: 5}],
  steps: [{
    command: {findAndModify: "c", update: {$inc: {n: -1}}, sort: null, collation: null},
    reply: {lastErrorObject: {n: 1, updatedExisting: true}, value: {_id: 1, n: 5}, ok: 1},
  }],
  after: [{_id: 1, n: 4}],
},
{
  name: "a field that docward does not know is rejected, also if it is null",
  must: "is rejected by docward",
  rules: ["bounds: { field: n, min: 0 }"],
  stored: [{_id: 1, n: 5}],
  steps: [{
    command: {update: "c", updates: [{q: {}, u: {$inc: {n: -1}}, unknown: null}]},
    reply: {ok: 0, code: 9, pattern: "bounds"},
  }],
  after: [{_id: 1, n: 5}],
},
// The server takes no equality from a filter of which it sees that nothing matches it.
{
  name: "an upsert whose filter never matches",
  must: "inserts the client's _id",
  rules: ["replacement: { policy: merge }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, zq: {$all: []}}, u: {_id: 1, x: 1}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, x: 1}],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts the client's _id",
  rules: ["replacement: { policy: merge }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, $alwaysFalse: 1}, u: {_id: 1, x: 1}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, x: 1}],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts the client's _id",
  rules: ["replacement: { policy: merge }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, $or: [{$and: [{zq: {$all: []}}]}]}, u: {_id: 1, x: 1}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, x: 1}],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts the client's _id",
  rules: ["replacement: { policy: merge }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, $and: [{x: 1}, {$alwaysFalse: 1}]}, u: {_id: 1, x: 1}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, x: 1}],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts the client's _id",
  rules: ["replacement: { policy: merge }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, $or: [{$alwaysFalse: 1}]}, u: {_id: 1, x: 1}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, x: 1}],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts nothing without a version",
  rules: ["schema_version: { field: sv, current: 3, minimum: 2 }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, sv: 3, zq: {$all: []}}, u: {$set: {b: 1}}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "schema_version"}], ok: 1},
  }],
  after: [],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts nothing without a version",
  rules: ["schema_version: { field: sv, current: 3, minimum: 2 }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, sv: 3, $alwaysFalse: 1}, u: {$set: {b: 1}}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "schema_version"}], ok: 1},
  }],
  after: [],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts nothing without a version",
  rules: ["schema_version: { field: sv, current: 3, minimum: 2 }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, sv: 3, $or: [{$and: [{zq: {$all: []}}]}]}, u: {$set: {b: 1}}, upsert: true}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "schema_version"}], ok: 1},
  }],
  after: [],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts nothing without a version",
  rules: ["schema_version: { field: sv, current: 3, minimum: 2 }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, sv: 3, $and: [{x: 1}, {$alwaysFalse: 1}]}, u: {$set: {b: 1}}, upsert: true}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "schema_version"}], ok: 1},
  }],
  after: [],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts nothing without a version",
  rules: ["schema_version: { field: sv, current: 3, minimum: 2 }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, sv: 3, $or: [{$alwaysFalse: 1}]}, u: {$set: {b: 1}}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "schema_version"}], ok: 1},
  }],
  after: [],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts nothing out of range",
  rules: ["bounds: { field: n, min: 0, max: 10 }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, n: 3, zq: {$all: []}}, u: {$inc: {n: -2}}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "bounds"}], ok: 1},
  }],
  after: [],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts nothing out of range",
  rules: ["bounds: { field: n, min: 0, max: 10 }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, n: 3, $alwaysFalse: 1}, u: {$inc: {n: -2}}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "bounds"}], ok: 1},
  }],
  after: [],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts nothing out of range",
  rules: ["bounds: { field: n, min: 0, max: 10 }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, n: 3, $or: [{$and: [{zq: {$all: []}}]}]}, u: {$inc: {n: -2}}, upsert: true}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "bounds"}], ok: 1},
  }],
  after: [],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts nothing out of range",
  rules: ["bounds: { field: n, min: 0, max: 10 }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, n: 3, $and: [{x: 1}, {$alwaysFalse: 1}]}, u: {$inc: {n: -2}}, upsert: true}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "bounds"}], ok: 1},
  }],
  after: [],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts nothing out of range",
  rules: ["bounds: { field: n, min: 0, max: 10 }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, n: 3, $or: [{$alwaysFalse: 1}]}, u: {$inc: {n: -2}}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "bounds"}], ok: 1},
  }],
  after: [],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts not only one",
  rules: ["together: [t1, t2]"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, t1: 3, zq: {$all: []}}, u: {$setOnInsert: {t2: 1}}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
  }],
  after: [],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts not only one",
  rules: ["together: [t1, t2]"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, t1: 3, $alwaysFalse: 1}, u: {$setOnInsert: {t2: 1}}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
  }],
  after: [],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts not only one",
  rules: ["together: [t1, t2]"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, t1: 3, $or: [{$and: [{zq: {$all: []}}]}]}, u: {$setOnInsert: {t2: 1}}, upsert: true}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
  }],
  after: [],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts not only one",
  rules: ["together: [t1, t2]"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, t1: 3, $and: [{x: 1}, {$alwaysFalse: 1}]}, u: {$setOnInsert: {t2: 1}}, upsert: true}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
  }],
  after: [],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts not only one",
  rules: ["together: [t1, t2]"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, t1: 3, $or: [{$alwaysFalse: 1}]}, u: {$setOnInsert: {t2: 1}}, upsert: true}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
  }],
  after: [],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts a number or nothing",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, no: 3, zq: {$all: []}}, u: {$set: {b: 1}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, b: 1, no: 1}],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts a number or nothing",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, no: 3, $alwaysFalse: 1}, u: {$set: {b: 1}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, b: 1, no: 1}],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts a number or nothing",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, no: 3, $or: [{$and: [{zq: {$all: []}}]}]}, u: {$set: {b: 1}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, b: 1, no: 1}],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts a number or nothing",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, no: 3, $and: [{x: 1}, {$alwaysFalse: 1}]}, u: {$set: {b: 1}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, b: 1, no: 1}],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts a number or nothing",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, no: 3, $or: [{$alwaysFalse: 1}]}, u: {$set: {b: 1}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, b: 1, no: 1}],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts a job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, locked: false, try: 0, zq: {$all: []}}, u: {$setOnInsert: {b: 1}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, b: 1, locked: false, tlocked: {$now: "date"}, try: 0}],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts a job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, locked: false, try: 0, $alwaysFalse: 1}, u: {$setOnInsert: {b: 1}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, b: 1, locked: false, tlocked: {$now: "date"}, try: 0}],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts a job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {_id: 1, locked: false, try: 0, $or: [{$and: [{zq: {$all: []}}]}]},
        u: {$setOnInsert: {b: 1}},
        upsert: true,
      }],
    },
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, b: 1, locked: false, tlocked: {$now: "date"}, try: 0}],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts a job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {_id: 1, locked: false, try: 0, $and: [{x: 1}, {$alwaysFalse: 1}]},
        u: {$setOnInsert: {b: 1}},
        upsert: true,
      }],
    },
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, b: 1, locked: false, tlocked: {$now: "date"}, try: 0}],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts a job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {_id: 1, locked: false, try: 0, $or: [{$alwaysFalse: 1}]},
        u: {$setOnInsert: {b: 1}},
        upsert: true,
      }],
    },
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, b: 1, locked: false, tlocked: {$now: "date"}, try: 0}],
},
{
  name: "an upsert whose filter never matches",
  must: "sets no time of a missing field",
  rules: ["timestamps: { source: s, type: long, fields: [a, b, m.x], store: lm }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, a: 3, zq: {$all: []}}, u: {$set: {s: Long("4")}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, s: Long("4"), lm: {s: Long("4")}}],
},
{
  name: "an upsert whose filter never matches",
  must: "sets no time of a missing field",
  rules: ["timestamps: { source: s, type: long, fields: [a, b, m.x], store: lm }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, a: 3, $alwaysFalse: 1}, u: {$set: {s: Long("4")}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, s: Long("4"), lm: {s: Long("4")}}],
},
{
  name: "an upsert whose filter never matches",
  must: "sets no time of a missing field",
  rules: ["timestamps: { source: s, type: long, fields: [a, b, m.x], store: lm }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, a: 3, $or: [{$and: [{zq: {$all: []}}]}]}, u: {$set: {s: Long("4")}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, s: Long("4"), lm: {s: Long("4")}}],
},
{
  name: "an upsert whose filter never matches",
  must: "sets no time of a missing field",
  rules: ["timestamps: { source: s, type: long, fields: [a, b, m.x], store: lm }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, a: 3, $and: [{x: 1}, {$alwaysFalse: 1}]}, u: {$set: {s: Long("4")}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, s: Long("4"), lm: {s: Long("4")}}],
},
{
  name: "an upsert whose filter never matches",
  must: "sets no time of a missing field",
  rules: ["timestamps: { source: s, type: long, fields: [a, b, m.x], store: lm }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, a: 3, $or: [{$alwaysFalse: 1}]}, u: {$set: {s: Long("4")}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, s: Long("4"), lm: {s: Long("4")}}],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts no key alone",
  rules: ["copies: [{ into: protected.COLLECTION, key: f.id, fields: { n: f.n } }]"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, "f.n": 3, zq: {$all: []}}, u: {$setOnInsert: {"f.id": 1}}, upsert: true}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "copies"}], ok: 1},
  }],
  after: [],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts no key alone",
  rules: ["copies: [{ into: protected.COLLECTION, key: f.id, fields: { n: f.n } }]"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, "f.n": 3, $alwaysFalse: 1}, u: {$setOnInsert: {"f.id": 1}}, upsert: true}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "copies"}], ok: 1},
  }],
  after: [],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts no key alone",
  rules: ["copies: [{ into: protected.COLLECTION, key: f.id, fields: { n: f.n } }]"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {_id: 1, "f.n": 3, $or: [{$and: [{zq: {$all: []}}]}]},
        u: {$setOnInsert: {"f.id": 1}},
        upsert: true,
      }],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "copies"}], ok: 1},
  }],
  after: [],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts no key alone",
  rules: ["copies: [{ into: protected.COLLECTION, key: f.id, fields: { n: f.n } }]"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {_id: 1, "f.n": 3, $and: [{x: 1}, {$alwaysFalse: 1}]},
        u: {$setOnInsert: {"f.id": 1}},
        upsert: true,
      }],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "copies"}], ok: 1},
  }],
  after: [],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts no key alone",
  rules: ["copies: [{ into: protected.COLLECTION, key: f.id, fields: { n: f.n } }]"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, "f.n": 3, $or: [{$alwaysFalse: 1}]}, u: {$setOnInsert: {"f.id": 1}}, upsert: true}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "copies"}], ok: 1},
  }],
  after: [],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts no wrong count",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, messages: [1, 2], zq: {$all: []}}, u: {$set: {b: 1}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, b: 1, count: 0}],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts no wrong count",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, messages: [1, 2], $alwaysFalse: 1}, u: {$set: {b: 1}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, b: 1, count: 0}],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts no wrong count",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, messages: [1, 2], $or: [{$and: [{zq: {$all: []}}]}]}, u: {$set: {b: 1}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, b: 1, count: 0}],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts no wrong count",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, messages: [1, 2], $and: [{x: 1}, {$alwaysFalse: 1}]}, u: {$set: {b: 1}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, b: 1, count: 0}],
},
{
  name: "an upsert whose filter never matches",
  must: "inserts no wrong count",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, messages: [1, 2], $or: [{$alwaysFalse: 1}]}, u: {$set: {b: 1}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, b: 1, count: 0}],
},
{
  name: "timestamps: a replacing upsert with another _id than a filter that never matches",
  must: "inserts the client's _id",
  rules: ["timestamps: { source: at, per: document, without_source: clock }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, b: {$all: [1, 2]}, zq: {$all: []}}, u: {_id: 2}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: 2}], nModified: 0, ok: 1},
  }],
  after: [{_id: 2, last_modified: {$now: "date"}}],
},
{
  name: "timestamps: a replacing upsert with another _id than a filter that never matches",
  must: "inserts the client's _id",
  rules: ["timestamps: { source: at, per: document, without_source: clock }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, b: {$all: [1, 2]}, $alwaysFalse: 1}, u: {_id: 2}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: 2}], nModified: 0, ok: 1},
  }],
  after: [{_id: 2}],
},
{
  name: "timestamps: a replacing upsert with another _id than a filter that never matches",
  must: "inserts the client's _id",
  rules: ["timestamps: { source: at, per: document, without_source: clock }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, b: {$all: [1, 2]}, $or: [{$and: [{zq: {$all: []}}]}]}, u: {_id: 2}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: 2}], nModified: 0, ok: 1},
  }],
  after: [{_id: 2}],
},
{
  name: "timestamps: a replacing upsert with another _id than a filter that never matches",
  must: "inserts the client's _id",
  rules: ["timestamps: { source: at, per: document, without_source: clock }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, b: {$all: [1, 2]}, $and: [{x: 1}, {$alwaysFalse: 1}]}, u: {_id: 2}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: 2}], nModified: 0, ok: 1},
  }],
  after: [{_id: 2}],
},
{
  name: "timestamps: a replacing upsert with another _id than a filter that never matches",
  must: "inserts the client's _id",
  rules: ["timestamps: { source: at, per: document, without_source: clock }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, b: {$all: [1, 2]}, $or: [{$alwaysFalse: 1}]}, u: {_id: 2}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: 2}], nModified: 0, ok: 1},
  }],
  after: [{_id: 2}],
},
{
  name: "bucket: a push whose filter never matches",
  must: "opens no bucket without an owner",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {o: 1, zq: {$all: []}}, u: {$push: {messages: 1}}}]},
    reply: {n: 0, nModified: 0, ok: 1},
  }],
  after: [],
},
{
  name: "bucket: a push whose filter never matches",
  must: "opens no bucket without an owner",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {o: 1, $alwaysFalse: 1}, u: {$push: {messages: 1}}}]},
    reply: {n: 0, nModified: 0, ok: 1},
  }],
  after: [],
},
{
  name: "bucket: a push whose filter never matches",
  must: "opens no bucket without an owner",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {o: 1, $or: [{$and: [{zq: {$all: []}}]}]}, u: {$push: {messages: 1}}}]},
    reply: {n: 0, nModified: 0, ok: 1},
  }],
  after: [],
},
{
  name: "bucket: a push whose filter never matches",
  must: "opens no bucket without an owner",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {o: 1, $and: [{x: 1}, {$alwaysFalse: 1}]}, u: {$push: {messages: 1}}}]},
    reply: {n: 0, nModified: 0, ok: 1},
  }],
  after: [],
},
{
  name: "bucket: a push whose filter never matches",
  must: "opens no bucket without an owner",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {o: 1, $or: [{$alwaysFalse: 1}]}, u: {$push: {messages: 1}}}]},
    reply: {n: 0, nModified: 0, ok: 1},
  }],
  after: [],
},
// Increments through a pipeline of `timestamps`.
{
  name: "timestamps: an increment with numbers of two types",
  must: "stores what the server stores",
  rules: ["timestamps: { source: s, type: long, fields: [a, b, m.x], store: lm }"],
  stored: [{_id: 1, n: Decimal128("6")}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$inc: {n: 0.1}, $set: {s: Long("4")}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, n: Decimal128("6.100000000000000"), s: Long("4"), lm: {s: Long("4")}}],
},
{
  name: "timestamps: an increment with numbers of two types",
  must: "stores what the server stores",
  rules: ["timestamps: { source: s, type: long, fields: [a, b, m.x], store: lm }"],
  stored: [{_id: 1, n: 0.1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$inc: {n: Decimal128("0.1")}, $set: {s: Long("4")}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, n: Decimal128("0.200000000000000"), s: Long("4"), lm: {s: Long("4")}}],
},
{
  name: "timestamps: an increment with numbers of two types",
  must: "stores what the server stores",
  rules: ["timestamps: { source: s, type: long, fields: [a, b, m.x], store: lm }"],
  stored: [{_id: 1, n: Long("9007199254740993")}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$inc: {n: 0.1}, $set: {s: Long("4")}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, n: Double(9007199254740992.0), s: Long("4"), lm: {s: Long("4")}}],
},
{
  name: "timestamps: an increment with numbers of two types",
  must: "stores what the server stores",
  rules: ["timestamps: { source: s, type: long, fields: [a, b, m.x], store: lm }"],
  stored: [{_id: 1, n: 0.1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$inc: {n: Long("9007199254740993")}, $set: {s: Long("4")}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, n: Double(9007199254740992.0), s: Long("4"), lm: {s: Long("4")}}],
},
{
  name: "timestamps: an increment with numbers of two types",
  must: "stays in range",
  rules: [
    "bounds: { field: n, min: 0, max: 10 }",
    "timestamps: { source: s, type: long, fields: [a, b, m.x], store: lm }",
  ],
  stored: [{_id: 1, n: Decimal128("9.9")}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$inc: {n: 0.1}, $set: {s: Long("4")}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, n: Decimal128("10.000000000000000"), s: Long("4"), lm: {s: Long("4")}}],
},
{
  name: "timestamps: an increment with numbers of two types",
  must: "stays in range",
  rules: [
    "bounds: { field: n, min: 0, max: 10 }",
    "timestamps: { source: s, type: long, fields: [a, b, m.x], store: lm }",
  ],
  stored: [{_id: 1, n: Decimal128("0.1")}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$inc: {n: -0.1}, $set: {s: Long("4")}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, n: Decimal128("0E-15"), s: Long("4"), lm: {s: Long("4")}}],
},
// A time of a field that the server does not insert would discard an older write to it later.
{
  name: "timestamps: an upsert by a double negation",
  must: "sets no time of a missing field",
  rules: ["timestamps: { source: s, type: long, fields: [a, b, m.x], store: lm }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {"m.x": {$not: {$not: {$eq: 1}}}}, u: {$set: {z: 1, s: Long("4")}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, s: Long("4"), z: 1, lm: {s: Long("4")}}],
},
{
  name: "timestamps: an upsert by a double negation",
  must: "sets no time of a missing field",
  rules: ["timestamps: { source: s, type: long, fields: [a, b, m.x], store: lm }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {"m.x": {$not: {$not: {$eq: 1}}}}, u: {$set: {a: 1, s: Long("4")}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, a: 1, s: Long("4"), lm: {a: Long("4"), s: Long("4")}}],
},
{
  name: "timestamps: an upsert by a double negation",
  must: "sets no time of a missing field",
  rules: ["timestamps: { source: s, type: long, fields: [a, b, m.x], store: lm }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {"m.x": {$not: {$not: {$eq: 1}}}},
        u: {$set: {a: 1, s: Long("4")}, $push: {p: {$each: [1], $sort: 1}}},
        upsert: true,
      }],
    },
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, a: 1, p: [1], s: Long("4"), lm: {a: Long("4"), s: Long("4")}}],
},
// Array filters of which only stale writes, or none of the client's, use one.
{
  name: "timestamps: a stale write with array filters",
  must: "changes nothing",
  rules: ["timestamps: { source: s, type: long, per: document, store: lm }"],
  stored: [{_id: 1, b: [1, 5], c: [1, 5], lm: Long("7")}],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1}, u: {$set: {s: Long("6"), "b.$[t]": 11}}, arrayFilters: [{t: {$gte: 2}}]}],
    },
    reply: {n: 1, nModified: 0, ok: 1},
  }],
  after: [{_id: 1, b: [1, 5], c: [1, 5], lm: Long("7")}],
},
{
  name: "timestamps: a write with array filters that is not stale",
  must: "is executed",
  rules: ["timestamps: { source: s, type: long, per: document, store: lm }"],
  stored: [{_id: 1, b: [1, 5], c: [1, 5], lm: Long("7")}],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {_id: 1},
        u: {$set: {s: Long("8"), "b.$[t]": 11, "c.$[u]": 12}},
        arrayFilters: [{t: {$gte: 2}}, {$or: [{u: 1}, {u: 9}]}],
      }],
    },
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, b: [1, 11], c: [12, 5], lm: Long("8"), s: Long("8")}],
},
{
  name: "timestamps: an array filter that the client does not use",
  must: "fails as without a rule",
  rules: ["timestamps: { source: s, type: long, per: document, store: lm }"],
  stored: [{_id: 1, b: [1, 5], c: [1, 5], lm: Long("7")}],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1}, u: {$set: {s: Long("6"), "b.$[t]": 11}}, arrayFilters: [{t: 5}, {u: 5}]}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 9}], ok: 1},
  }],
  after: [{_id: 1, b: [1, 5], c: [1, 5], lm: Long("7")}],
},
{
  name: "explain: an upsert with a condition of docward",
  must: "shows the plan of what is sent first",
  rules: ["limits: { document: 220B }"],
  stored: [{_id: 1}],
  steps: [{
    command: {
      explain: {update: "c", updates: [{q: {_id: 1}, u: {$set: {ev: [1]}}, upsert: true}]},
      verbosity: "queryPlanner",
    },
    reply: {explainVersion: "1", queryPlanner: {$any: "document"}, ok: 1},
  }],
  after: [{_id: 1}],
},
{
  name: "explain: an upsert with a condition of docward",
  must: "shows the plan of what is sent first",
  rules: ["bounds: { field: n, max: 9 }"],
  stored: [{_id: 1}],
  steps: [{
    command: {
      explain: {update: "c", updates: [{q: {_id: 1}, u: {$inc: {n: 1.5}}, upsert: true}]},
      verbosity: "queryPlanner",
    },
    reply: {explainVersion: "1", queryPlanner: {$any: "document"}, ok: 1},
  }],
  after: [{_id: 1}],
},
// Filters whose expressions the server rejects, or fails for a document, in docward's own find.
{
  name: "a single statement with an expression that fails",
  must: "is an error of the statement, and not of the command, as directly",
  rules: ["tree: {}"],
  stored: [{_id: 1, n: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, $expr: {$eq: ["$x", "$$w"]}}, u: {y: 1}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 17276}], ok: 1},
  }],
  after: [{_id: 1, n: 1}],
},
{
  name: "a single statement with an expression that fails",
  must: "is an error of the statement, and not of the command, as directly",
  rules: ["tree: {}"],
  stored: [{_id: 1, n: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, $expr: {$eq: [1, {$toInt: "x"}]}}, u: {y: 1}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 241}], ok: 1},
  }],
  after: [{_id: 1, n: 1}],
},
{
  name: "a single statement with an expression that fails",
  must: "is an error of the statement, and not of the command, as directly",
  rules: ["replacement: { policy: reject }"],
  stored: [{_id: 1, n: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, $expr: {$eq: ["$x", "$$w"]}}, u: {y: 1}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 17276}], ok: 1},
  }],
  after: [{_id: 1, n: 1}],
},
{
  name: "a single statement with an expression that fails",
  must: "is an error of the statement, and not of the command, as directly",
  rules: ["replacement: { policy: reject }"],
  stored: [{_id: 1, n: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, $expr: {$eq: [1, {$toInt: "x"}]}}, u: {y: 1}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 241}], ok: 1},
  }],
  after: [{_id: 1, n: 1}],
},
// Source times that JavaScript sends.
{
  name: "timestamps: type long, and a double beyond 2^53",
  must: "is stored, with the time as a long",
  rules: ["timestamps: { source: s, type: long, fields: [a, b, m.x], store: lm }"],
  stored: [{_id: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {a: 1, s: Double(9007199254740994.0)}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{
    _id: 1,
    a: 1,
    s: Double(9007199254740994.0),
    lm: {a: Long("9007199254740994"), s: Long("9007199254740994")},
  }],
},
{
  name: "timestamps: type long, and a double beyond 2^53",
  must: "is stored, with the time as a long",
  rules: ["timestamps: { source: s, type: long, fields: [a, b, m.x], store: lm }"],
  stored: [{_id: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {a: 1, s: Double(1.7e18)}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, a: 1, s: Double(1.7e18), lm: {a: Long("1700000000000000000"), s: Long("1700000000000000000")}}],
},
// Commands that the server rejects as a whole, of which docward has executed a part.
// The server of the tests does not know this option.
{
  name: "a later part of a command that the server rejects, in a transaction",
  must: "aborts the transaction, which cannot be committed",
  rules: ["schema_version: { field: v, current: 3, minimum: 1 }"],
  stored: [{_id: 1, v: 1}, {_id: 2, v: 1}],
  steps: [{
    session: "in a transaction, then commit",
    command: {
      update: "c",
      updates: [{q: {_id: 1}, u: {$set: {o: 1}}}, {q: {_id: 2}, u: {$set: {o: 1}}, sort: {_id: 1}}],
    },
    reply: {ok: 0, code: 40415},
    commit: {errorLabels: ["TransientTransactionError"], ok: 0, code: 251},
  }],
  after: [{_id: 1, v: 1}, {_id: 2, v: 1}],
},
{
  name: "tree: a move whose statement the server rejects, in a transaction",
  must: "aborts the transaction, with the paths that docward has written",
  rules: ["tree: { path: path, parent: parent }"],
  stored: [{_id: "a", path: null}, {_id: "b", path: null}, {_id: "c", parent: "b", path: ",b,"}],
  steps: [{
    session: "in a transaction, then commit",
    command: {update: "c", updates: [{q: {_id: "b"}, u: {$set: {parent: "a"}}, sort: {_id: 1}}]},
    reply: {ok: 0, code: 40415},
    commit: {errorLabels: ["TransientTransactionError"], ok: 0, code: 251},
  }],
  after: [{_id: "a", path: null}, {_id: "b", path: null}, {_id: "c", parent: "b", path: ",b,"}],
},
{
  name: "an option of the wrong type in a later statement",
  must: "the command fails, and nothing is executed",
  rules: ["schema_version: { field: v, current: 3, minimum: 1 }"],
  stored: [{_id: 1, v: 1}, {_id: 2, v: 1}],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {o: 1}}}, {q: {_id: 2}, u: {$set: {o: 1}}, hint: 5}]},
      reply: {ok: 0, code: 9, pattern: "schema_version"},
    },
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {o: 1}}}, {q: {_id: 2}, u: {$set: {o: 1}}, upsert: 1}]},
      reply: {ok: 0, code: 9, pattern: "schema_version"},
    },
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {o: 1}}}, {q: {_id: 2}, u: {$set: {o: 1}}, multi: 1}]},
      reply: {ok: 0, code: 9, pattern: "schema_version"},
    },
    {
      command: {
        update: "c",
        updates: [{q: {_id: 1}, u: {$set: {o: 1}}}, {q: {_id: 2}, u: {$set: {o: 1}}, collation: 5}],
      },
      reply: {ok: 0, code: 9, pattern: "schema_version"},
    },
    {
      command: {
        update: "c",
        updates: [{q: {_id: 1}, u: {$set: {o: 1}}}, {q: {_id: 2}, u: {$set: {o: 1}}, arrayFilters: [5]}],
      },
      reply: {ok: 0, code: 9, pattern: "schema_version"},
    },
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {o: 1}}}, {q: {_id: 2}, u: {$set: {o: 1}}, c: 5}]},
      reply: {ok: 0, code: 9, pattern: "schema_version"},
    },
  ],
  after: [{_id: 1, v: 1}, {_id: 2, v: 1}],
},
]
