// Numbers that `sequence` assigns.
[
{
  name: "sequence: an upsert that writes the number by two operators fails as it does in mongod",
  must: "fails with error 40",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, provided: replace }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {}, u: {$push: {no: {}}, $set: {no: 2}}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 40}], ok: 1},
  }],
  after: [],
},
{
  name: "sequence: an upsert that renames a missing field to the number",
  must: "inserts a document with a number of the sequence",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true, provided: replace }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {}, u: {$rename: {a: "no"}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, no: 1}],
},
{
  name: "sequence: an upsert whose filter gives the number that its update removes",
  must: "does not store the filter's number a second time",
  rules: ["sequence: { field: a.n, counter: COLLECTION, collection: counters, on_upsert: true }"],
  stored: [{_id: 1, a: {n: 53}}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 3, "a.n": 53}, u: {$set: {a: {}}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: 3}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, a: {n: 53}}, {_id: 3, a: {n: 1}}],
},
{
  name: "sequence: an upsert whose filter may give the number twice, and whose update removes it",
  must: "does not store the filter's number a second time",
  rules: ["sequence: { field: a.n, counter: COLLECTION, collection: counters, on_upsert: true }"],
  stored: [{_id: 1, a: {n: 53}}],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 3, "a.n": 53, $nor: [{$nor: [{"a.n": 53}]}]}, u: {$set: {a: {}}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: 3}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, a: {n: 53}}, {_id: 3, a: {n: 1}}],
},
{
  name: "sequence: a replacing upsert keeps what is beside the number",
  must: "x, y and z are stored, with a number",
  rules: ["sequence: { field: a.n, counter: COLLECTION, collection: counters, on_upsert: true }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {a: {x: 1, y: 2}, z: 3}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, a: {x: 1, y: 2, n: 1}, z: 3}],
},
{
  name: "sequence: an upsert by a pipeline of docward's, and a value on the way to the number",
  must: "the value stays",
  rules: [
    "sequence: { field: a.n, counter: COLLECTION, collection: counters, on_upsert: true }",
    "timestamps: { source: at, per: document, without_source: pass }",
  ],
  stored: [{_id: 1, a: true}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {at: new Date(1000000000000)}}, upsert: true}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, a: true, at: new Date(1000000000000), last_modified: new Date(1000000000000)}],
},
{
  name: "sequence: an upsert that sets the object around the number",
  must: "nothing is inserted without a number",
  rules: ["sequence: { field: a.n, counter: COLLECTION, collection: counters, on_upsert: true }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 2}, u: {$set: {a: {x: 1}}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: 2}], nModified: 0, ok: 1},
  }],
  after: [{_id: 2, a: {x: 1, n: 1}}],
},
{
  name: "sequence: upserts that set the object around two numbers",
  must: "the stored numbers stay, and the inserted document has both",
  rules: [
    "sequence: { field: a.n, counter: COLLECTION, collection: counters, on_upsert: true }",
    "sequence: { field: a.m, counter: COLLECTION_other, collection: counters, on_upsert: true }",
  ],
  stored: [{_id: 1, a: {n: 70, m: 80}}],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {a: {x: 1}}}, upsert: true}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "sequence"}], ok: 1},
    },
    {
      command: {update: "c", updates: [{q: {_id: 2}, u: {$set: {a: {x: 1}}}, upsert: true}]},
      reply: {n: 1, upserted: [{index: 0, _id: 2}], nModified: 0, ok: 1},
    },
  ],
  after: [{_id: 1, a: {n: 70, m: 80}}, {_id: 2, a: {x: 1, m: 2, n: 2}}],
},
{
  name: "sequence: the same replacing upsert again, with newer times",
  must: "the number is the first",
  rules: [
    "timestamps: { source: at, per: document }",
    "sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }",
  ],
  stored: [],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {x: 1, at: new Date(1000000000000)}, upsert: true}]},
      reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
    },
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {x: 2, at: new Date(1000000000001)}, upsert: true}]},
      reply: {n: 1, nModified: 1, ok: 1},
    },
  ],
  after: [{_id: 1, x: 2, at: new Date(1000000000001), last_modified: new Date(1000000000001), no: 1}],
},
{
  name: "sequence: a replacing upsert under a version",
  must: "the number is still 5",
  rules: [
    "replacement: { policy: check_version, version: version }",
    "sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }",
  ],
  stored: [{_id: 1, no: 5, version: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {x: 1, version: 1}, upsert: true}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, x: 1, version: 2, no: 5}],
},
{
  name: "sequence: a replacement without the number",
  must: "the number is still 4",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters }"],
  stored: [{_id: 1, no: 4}],
  steps: [{command: {update: "c", updates: [{q: {_id: 1}, u: {x: 2}}]}, reply: {n: 1, nModified: 1, ok: 1}}],
  after: [{_id: 1, x: 2, no: 4}],
},
{
  name: "sequence: a replacement with null for the number",
  must: "the number is still 4",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters }"],
  stored: [{_id: 1, no: 4}],
  steps: [{command: {update: "c", updates: [{q: {_id: 1}, u: {x: 2, no: null}}]}, reply: {n: 1, nModified: 1, ok: 1}}],
  after: [{_id: 1, x: 2, no: 4}],
},
{
  name: "sequence: a replacing upsert with null for the number",
  must: "it is inserted with a number",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {x: 2, no: null}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, x: 2, no: 1}],
},
{
  name: "sequence: a merged replacement with null for the number",
  must: "the number is still 4, and y is kept",
  rules: ["replacement: { policy: merge }", "sequence: { field: no, counter: COLLECTION, collection: counters }"],
  stored: [{_id: 1, no: 4, y: 1}],
  steps: [{command: {update: "c", updates: [{q: {_id: 1}, u: {x: 2, no: null}}]}, reply: {n: 1, nModified: 1, ok: 1}}],
  after: [{_id: 1, no: 4, y: 1, x: 2}],
},
{
  name: "sequence: a merged replacement of the document around the number",
  must: "the number is still 4",
  rules: [
    "replacement: { policy: merge }",
    "sequence: { field: a.n, counter: COLLECTION, collection: counters, on_upsert: true }",
  ],
  stored: [{_id: 1, a: {n: 4, x: 1}}],
  steps: [{command: {update: "c", updates: [{q: {_id: 1}, u: {a: {y: 2}}}]}, reply: {n: 1, nModified: 1, ok: 1}}],
  after: [{_id: 1, a: {y: 2, n: 4}}],
},
{
  name: "sequence: an upsert that sets the document around the number, with a version that is counted",
  must: "the stored document stays, and the inserted one gets a number and a version",
  rules: [
    "replacement: { version: version }",
    "sequence: { field: a.n, counter: COLLECTION, collection: counters, on_upsert: true }",
  ],
  stored: [{_id: 1, a: {n: 4, x: 1}, version: 7}],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {a: {y: 2}}}, upsert: true}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "sequence"}], ok: 1},
    },
    {
      command: {update: "c", updates: [{q: {_id: 2}, u: {$set: {a: {y: 2}}}, upsert: true}]},
      reply: {n: 1, upserted: [{index: 0, _id: 2}], nModified: 0, ok: 1},
    },
  ],
  after: [{_id: 1, a: {n: 4, x: 1}, version: 7}, {_id: 2, a: {y: 2, n: 2}, version: 1}],
},
{
  name: "sequence: a merged upsert of the document around the number, with a version that is counted",
  must: "is stored with a number and a version",
  rules: [
    "replacement: { policy: merge, version: version }",
    "sequence: { field: a.n, counter: COLLECTION, collection: counters, on_upsert: true }",
  ],
  stored: [],
  steps: [{
    session: "in a transaction, then commit",
    command: {update: "c", updates: [{q: {$or: [{_id: 1}]}, u: {a: {}, version: Long("1")}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
    commit: {ok: 1},
  }],
  after: [{_id: 1, a: {n: 1}, version: 1}],
},
{
  name: "sequence: an upsert that sets the document around one of two numbers",
  must: "is stored with both",
  rules: [
    "sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }",
    "sequence: { field: a.n, counter: COLLECTION_other, collection: counters, on_upsert: true }",
  ],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {a: {y: 2}}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, a: {y: 2, n: 1}, no: 1}],
},
{
  name: "sequence: a number that only the filter of a replacing upsert brings",
  must: "is not stored",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters }"],
  stored: [],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1, no: 1}, u: {x: 2}, upsert: true}]},
      reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 2}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 1, x: 2}, {_id: 2, no: 2}],
},
{
  name: "sequence: a number that a replacement brings to a document without one",
  must: "is not assigned again",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters }"],
  stored: [{_id: 1}],
  steps: [
    {command: {update: "c", updates: [{q: {_id: 1}, u: {no: 1}}]}, reply: {n: 1, nModified: 1, ok: 1}},
    {command: {insert: "c", documents: [{_id: 2}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 1, no: 1}, {_id: 2, no: 2}],
},
{
  name: "sequence: an empty timestamp in a replacement",
  must: "becomes the time",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters }"],
  stored: [{_id: 1, no: 4}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {x: 2, note: Timestamp(0, 0)}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, x: 2, note: {$now: "timestamp"}, no: 4}],
},
{
  name: "sequence: a replacing upsert whose filter has a field twice",
  must: "it is inserted, as by mongod",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {note: {$all: [1, 2]}}, u: {note: 1}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, note: 1}],
},
{
  name: "sequence: a replacing upsert whose _id is of another numeric type",
  must: "it is inserted with a number, as by mongod",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: Double(1.0)}, u: {_id: 1, x: 1}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, x: 1, no: 1}],
},
{
  name: "sequence: a number that a client brings",
  must: "is not assigned again",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters }"],
  stored: [],
  steps: [
    {command: {insert: "c", documents: [{_id: 1, no: 2}]}, reply: {n: 1, ok: 1}},
    {command: {insert: "c", documents: [{_id: 2}]}, reply: {n: 1, ok: 1}},
    {command: {insert: "c", documents: [{_id: 3}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 1, no: 2}, {_id: 2, no: 3}, {_id: 3, no: 4}],
},
{
  name: "sequence: two fields by one counter",
  must: "the counter begins behind both",
  rules: [
    "sequence: { field: no, counter: COLLECTION, collection: counters, start: after_max }",
    "sequence: { field: a.n, counter: COLLECTION, collection: counters, start: after_max }",
  ],
  stored: [{_id: 1, no: 2, a: {n: 4}}, {_id: 2, no: 3, a: {n: 5}}],
  steps: [
    {command: {insert: "c", documents: [{_id: 3}]}, reply: {n: 1, ok: 1}},
    {command: {insert: "c", documents: [{_id: 4}]}, reply: {n: 1, ok: 1}},
  ],
  after: [
    {_id: 1, no: 2, a: {n: 4}},
    {_id: 2, no: 3, a: {n: 5}},
    {_id: 3, no: 6, a: {n: 7}},
    {_id: 4, no: 8, a: {n: 9}},
  ],
},
{
  name: "sequence: a replacing upsert whose filter has an equality on the number out of bounds",
  must: "inserts the next number, nothing out of bounds",
  rules: [
    "sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }",
    "bounds: { field: no, max: 2.5 }",
  ],
  stored: [],
  steps: [
    {
      command: {update: "c", updates: [{q: {no: {}}, u: {}, upsert: true}]},
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {
      command: {update: "c", updates: [{q: {no: 3}, u: {x: 1}, upsert: true}]},
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
  ],
  after: [{_id: {$now: "id"}, no: 1}, {_id: {$now: "id"}, x: 1, no: 2}],
},
{
  name: "sequence: the number that a replacing upsert gets is out of bounds",
  must: "nothing is inserted with it",
  rules: [
    "sequence: { field: no, counter: COLLECTION, collection: counters, start: after_max, on_upsert: true }",
    "bounds: { field: no, min: 1, max: 2.5 }",
  ],
  stored: [{_id: 2, no: 133}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 4}, u: {}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "bounds"}], ok: 1},
  }],
  after: [{_id: 2, no: 133}],
},
{
  name: "sequence: an array among the numbers",
  must: "does not block all inserts",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, start: after_max }"],
  stored: [{_id: 1, no: [9]}, {_id: 2, no: 3}],
  steps: [{command: {insert: "c", documents: [{_id: 3}]}, reply: {n: 1, ok: 1}}],
  after: [{_id: 1, no: [9]}, {_id: 2, no: 3}, {_id: 3, no: 4}],
},
{
  name: "sequence: a Decimal128 among the numbers",
  must: "does not block all inserts",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, start: after_max }"],
  stored: [{_id: 1, no: Decimal128("7")}],
  steps: [{command: {insert: "c", documents: [{_id: 3}]}, reply: {n: 1, ok: 1}}],
  after: [{_id: 1, no: Decimal128("7")}, {_id: 3, no: 8}],
},
{
  name: "sequence: optimistic in a transaction, beside 8.5",
  must: "the number is above 8.5",
  rules: ["sequence: { field: no, strategy: optimistic }"],
  stored: [{_id: 1, no: 8.5}],
  steps: [{
    session: "in a transaction, then commit",
    command: {insert: "c", documents: [{_id: 2}]},
    reply: {n: 1, ok: 1},
    commit: {ok: 1},
  }],
  after: [{_id: 1, no: 8.5}, {_id: 2, no: 9}],
},
{
  name: "sequence: optimistic, and a later document of the batch brings its number",
  must: "the others get the next numbers",
  rules: ["sequence: { field: no, strategy: optimistic }"],
  stored: [],
  steps: [
    {
      command: {createIndexes: "c", indexes: [{key: {no: 1}, name: "no", unique: true}]},
      reply: {
        numIndexesBefore: 1,
        numIndexesAfter: 2,
        createdCollectionAutomatically: false,
        commitQuorum: "votingMembers",
        ok: 1,
      },
    },
    {command: {insert: "c", documents: [{_id: 1}, {_id: 2, no: 1}, {_id: 3}]}, reply: {n: 3, ok: 1}},
  ],
  after: [{_id: 1, no: 2}, {_id: 2, no: 1}, {_id: 3, no: 3}],
},
{
  name: "sequence: a replacement with a number of its own, where there is none",
  must: "its number is neither stored nor counted",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, provided: replace }"],
  stored: [{_id: 1}],
  steps: [
    {command: {insert: "c", documents: [{_id: 2}]}, reply: {n: 1, ok: 1}},
    {command: {update: "c", updates: [{q: {_id: 1}, u: {no: 900}}]}, reply: {n: 1, nModified: 1, ok: 1}},
    {command: {insert: "c", documents: [{_id: 3}]}, reply: {n: 1, ok: 1}},
    {command: {insert: "c", documents: [{_id: 4}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 1}, {_id: 2, no: 1}, {_id: 3, no: 2}, {_id: 4, no: 3}],
},
{
  name: "sequence: an upsert by replacement without a number, where upserts get none",
  must: "gets none",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, provided: replace }"],
  stored: [{_id: 1}],
  steps: [
    {command: {update: "c", updates: [{q: {_id: 1}, u: {a: 2}, upsert: true}]}, reply: {n: 1, nModified: 1, ok: 1}},
    {
      command: {update: "c", updates: [{q: {_id: 2}, u: {a: 2}, upsert: true}]},
      reply: {n: 1, upserted: [{index: 0, _id: 2}], nModified: 0, ok: 1},
    },
  ],
  after: [{_id: 1, a: 2}, {_id: 2, a: 2}],
},
{
  name: "sequence: a replacing upsert whose filter has null as the number",
  must: "gets a number",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, no: null}, u: {b: 1}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, b: 1, no: 1}],
},
{
  name: "sequence: a replacing upsert whose filter has two numbers",
  must: "gets a number",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }"],
  stored: [],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1, $and: [{no: 60}, {no: 61}]}, u: {b: 1}, upsert: true}]},
      reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
    },
    {
      command: {update: "c", updates: [{q: {_id: 2, no: {$all: [60, 60]}}, u: {b: 1}, upsert: true}]},
      reply: {n: 1, upserted: [{index: 0, _id: 2}], nModified: 0, ok: 1},
    },
  ],
  after: [{_id: 1, b: 1, no: 1}, {_id: 2, b: 1, no: 61}],
},
{
  name: "sequence: an upsert whose filter may or may not have a number",
  must: "inserts no document without a number",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, $or: [{no: 60}, {no: 60}]}, u: {$set: {b: 1}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, b: 1, no: 1}],
},
{
  name: "sequence: an upsert by an ObjectId that the client names",
  must: "inserts it",
  rules: ["sequence: { field: _id, counter: COLLECTION, collection: counters, replace_generated: true }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: ObjectId("010101010101010101010101")}, u: {$set: {a: 2}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: ObjectId("010101010101010101010101")}], nModified: 0, ok: 1},
  }],
  after: [{_id: ObjectId("010101010101010101010101"), a: 2}],
},
{
  name: "sequence: an upsert by replacement with a number that is replaced",
  must: "gets the next number",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, provided: replace }"],
  stored: [],
  steps: [
    {command: {insert: "c", documents: [{_id: 2}]}, reply: {n: 1, ok: 1}},
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {no: 1}, upsert: true}]},
      reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
    },
  ],
  after: [{_id: 1, no: 2}, {_id: 2, no: 1}],
},
// Numbers that clients write in other forms than `{$set: {no: 3}}`, and inserts that must not get them.
{
  name: "sequence: a constant pipeline",
  must: "the number is not assigned again",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters }"],
  stored: [{_id: 1, no: 0}],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: [{$set: {no: 3}}]}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "sequence"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 10}, {_id: 11}, {_id: 12}, {_id: 13}, {_id: 14}]}, reply: {n: 5, ok: 1}},
  ],
  after: [{_id: 1, no: 0}, {_id: 10, no: 4}, {_id: 11, no: 5}, {_id: 12, no: 6}, {_id: 13, no: 7}, {_id: 14, no: 8}],
},
{
  name: "sequence: a constant pipeline in a findAndModify",
  must: "the number is not assigned again",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters }"],
  stored: [{_id: 1, no: 0}],
  steps: [
    {
      command: {findAndModify: "c", query: {_id: 1}, update: [{$set: {no: 3}}]},
      reply: {ok: 0, code: 121, pattern: "sequence"},
    },
    {command: {insert: "c", documents: [{_id: 10}, {_id: 11}, {_id: 12}, {_id: 13}, {_id: 14}]}, reply: {n: 5, ok: 1}},
  ],
  after: [{_id: 1, no: 0}, {_id: 10, no: 4}, {_id: 11, no: 5}, {_id: 12, no: 6}, {_id: 13, no: 7}, {_id: 14, no: 8}],
},
{
  name: "sequence: a constant pipeline that inserts",
  must: "the number is not assigned again",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters }"],
  stored: [],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: [{$set: {no: 3}}], upsert: true}]},
      reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 10}, {_id: 11}, {_id: 12}, {_id: 13}, {_id: 14}]}, reply: {n: 5, ok: 1}},
  ],
  after: [{_id: 1, no: 3}, {_id: 10, no: 4}, {_id: 11, no: 5}, {_id: 12, no: 6}, {_id: 13, no: 7}, {_id: 14, no: 8}],
},
{
  name: "sequence: a constant pipeline that inserts, with on_upsert",
  must: "the number is not assigned again",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }"],
  stored: [],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: [{$set: {no: 3}}], upsert: true}]},
      reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 10}, {_id: 11}, {_id: 12}, {_id: 13}, {_id: 14}]}, reply: {n: 5, ok: 1}},
  ],
  after: [{_id: 1, no: 3}, {_id: 10, no: 4}, {_id: 11, no: 5}, {_id: 12, no: 6}, {_id: 13, no: 7}, {_id: 14, no: 8}],
},
{
  name: "sequence: an element of an array",
  must: "the number is not assigned again",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters }"],
  stored: [{_id: 1, no: [0]}],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {"no.0": 3}}}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "sequence"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 10}, {_id: 11}, {_id: 12}, {_id: 13}, {_id: 14}]}, reply: {n: 5, ok: 1}},
  ],
  after: [{_id: 1, no: [0]}, {_id: 10, no: 1}, {_id: 11, no: 2}, {_id: 12, no: 3}, {_id: 13, no: 4}, {_id: 14, no: 5}],
},
{
  name: "sequence: an array around it",
  must: "the number is not assigned again",
  rules: ["sequence: { field: a.n, counter: COLLECTION, collection: counters }"],
  stored: [{_id: 1, a: {n: 0}}],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {a: [{n: 3}]}}}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "sequence"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 10}, {_id: 11}, {_id: 12}, {_id: 13}, {_id: 14}]}, reply: {n: 5, ok: 1}},
  ],
  after: [
    {_id: 1, a: {n: 0}},
    {_id: 10, a: {n: 1}},
    {_id: 11, a: {n: 2}},
    {_id: 12, a: {n: 3}},
    {_id: 13, a: {n: 4}},
    {_id: 14, a: {n: 5}},
  ],
},
{
  name: "$max of a document around it",
  must: "the number is not assigned again",
  rules: ["sequence: { field: a.n, counter: COLLECTION, collection: counters }"],
  stored: [{_id: 1, a: {n: 0}}],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {$max: {a: {n: 3, z: 1}}}}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "sequence"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 10}, {_id: 11}, {_id: 12}, {_id: 13}, {_id: 14}]}, reply: {n: 5, ok: 1}},
  ],
  after: [
    {_id: 1, a: {n: 0}},
    {_id: 10, a: {n: 1}},
    {_id: 11, a: {n: 2}},
    {_id: 12, a: {n: 3}},
    {_id: 13, a: {n: 4}},
    {_id: 14, a: {n: 5}},
  ],
},
{
  name: "sequence: a push",
  must: "the number is not assigned again",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters }"],
  stored: [{_id: 1, no: [0]}],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {$push: {no: {$each: [2, 3], $position: 0}}}}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "sequence"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 10}, {_id: 11}, {_id: 12}, {_id: 13}, {_id: 14}]}, reply: {n: 5, ok: 1}},
  ],
  after: [{_id: 1, no: [0]}, {_id: 10, no: 1}, {_id: 11, no: 2}, {_id: 12, no: 3}, {_id: 13, no: 4}, {_id: 14, no: 5}],
},
{
  name: "an upsert by push",
  must: "the number is not assigned again",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters }"],
  stored: [],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {$push: {no: {$each: [3], $position: 0}}}, upsert: true}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "sequence"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 10}, {_id: 11}, {_id: 12}, {_id: 13}, {_id: 14}]}, reply: {n: 5, ok: 1}},
  ],
  after: [{_id: 10, no: 1}, {_id: 11, no: 2}, {_id: 12, no: 3}, {_id: 13, no: 4}, {_id: 14, no: 5}],
},
{
  name: "an upsert by $addToSet",
  must: "the number is not assigned again",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters }"],
  stored: [],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: {$addToSet: {no: {$each: [3]}}}, upsert: true}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "sequence"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 10}, {_id: 11}, {_id: 12}, {_id: 13}, {_id: 14}]}, reply: {n: 5, ok: 1}},
  ],
  after: [{_id: 10, no: 1}, {_id: 11, no: 2}, {_id: 12, no: 3}, {_id: 13, no: 4}, {_id: 14, no: 5}],
},
{
  name: "sequence: an upsert of an element of the filter's array",
  must: "the number is not assigned again",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters }"],
  stored: [],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1, no: [0]}, u: {$set: {"no.0": 3}}, upsert: true}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "sequence"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 10}, {_id: 11}, {_id: 12}, {_id: 13}, {_id: 14}]}, reply: {n: 5, ok: 1}},
  ],
  after: [{_id: 10, no: 1}, {_id: 11, no: 2}, {_id: 12, no: 3}, {_id: 13, no: 4}, {_id: 14, no: 5}],
},
{
  name: "sequence: an upsert by $inc",
  must: "the number is not assigned again",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters }"],
  stored: [],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1, no: 1}, u: {$inc: {no: 2}}, upsert: true}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "sequence"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 10}, {_id: 11}, {_id: 12}, {_id: 13}, {_id: 14}]}, reply: {n: 5, ok: 1}},
  ],
  after: [{_id: 10, no: 2}, {_id: 11, no: 3}, {_id: 12, no: 4}, {_id: 13, no: 5}, {_id: 14, no: 6}],
},
// Upserts whose number only the server knows.
{
  name: "sequence: an upsert by $bit",
  must: "is rejected",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$bit: {no: {or: 3}}}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "sequence"}], ok: 1},
  }],
  after: [],
},
{
  name: "sequence: an upsert by $inc of a decimal",
  must: "is rejected",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, no: Decimal128("1")}, u: {$inc: {no: 2}}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "sequence"}], ok: 1},
  }],
  after: [],
},
{
  name: "sequence: an upsert by a pipeline that computes",
  must: "is rejected",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, provided: reject }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: [{$set: {no: {$add: [5, 1]}}}], upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "sequence"}], ok: 1},
  }],
  after: [],
},
{
  name: "sequence: an upsert by $replaceWith",
  must: "is rejected",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, provided: reject }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: [{$replaceWith: {no: 9}}], upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "sequence"}], ok: 1},
  }],
  after: [],
},
{
  name: "sequence: upserts that find none, whose number is replaced",
  must: "insert the next numbers",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, provided: replace }"],
  stored: [],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1}, u: [{$set: {no: {$add: [5, 1]}}}], upsert: true}]},
      reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
    },
    {
      command: {update: "c", updates: [{q: {no: 7}, u: {no: 9, x: 2}, upsert: true}]},
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
  ],
  after: [{_id: 1, no: 1}, {_id: {$now: "id"}, no: 2, x: 2}],
},
{
  name: "sequence: a replacing upsert that finds a document by its number",
  must: "keeps that number",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, provided: replace }"],
  stored: [{_id: 1, no: 7}],
  steps: [{
    command: {update: "c", updates: [{q: {no: 7}, u: {no: 9, x: 2}, upsert: true}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, no: 7, x: 2}],
},
{
  name: "sequence: an upsert that writes elements of the array around the number",
  must: "changes a stored one",
  rules: ["sequence: { field: a.n, counter: COLLECTION, collection: counters, on_upsert: true }"],
  stored: [{_id: 1, a: [{x: 1}]}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {"a.$[].x": 2}}, upsert: true}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, a: [{x: 2}]}],
},
{
  name: "a checked pipeline that gives the _id another numeric type",
  must: "is executed at once",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters }"],
  stored: [{_id: 1, no: 7}],
  steps: [{
    command: {
      findAndModify: "c",
      query: {_id: 1},
      update: [{$set: {_id: {$literal: Long("1")}, no: "$no"}}],
      fields: {no: 1},
    },
    reply: {lastErrorObject: {n: 1, updatedExisting: true}, value: {_id: 1, no: 7}, ok: 1},
  }],
  after: [{_id: Long("1"), no: 7}],
  seconds: 1,
},
{
  name: "sequence: a pipeline that computes and finds a document",
  must: "does not change its number",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, provided: reject }"],
  stored: [{_id: 1, no: 7}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: [{$set: {no: {$add: [5, 1]}}}]}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "sequence"}], ok: 1},
  }],
  after: [{_id: 1, no: 7}],
},
{
  name: "sequence: a replacing upsert whose filter states a part of the number",
  must: "does not insert that part as the number",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {"no.x": {}}, u: {x: 1}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, x: 1, no: 1}],
},
{
  name: "sequence: a replacing upsert whose filter states a part of the number",
  must: "does not insert that part as the number",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {"no.x": null}, u: {x: 1}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, x: 1, no: 1}],
},
{
  name: "sequence: a replacing upsert whose filter states a part of the number",
  must: "does not insert that part as the number",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {$or: [{"no.x": 1}, {"no.x": 1}]}, u: {x: 1}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, x: 1, no: 1}],
},
]
