// Replacements, and the versions that some rules compare.
[
{
  name: "replacement: the same upsert twice, picked by another field than _id",
  must: "there is one document",
  rules: ["replacement: { policy: check_version, version: version }"],
  stored: [],
  steps: [
    {
      command: {update: "c", updates: [{q: {sku: "x"}, u: {sku: "x", qty: 1}, upsert: true}]},
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {
      command: {update: "c", updates: [{q: {sku: "x"}, u: {sku: "x", qty: 1}, upsert: true}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 112, pattern: "replacement"}], ok: 1},
    },
  ],
  after: [{_id: {$now: "id"}, sku: "x", qty: 1, version: 1}],
},
{
  name: "replacement: a document that was never there",
  must: "n is 0, without an error",
  rules: ["replacement: { policy: check_version, version: version }"],
  stored: [],
  steps: [{command: {update: "c", updates: [{q: {_id: "nope"}, u: {x: 1}}]}, reply: {n: 0, nModified: 0, ok: 1}}],
  after: [],
},
{
  name: "replacement: findAndModify of a document that was never there",
  must: "null, without an error",
  rules: ["replacement: { policy: check_version, version: version }"],
  stored: [],
  steps: [{
    command: {findAndModify: "c", query: {_id: "nope"}, update: {x: 1}},
    reply: {lastErrorObject: {n: 0, updatedExisting: false}, value: null, ok: 1},
  }],
  after: [],
},
{
  name: "replacement: a first save by upsert where unchecked ones are rejected",
  must: "it is inserted",
  rules: ["replacement: { policy: reject }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 7}, u: {_id: 7, x: 1}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: 7}], nModified: 0, ok: 1},
  }],
  after: [{_id: 7, x: 1}],
},
{
  name: "replacement: the upsert of a document that is there, where unchecked ones are rejected",
  must: "it erases nothing",
  rules: ["replacement: { policy: reject }"],
  stored: [{_id: 7, keep: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 7}, u: {_id: 7, x: 1}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "replacement"}], ok: 1},
  }],
  after: [{_id: 7, keep: 1}],
},
{
  name: "replacement: a pipeline that excludes a field inside a document",
  must: "removes only that field",
  rules: ["replacement: { policy: reject }"],
  stored: [{_id: 1, a: {b: 1, c: 1}}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: [{$project: {a: {b: 0}}}]}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, a: {c: 1}}],
},
{
  name: "replacement: merged with another _id than the stored",
  must: "the server's error 66",
  rules: ["replacement: { policy: merge }"],
  stored: [{_id: 1, x: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {x: 1}, u: {_id: 2, x: 2}}]},
    reply: {n: 0, writeErrors: [{index: 0, code: 66}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, x: 1}],
},
{
  name: "replacement: a conflict that is ignored, in a transaction",
  must: "the transaction commits",
  rules: ["replacement: { policy: check_version, version: version, on_conflict: ignore }"],
  stored: [{_id: 1, version: 3}],
  steps: [{
    session: "in a transaction, then commit",
    command: {update: "c", updates: [{q: {_id: 1}, u: {version: 1}}]},
    reply: {n: 0, nModified: 0, ok: 1},
    commit: {ok: 1},
  }],
  after: [{_id: 1, version: 3}],
},
{
  name: "replacement: an upsert whose conflict is ignored, in a transaction",
  must: "the transaction commits, and the document is as it was",
  rules: ["replacement: { policy: check_version, version: version, on_conflict: ignore }"],
  stored: [{_id: 1, version: 3}],
  steps: [{
    session: "in a transaction, then commit",
    command: {update: "c", updates: [{q: {_id: 1}, u: {x: 1}, upsert: true}]},
    reply: {n: 0, nModified: 0, ok: 1},
    commit: {ok: 1},
  }],
  after: [{_id: 1, version: 3}],
},
{
  name: "versions: a $set between another's read and save",
  must: "is not erased by that save",
  rules: ["replacement: { policy: check_version, version: version }"],
  stored: [{_id: 1, x: 0, version: 1}],
  steps: [
    {command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {y: 1}}}]}, reply: {n: 1, nModified: 1, ok: 1}},
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {x: 2, version: 1}}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 112, pattern: "replacement"}], ok: 1},
    },
  ],
  after: [{_id: 1, x: 0, version: 2, y: 1}],
},
{
  name: "versions: an operator sets the version back",
  must: "the version is at least 3",
  rules: ["replacement: { policy: check_version, version: version }"],
  stored: [{_id: 1, version: 3}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {version: 1}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 112, pattern: "replacement"}], ok: 1},
  }],
  after: [{_id: 1, version: 3}],
},
{
  name: "versions: the client's own filter has an equality on one that is not stored",
  must: "n is 0, without an error",
  rules: ["replacement: { policy: check_version, version: version }"],
  stored: [{_id: 1, version: 3}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, version: 2}, u: {x: 1, version: 3}}]},
    reply: {n: 0, nModified: 0, ok: 1},
  }],
  after: [{_id: 1, version: 3}],
},
{
  name: "versions: the client counts up itself",
  must: "the stored version is 4",
  rules: ["replacement: { policy: check_version, version: version }"],
  stored: [{_id: 1, version: 3}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, version: 3}, u: {x: 1, version: 4}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, x: 1, version: 4}],
},
{
  name: "versions: two writers set all columns by $set, the version too",
  must: "the second is a conflict",
  rules: ["replacement: { policy: check_version, version: version }"],
  stored: [{_id: 1, x: 0, y: 0, version: 1}],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {x: 1, y: 0, version: 1}}}]},
      reply: {n: 1, nModified: 1, ok: 1},
    },
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {x: 0, y: 1, version: 1}}}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 112, pattern: "replacement"}], ok: 1},
    },
  ],
  after: [{_id: 1, x: 1, y: 0, version: 2}],
},
{
  name: "versions: a UUID that changes with each save",
  must: "it is stored as it was sent",
  rules: ["replacement: { policy: check_version, version: version }"],
  stored: [{_id: 1, version: "u1"}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, version: "u1"}, u: {x: 1, version: "u2"}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, x: 1, version: "u2"}],
},
{
  name: "versions: an update by operators where the stored version is a UUID",
  must: "it is done, and the version is left alone",
  rules: ["replacement: { policy: check_version, version: version }"],
  stored: [{_id: 1, version: "u1"}],
  steps: [{command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {x: 1}}}]}, reply: {n: 1, nModified: 1, ok: 1}}],
  after: [{_id: 1, version: "u1", x: 1}],
},
{
  name: "versions: an update by operators where there is no room for the version",
  must: "it is done",
  rules: ["replacement: { policy: check_version, version: a.version }"],
  stored: [{_id: 1, a: []}],
  steps: [{command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {x: 1}}}]}, reply: {n: 1, nModified: 1, ok: 1}}],
  after: [{_id: 1, a: [], x: 1}],
},
{
  name: "versions: an operator makes of the version what cannot be counted",
  must: "the version is still a whole number",
  rules: ["replacement: { policy: check_version, version: version }"],
  stored: [{_id: 1, version: 3}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {version: 0.5}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 112, pattern: "replacement"}], ok: 1},
  }],
  after: [{_id: 1, version: 3}],
},
{
  name: "versions: the client increments by a whole decimal, and by a fraction",
  must: "the first is done, and the second is rejected for the fraction",
  rules: ["replacement: { policy: check_version, version: version }"],
  stored: [{_id: 1, version: 3}],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {$inc: {version: Decimal128("1")}}}]},
      reply: {n: 1, nModified: 1, ok: 1},
    },
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {$inc: {version: 0.5}}}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "replacement"}], ok: 1},
    },
  ],
  after: [{_id: 1, version: Decimal128("4")}],
  message: "whole number",
},
{
  name: "versions: null is written back that was read and is checked",
  must: "it is done, and the document has version 1",
  rules: ["replacement: { policy: check_version, version: version }"],
  stored: [{_id: 1, version: null}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, version: null}, u: {$set: {x: 2, version: null}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, version: 1, x: 2}],
},
{
  name: "versions: a save with an undefined version",
  must: "is one without a version",
  rules: ["replacement: { policy: check_version, version: version }"],
  stored: [{_id: 1, version: null}, {_id: 2, version: 3}],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {x: 2, version: {"$undefined":true}}}]},
      reply: {n: 1, nModified: 1, ok: 1},
    },
    {
      command: {update: "c", updates: [{q: {_id: 2}, u: {x: 2, version: {"$undefined":true}}}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 112, pattern: "replacement"}], ok: 1},
    },
  ],
  after: [{_id: 1, x: 2, version: 1}, {_id: 2, version: 3}],
},
{
  name: "versions: a fraction is written back by $set",
  must: "it is compared, as by a replacement",
  rules: ["replacement: { policy: check_version, version: version }"],
  stored: [{_id: 1, version: 3.5}],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {x: 2, version: 3.5}}}]},
      reply: {n: 1, nModified: 1, ok: 1},
    },
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {x: 3, version: 4.5}}}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 112, pattern: "replacement"}], ok: 1},
    },
  ],
  after: [{_id: 1, version: 3.5, x: 2}],
},
{
  name: "replacement: a merging upsert whose _id is of another numeric type",
  must: "it is inserted, as by mongod",
  rules: ["replacement: { policy: merge }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {_id: Long("1"), x: 1}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: Long("1")}], nModified: 0, ok: 1},
  }],
  after: [{_id: Long("1"), x: 1}],
},
{
  name: "replacement: merged over a document whose _id is of another numeric type",
  must: "its fields are set",
  rules: ["replacement: { policy: merge }"],
  stored: [{_id: 1, keep: 1}, {_id: 2, keep: 1}],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {_id: Double(1.0), x: 1}, upsert: true}]},
      reply: {n: 1, nModified: 1, ok: 1},
    },
    {command: {update: "c", updates: [{q: {_id: 2}, u: {_id: Long("2"), x: 1}}]}, reply: {n: 1, nModified: 1, ok: 1}},
  ],
  after: [{_id: 1, keep: 1, x: 1}, {_id: 2, keep: 1, x: 1}],
},
{
  name: "replacement: merged over a document whose _id is a document with equal numbers",
  must: "its fields are set, and the upsert inserts",
  rules: ["replacement: { policy: merge }"],
  stored: [{_id: {a: 1}, keep: 1}],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: {a: 1}}, u: {_id: {a: Double(1.0)}, x: 1}}]},
      reply: {n: 1, nModified: 1, ok: 1},
    },
    {
      command: {update: "c", updates: [{q: {_id: {a: 2}}, u: {_id: {a: Long("2")}, x: 1, keep: 1}, upsert: true}]},
      reply: {n: 1, upserted: [{index: 0, _id: {a: 2}}], nModified: 0, ok: 1},
    },
  ],
  after: [{_id: {a: 1}, keep: 1, x: 1}, {_id: {a: 2}, keep: 1, x: 1}],
},
{
  name: "replacement: merged with an _id that the collation takes for the stored one",
  must: "the server's error 66",
  rules: ["replacement: { policy: merge }"],
  stored: [{_id: "a", x: 0}, {_id: {t: "a", n: 1}, x: 0}],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: "A"}, u: {_id: "A", x: 1}, collation: {locale: "en", strength: 2}}]},
      reply: {n: 0, writeErrors: [{index: 0, code: 66}], nModified: 0, ok: 1},
    },
    {
      command: {
        update: "c",
        updates: [{q: {_id: {t: "A", n: 1}}, u: {_id: {t: "A", n: 1}, x: 1}, collation: {locale: "en", strength: 2}}],
      },
      reply: {n: 0, writeErrors: [{index: 0, code: 66}], nModified: 0, ok: 1},
    },
  ],
  after: [{_id: "a", x: 0}, {_id: {t: "a", n: 1}, x: 0}],
},
{
  name: "replacement: a merging upsert whose _id is a text",
  must: "inserts, and then sets the fields",
  rules: ["replacement: { policy: merge }"],
  stored: [],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: "a"}, u: {_id: "a", x: 1}, upsert: true}]},
      reply: {n: 1, upserted: [{index: 0, _id: "a"}], nModified: 0, ok: 1},
    },
    {
      command: {update: "c", updates: [{q: {_id: "a"}, u: {_id: "a", y: 1}, upsert: true}]},
      reply: {n: 1, nModified: 1, ok: 1},
    },
  ],
  after: [{_id: "a", x: 1, y: 1}],
},
{
  name: "replacement: a merging upsert whose filter has a field twice",
  must: "it is inserted, as by mongod",
  rules: ["replacement: { policy: merge }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {note: {$all: [1, 2]}}, u: {note: 1}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, note: 1}],
},
{
  name: "replacement: an empty timestamp that is merged",
  must: "becomes the time",
  rules: ["replacement: { policy: merge }"],
  stored: [{_id: 1, keep: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {x: 1, note: Timestamp(0, 0)}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, keep: 1, note: {$now: "timestamp"}, x: 1}],
},
{
  name: "replacement: merged with a field whose name is the path of the version",
  must: "the stored document keeps its fields, and the inserted one has that field and a version",
  rules: ["replacement: { policy: merge, version: a.n }"],
  stored: [{_id: 1, a: {n: 3}}],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {x: 2, "a.n": 7}}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "replacement"}], ok: 1},
    },
    {
      command: {update: "c", updates: [{q: {_id: 2}, u: {x: 2, "a.n": 7}, upsert: true}]},
      reply: {n: 1, upserted: [{index: 0, _id: 2}], nModified: 0, ok: 1},
    },
  ],
  after: [{_id: 1, a: {n: 3}}, {_id: 2, x: 2, "a.n": 7, a: {n: 1}}],
},
{
  name: "replacement: explain of one, of a document that is not there and of one that is",
  must: "the plan: only the stored documents decide whether the statement is rejected",
  rules: ["replacement: { policy: reject }"],
  stored: [{_id: 1, x: 1}],
  steps: [
    {
      command: {explain: {update: "c", updates: [{q: {_id: 1}, u: {x: 2}, upsert: true}]}, verbosity: "queryPlanner"},
      reply: {explainVersion: "1", queryPlanner: {$any: "document"}, ok: 1},
    },
    {
      command: {explain: {update: "c", updates: [{q: {_id: 2}, u: {x: 2}, upsert: true}]}, verbosity: "queryPlanner"},
      reply: {explainVersion: "1", queryPlanner: {$any: "document"}, ok: 1},
    },
  ],
  after: [{_id: 1, x: 1}],
},
{
  name: "replacement: an upsert of what was read, where the document is gone",
  must: "n is 0, nothing is inserted",
  rules: ["replacement: { policy: check_version, version: version }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {x: 1, version: 3}, upsert: true}]},
    reply: {n: 0, nModified: 0, ok: 1},
  }],
  after: [],
},
{
  name: "versions: an upsert sets the document around the version on insert",
  must: "it is inserted, with the version beside what is in the document",
  rules: ["replacement: { policy: check_version, version: a.n }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {x: 1}, $setOnInsert: {a: {m: 1}}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, a: {m: 1, n: 1}, x: 1}],
},
{
  name: "versions: an upsert sets something else than a document around the version on insert",
  must: "it is inserted as in mongod",
  rules: ["replacement: { policy: check_version, version: a.n }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {x: 1}, $setOnInsert: {a: 5}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, a: 5, x: 1}],
},
{
  name: "sequence: a replacing upsert whose filter has two values of _id",
  must: "the server's error 54",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {$and: [{_id: 5}, {_id: 1}]}, u: {x: 1}, upsert: true}]},
    reply: {n: 0, writeErrors: [{index: 0, code: 54}], nModified: 0, ok: 1},
  }],
  after: [],
},
{
  name: "versions: a pipeline of constants, as an ORM saves",
  must: "it is done",
  rules: ["replacement: { policy: check_version, version: version }"],
  stored: [{_id: 1, x: 0, version: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: [{$set: {x: {$literal: 5}}}]}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, x: 5, version: 2}],
},
// Operators on the document around the version, and versions that are no integers.
{
  name: "replacement: two operators of the client on the document around the version",
  must: "fails with the server's error",
  rules: ["replacement: { policy: check_version, version: m.v }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {"m.z": 1}, $setOnInsert: {m: {v: 2}}}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 40}], ok: 1},
  }],
  after: [],
},
{
  name: "replacement: a $setOnInsert that replaces what its filter gives around the version",
  must: "is inserted with a version",
  rules: ["replacement: { policy: check_version, version: m.v }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, "m.x": 5}, u: {$set: {b: 1}, $setOnInsert: {m: {y: 2}}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, m: {y: 2, v: 1}, b: 1}],
},
{
  name: "replacement: a $setOnInsert around the version, beside what its filter gives",
  must: "inserts both and a version",
  rules: ["replacement: { policy: check_version, version: m.d.v }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, m: {x: 1}}, u: {$set: {b: 1}, $setOnInsert: {"m.d": {y: 2}}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, m: {x: 1, d: {y: 2, v: 1}}, b: 1}],
},
{
  name: "replacement: a $setOnInsert around a document of its filter with nothing but the version",
  must: "inserts the other fields of that document and a version",
  rules: ["replacement: { policy: check_version, version: m.v }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, m: {v: 5}}, u: {$set: {b: 1}, $setOnInsert: {m: {y: 2}}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, m: {y: 2, v: 1}, b: 1}],
},
{
  name: "replacement: a $setOnInsert around the version that its filter gives",
  must: "inserts the other fields of that document and a version",
  rules: ["replacement: { policy: check_version, version: m.v }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, "m.v": 5}, u: {$set: {b: 1}, $setOnInsert: {m: {y: 2}}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, m: {y: 2, v: 1}, b: 1}],
},
{
  name: "versions: a pipeline beside the largest long",
  must: "leaves it, and counts an equal decimal",
  rules: ["replacement: { policy: check_version, version: v }"],
  stored: [{_id: 1, b: "s", v: Long("9223372036854775807")}, {_id: 2, v: Decimal128("9223372036854775807")}],
  steps: [
    {
      command: {update: "c", updates: [{q: {}, u: [{$set: {a: {$toUpper: "$b"}}}], multi: true}]},
      reply: {n: 2, nModified: 2, ok: 1},
    },
    {
      command: {update: "c", updates: [{q: {_id: 2}, u: {$set: {a: 1}}, multi: true}]},
      reply: {n: 1, nModified: 1, ok: 1},
    },
  ],
  after: [
    {_id: 1, b: "s", v: Long("9223372036854775807"), a: "S"},
    {_id: 2, v: Decimal128("9223372036854775809"), a: 1},
  ],
},
// Replacements that are merged, with the version inside a document.
{
  name: "replacement: a merged document around the version",
  must: "sets the fields beside the version, which is incremented",
  rules: ["replacement: { policy: merge, version: m.v }"],
  stored: [{_id: 4, m: {v: 5, y: 1}, stock: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 4}, u: {m: {v: 5, x: 1}, note: "C"}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 4, m: {v: 6, y: 1, x: 1}, stock: 1, note: "C"}],
},
{
  name: "replacement: a merged document without the version",
  must: "leaves the version",
  rules: ["replacement: { policy: merge, version: m.v, count_updates: false }"],
  stored: [{_id: 4, m: {v: 5, y: 1}, stock: 1}],
  steps: [
    {command: {update: "c", updates: [{q: {_id: 4}, u: {m: {}}}]}, reply: {n: 1, nModified: 0, ok: 1}},
    {command: {update: "c", updates: [{q: {_id: 4}, u: {m: {v: 1}}}]}, reply: {n: 1, nModified: 0, ok: 1}},
  ],
  after: [{_id: 4, m: {v: 5, y: 1}, stock: 1}],
},
{
  name: "replacement: a merged value on the way to the version",
  must: "is rejected",
  rules: ["replacement: { policy: merge, version: m.v }"],
  stored: [{_id: 4, m: {v: 5, y: 1}, stock: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 4}, u: {m: 5}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "replacement"}], ok: 1},
  }],
  after: [{_id: 4, m: {v: 5, y: 1}, stock: 1}],
},
{
  name: "replacement: a merged document around the version, with the position of an array element",
  must: "writes no element of a stored array",
  rules: ["replacement: { policy: merge, version: m.v }"],
  stored: [{_id: 4, m: [1, 2], k: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 4}, u: {m: {"0": 5, v: 3}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "replacement"}], ok: 1},
  }],
  after: [{_id: 4, m: [1, 2], k: 1}],
},
{
  name: "replacement: a merged upsert with the version inside a document",
  must: "inserts version 1",
  rules: ["replacement: { policy: merge, version: m.v }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 4}, u: {m: {v: 5, x: 1}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: 4}], nModified: 0, ok: 1},
  }],
  after: [{_id: 4, m: {v: 1, x: 1}}],
},
{
  name: "replacement: array filters beside a merged replacement",
  must: "are ignored, as by the server",
  rules: ["replacement: { policy: merge, version: m.v }"],
  stored: [{_id: 4, m: {v: 5, y: 1}, stock: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 4}, u: {note: 1}, arrayFilters: [{e: 1}]}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 4, m: {v: 6, y: 1}, stock: 1, note: 1}],
},
{
  name: "replacement: a checked upsert whose filter has the version inside $or",
  must: "inserts, as the plain one does",
  rules: [
    "timestamps: { source: at, per: document, without_source: pass }",
    "replacement: { policy: check_version, version: a.n, count_updates: false }",
  ],
  stored: [],
  steps: [{
    command: {
      findAndModify: "c",
      query: {$and: [{_id: 3}, {$or: [{"a.n": 1}]}]},
      update: {at: new Date(1000000004000), note: 73},
      upsert: true,
    },
    reply: {lastErrorObject: {n: 1, updatedExisting: false, upserted: 3}, value: null, ok: 1},
  }],
  after: [{_id: 3, at: new Date(1000000004000), note: 73, a: {n: 2}, last_modified: new Date(1000000004000)}],
},
]
