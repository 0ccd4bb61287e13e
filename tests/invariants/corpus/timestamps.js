// Cases of `timestamps`: source times that clients bring, and what a pipeline must not lose of the operators.
[
{
  name: "timestamps per: document: a replacement with array filters",
  must: "is stored: mongod ignores them",
  rules: ["timestamps: { source: at, per: document }"],
  stored: [{_id: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {x: 1, at: new Date(1000000000000)}, arrayFilters: [{i: 1}]}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, x: 1, at: new Date(1000000000000), last_modified: new Date(1000000000000)}],
},
{
  name: "timestamps: an operator that removes the _id",
  must: "fails with error 66, as by mongod",
  rules: ["timestamps: { source: at, per: document }"],
  stored: [{_id: 1}],
  steps: [{
    command: {findAndModify: "c", query: {_id: 1}, update: {$set: {at: new Date(1000000000000)}, $unset: {_id: ""}}},
    reply: {ok: 0, code: 66},
  }],
  after: [{_id: 1}],
},
{
  name: "timestamps: an operator that sets the _id to an equal number of another type",
  must: "fails with error 66, as by mongod",
  rules: ["timestamps: { source: at, fields: [a, b] }"],
  stored: [{_id: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {_id: Double(1.0), a: 1, at: new Date(1000000000000)}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 66}], ok: 1},
  }],
  after: [{_id: 1}],
},
{
  name: "timestamps: an operator that sets a part of the _id to an equal number of another type",
  must: "fails with error 66, as by mongod",
  rules: ["timestamps: { source: at, per: document }"],
  stored: [{_id: {n: 1}}],
  steps: [{
    command: {update: "c", updates: [{q: {}, u: {$set: {"_id.n": Double(1.0), at: new Date(1000000000000)}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 66}], ok: 1},
  }],
  after: [{_id: {n: 1}}],
},
{
  name: "timestamps: an operator that increments the _id by 0.0",
  must: "fails with error 66, as by mongod",
  rules: ["timestamps: { source: at, fields: [a, b] }"],
  stored: [{_id: 1}],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {}, u: {$set: {a: 1, at: new Date(1000000000000)}, $inc: {_id: Double(0.0)}}}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 66}], ok: 1},
  }],
  after: [{_id: 1}],
},
{
  name: "timestamps: an upsert gives a timestamp",
  must: "the timestamp is not stored",
  rules: ["timestamps: { source: at, fields: [a, b] }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {_id: 1, "last_modified.b": new Date(4200000000000)},
        u: {$set: {a: 1, at: new Date(1000000000000)}},
        upsert: true,
      }],
    },
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{
    _id: 1,
    last_modified: {a: new Date(1000000000000), at: new Date(1000000000000)},
    a: 1,
    at: new Date(1000000000000),
  }],
},
{
  name: "timestamps: an upsert gives a protected value",
  must: "it is stored with its timestamp, or not at all",
  rules: ["timestamps: { source: at, fields: [a, b] }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, b: 2}, u: {$set: {a: 1, at: new Date(1000000000000)}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{
    _id: 1,
    b: 2,
    a: 1,
    at: new Date(1000000000000),
    last_modified: {a: new Date(1000000000000), at: new Date(1000000000000), b: new Date(1000000000000)},
  }],
},
{
  name: "timestamps: per document, the upsert's filter gives the timestamp",
  must: "the content is stored",
  rules: ["timestamps: { source: at, per: document }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {_id: 1, last_modified: new Date(4200000000000)},
        u: {x: 1, at: new Date(1000000000000)},
        upsert: true,
      }],
    },
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, x: 1, at: new Date(1000000000000), last_modified: new Date(1000000000000)}],
},
{
  name: "timestamps: without_source: pass, and an upsert brings its time by $setOnInsert",
  must: "the timestamp is stored, or it is rejected",
  rules: ["timestamps: { source: at, fields: [a, b], without_source: pass }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1}, u: {$setOnInsert: {b: 3, at: new Date(1000000000000)}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{
    _id: 1,
    at: new Date(1000000000000),
    b: 3,
    last_modified: {at: new Date(1000000000000), b: new Date(1000000000000)},
  }],
},
{
  name: "timestamps: without_source: pass, and a pipeline inserts the time, with a filter that is not plain",
  must: "the timestamp is stored",
  rules: ["timestamps: { source: at, fields: [a, b], without_source: pass }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {$and: [{_id: 1}, {$or: [{}]}]}, u: [{$set: {b: 3, at: new Date(1000000000000)}}], upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{
    _id: 1,
    b: 3,
    at: new Date(1000000000000),
    last_modified: {at: new Date(1000000000000), b: new Date(1000000000000)},
  }],
},
{
  name: "timestamps: an upsert whose filter gives the _id and a protected field inside $and",
  must: "the field that the filter gives has the time of the write",
  rules: ["timestamps: { source: at, fields: [c.d, c.e] }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {$and: [{_id: 2}, {"c.e": 1}]}, u: {$set: {at: new Date(1000000000000)}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: 2}], nModified: 0, ok: 1},
  }],
  after: [{
    _id: 2,
    c: {e: 1},
    at: new Date(1000000000000),
    last_modified: {at: new Date(1000000000000), c: {e: new Date(1000000000000)}},
  }],
},
{
  name: "timestamps: per document, a replacing upsert whose filter has a field twice",
  must: "it is inserted, as by mongod",
  rules: ["timestamps: { source: at, per: document }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {note: {$all: [1, 2]}}, u: {note: 1, at: new Date(1000000000000)}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, note: 1, at: new Date(1000000000000), last_modified: new Date(1000000000000)}],
},
{
  name: "timestamps: per document, a replacing upsert whose _id is of another numeric type",
  must: "it is inserted, as by mongod",
  rules: ["timestamps: { source: at, per: document }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {_id: Double(1.0), at: new Date(1000000000000)}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: Double(1.0)}], nModified: 0, ok: 1},
  }],
  after: [{_id: Double(1.0), at: new Date(1000000000000), last_modified: new Date(1000000000000)}],
},
{
  name: "timestamps: operators beside a store that is a number",
  must: "it is done, with timestamps",
  rules: ["timestamps: { source: at, fields: [a.n, b] }"],
  stored: [{_id: 1, last_modified: 1}],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {_id: 1},
        u: {$set: {"a.n": 1, at: new Date(1000000000000)}, $setOnInsert: {x: 1}, $push: {l: 1}},
        upsert: true,
      }],
    },
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{
    _id: 1,
    last_modified: {a: {n: new Date(1000000000000)}, at: new Date(1000000000000)},
    a: {n: 1},
    at: new Date(1000000000000),
    l: [1],
  }],
},
{
  name: "timestamps: an array where the document around a timestamp would be",
  must: "both changed fields have their timestamp, and the field that is late keeps its own",
  rules: ["timestamps: { source: at, fields: [a.n, a.m, b], without_source: pass }"],
  stored: [{_id: 1, last_modified: {a: [], b: new Date(1000000000005)}}],
  steps: [{
    command: {
      findAndModify: "c",
      query: {_id: 1},
      update: {$set: {at: new Date(1000000000000), "a.n": 1, "a.m": 2, b: 3}},
    },
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, last_modified: {a: [], b: new Date(1000000000005)}},
      ok: 1,
    },
  }],
  after: [{
    _id: 1,
    last_modified: {
      a: {m: new Date(1000000000000), n: new Date(1000000000000)},
      b: new Date(1000000000005),
      at: new Date(1000000000000),
    },
    a: {m: 2, n: 1},
    at: new Date(1000000000000),
  }],
},
{
  name: "timestamps: operators, and an array where the document around a timestamp would be",
  must: "it is done, with timestamps",
  rules: ["timestamps: { source: at, fields: [a.n, a.m, b] }"],
  stored: [{_id: 1, last_modified: {a: [1], b: new Date(1000000000005)}}],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1}, u: {$set: {at: new Date(1000000000000), "a.n": 1, "a.m": 2}, $push: {l: 1}}}],
    },
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{
    _id: 1,
    last_modified: {
      a: {n: new Date(1000000000000), m: new Date(1000000000000)},
      b: new Date(1000000000005),
      at: new Date(1000000000000),
    },
    a: {m: 2, n: 1},
    at: new Date(1000000000000),
    l: [1],
  }],
},
{
  name: "timestamps: per document, an empty timestamp in a replacement",
  must: "becomes the time",
  rules: ["timestamps: { source: at, per: document }"],
  stored: [{_id: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {note: Timestamp(0, 0), at: new Date(1000000000000)}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, note: {$now: "timestamp"}, at: new Date(1000000000000), last_modified: new Date(1000000000000)}],
},
{
  name: "timestamps: without_source: pass, and an insert brings a timestamp",
  must: "the timestamp is the time of its field",
  rules: ["timestamps: { source: at, fields: [a, b], without_source: pass }"],
  stored: [],
  steps: [{
    command: {insert: "c", documents: [{_id: 1, a: 1, last_modified: {a: new Date(4200000000000)}}]},
    reply: {n: 1, ok: 1},
  }],
  after: [{_id: 1, a: 1, last_modified: {a: new Date(4200000000000)}}],
},
{
  name: "timestamps: $setOnInsert without upsert",
  must: "passes",
  rules: ["timestamps: { source: at, fields: [a, b] }"],
  stored: [{_id: 1}],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1}, u: {$set: {a: 1, at: new Date(1000000000000)}, $setOnInsert: {b: 1}}}],
    },
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{
    _id: 1,
    a: 1,
    at: new Date(1000000000000),
    last_modified: {a: new Date(1000000000000), at: new Date(1000000000000)},
  }],
},
{
  name: "timestamps: operators on other fields, with upsert",
  must: "pass beside the protected ones",
  rules: ["timestamps: { source: at, fields: [a, b] }"],
  stored: [{_id: 1}],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {_id: 1},
        u: {$set: {a: 1, at: new Date(1000000000000)}, $setOnInsert: {created: 1}, $push: {log: 1}, $inc: {k: 1}},
        upsert: true,
      }],
    },
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{
    _id: 1,
    a: 1,
    at: new Date(1000000000000),
    k: 1,
    log: [1],
    last_modified: {a: new Date(1000000000000), at: new Date(1000000000000)},
  }],
},
{
  name: "timestamps: an application that writes the timestamps itself",
  must: "the newer wins, in either order",
  rules: ["timestamps: { source: at, fields: [a, b], without_source: reject }"],
  stored: [{_id: 1, a: 0, last_modified: {a: new Date(1000000000000)}}],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {a: 4, "last_modified.a": new Date(1000000002000)}}}]},
      reply: {n: 1, nModified: 1, ok: 1},
    },
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {a: 3, "last_modified.a": new Date(1000000001000)}}}]},
      reply: {n: 1, nModified: 0, ok: 1},
    },
  ],
  after: [{_id: 1, a: 4, last_modified: {a: new Date(1000000002000)}}],
},
{
  name: "timestamps: $currentDate with an option that the server does not know",
  must: "fails with error 2, as by mongod",
  rules: ["timestamps: { source: at, fields: [a, b] }"],
  stored: [{_id: 1}],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {_id: 1},
        u: {$set: {a: 1, at: new Date(1000000000000)}, $currentDate: {d: {$type: "date", x: 1}}},
      }],
    },
    reply: {n: 0, writeErrors: [{index: 0, code: 2}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1}],
},
{
  name: "timestamps: an operator that the server does not know, without fields",
  must: "fails with error 9, as by mongod",
  rules: ["timestamps: { source: at, fields: [a, b] }"],
  stored: [{_id: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {a: 1, at: new Date(1000000000000)}, $other: {}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 9}], ok: 1},
  }],
  after: [{_id: 1}],
},
{
  name: "timestamps: a $setOnInsert without an upsert and an empty name",
  must: "fails with error 56, as by mongod",
  rules: ["timestamps: { source: at, fields: [a, b] }"],
  stored: [{_id: 1, x: [1]}],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1}, u: {$set: {a: 1, at: new Date(1000000000000)}, $setOnInsert: {"x..y": 1}}}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 56}], ok: 1},
  }],
  after: [{_id: 1, x: [1]}],
},
{
  name: "timestamps: a $setOnInsert without an upsert and a position at the start",
  must: "fails with error 2, as by mongod",
  rules: ["timestamps: { source: at, fields: [a, b] }"],
  stored: [{_id: 1, x: [1]}],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1}, u: {$set: {a: 1, at: new Date(1000000000000)}, $setOnInsert: {"$.x": 1}}}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 2}], ok: 1},
  }],
  after: [{_id: 1, x: [1]}],
},
{
  name: "timestamps: a $setOnInsert without an upsert and a filter that is missing",
  must: "fails with error 2, as by mongod",
  rules: ["timestamps: { source: at, fields: [a, b] }"],
  stored: [{_id: 1, x: [1]}],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1}, u: {$set: {a: 1, at: new Date(1000000000000)}, $setOnInsert: {"x.$[i]": 1}}}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 2}], ok: 1},
  }],
  after: [{_id: 1, x: [1]}],
},
{
  name: "timestamps: a $setOnInsert without an upsert that names a path twice",
  must: "fails with error 40, as by mongod",
  rules: ["timestamps: { source: at, fields: [a, b] }"],
  stored: [{_id: 1, x: [1]}],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1}, u: {$set: {a: 1, at: new Date(1000000000000)}, $setOnInsert: {x: 1, "x.y": 1}}}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 40}], ok: 1},
  }],
  after: [{_id: 1, x: [1]}],
},
{
  name: "timestamps: a late field of a missing document, alone",
  must: "is omitted, and the document around it is created",
  rules: ["timestamps: { source: at, fields: [a.n, a.m, b] }"],
  stored: [{_id: 1, last_modified: {a: {n: new Date(1000000000005)}}}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {at: new Date(1000000000000), "a.n": 1}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{
    _id: 1,
    last_modified: {a: {n: new Date(1000000000005)}, at: new Date(1000000000000)},
    a: {},
    at: new Date(1000000000000),
  }],
},
{
  name: "timestamps: a late field of a missing document, beside a push",
  must: "is omitted, and the document around it is created",
  rules: ["timestamps: { source: at, fields: [a.n, a.m, b] }"],
  stored: [{_id: 1, last_modified: {a: {n: new Date(1000000000005)}}}],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1}, u: {$set: {at: new Date(1000000000000), "a.n": 1}, $push: {l: 1}}}],
    },
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{
    _id: 1,
    last_modified: {a: {n: new Date(1000000000005)}, at: new Date(1000000000000)},
    a: {},
    at: new Date(1000000000000),
    l: [1],
  }],
},
{
  name: "timestamps: a late field of a missing document, after a push",
  must: "is omitted, and the document around it is created",
  rules: ["timestamps: { source: at, fields: [a.n, a.m, b] }"],
  stored: [{_id: 1, last_modified: {a: {n: new Date(1000000000005)}}}],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1}, u: {$push: {l: 1}, $set: {"a.n": 1, at: new Date(1000000000000)}}}],
    },
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{
    _id: 1,
    last_modified: {a: {n: new Date(1000000000005)}, at: new Date(1000000000000)},
    a: {},
    at: new Date(1000000000000),
    l: [1],
  }],
},
{
  name: "timestamps: a late field of a missing document, beside a push into it",
  must: "is omitted, and the document around it is created",
  rules: ["timestamps: { source: at, fields: [a.n, a.m, b] }"],
  stored: [{_id: 1, last_modified: {a: {n: new Date(1000000000005)}}}],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {_id: 1},
        u: {$push: {"a.l": 1}, $set: {"a.n": 1, at: new Date(1000000000000)}, $unset: {"a.m": ""}},
      }],
    },
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{
    _id: 1,
    last_modified: {a: {n: new Date(1000000000005), m: new Date(1000000000000)}, at: new Date(1000000000000)},
    a: {l: [1]},
    at: new Date(1000000000000),
  }],
},
{
  name: "timestamps: a late field of a missing document, beside operators that create nothing",
  must: "is omitted, and the document around it is created",
  rules: ["timestamps: { source: at, fields: [a.n, a.m, b] }"],
  stored: [{_id: 1, last_modified: {a: {n: new Date(1000000000005)}}}],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {_id: 1},
        u: {$pull: {"a.l": 1}, $set: {"a.n": 1, at: new Date(1000000000000)}, $unset: {"a.m": ""}},
      }],
    },
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{
    _id: 1,
    last_modified: {a: {n: new Date(1000000000005), m: new Date(1000000000000)}, at: new Date(1000000000000)},
    a: {},
    at: new Date(1000000000000),
  }],
},
{
  name: "timestamps: a late $unset in a missing document, beside a push",
  must: "creates no document around it, as in mongod",
  rules: ["timestamps: { source: at, fields: [a.n, a.m, b] }"],
  stored: [{_id: 1, last_modified: {a: {n: new Date(1000000000005)}}}],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1}, u: {$set: {at: new Date(1000000000000)}, $unset: {"a.n": ""}, $push: {l: 1}}}],
    },
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{
    _id: 1,
    last_modified: {a: {n: new Date(1000000000005)}, at: new Date(1000000000000)},
    at: new Date(1000000000000),
    l: [1],
  }],
},
]
