// Numbers of the optimistic strategy: duplicates that are not docward's, and other rules for the document with the
// number.
[
{
  name: "sequence: a replacing upsert whose filter may have a number that another document has",
  must: "inserts no document without a number",
  rules: ["sequence: { field: no, strategy: optimistic, on_upsert: true }"],
  stored: [{_id: 1, no: 20, x: 1}],
  steps: [
    {
      command: {
        createIndexes: "c",
        indexes: [{key: {no: 1}, name: "no", unique: true, partialFilterExpression: {no: {$exists: true}}}],
      },
      reply: {
        numIndexesBefore: 1,
        numIndexesAfter: 2,
        createdCollectionAutomatically: false,
        commitQuorum: "votingMembers",
        ok: 1,
      },
    },
    {
      command: {update: "c", updates: [{q: {no: {$in: [20, Decimal128("20")]}, x: 2}, u: {y: 1}, upsert: true}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "sequence"}], ok: 1},
    },
  ],
  after: [{_id: 1, no: 20, x: 1}],
},
{
  name: "sequence: an upsert whose filter has a number that another document has",
  must: "the duplicate key is reported at once",
  rules: ["sequence: { field: no, strategy: optimistic, on_upsert: true }"],
  stored: [{_id: 1, no: 20, x: 1}],
  steps: [
    {
      command: {
        createIndexes: "c",
        indexes: [{key: {no: 1}, name: "no", unique: true, partialFilterExpression: {no: {$exists: true}}}],
      },
      reply: {
        numIndexesBefore: 1,
        numIndexesAfter: 2,
        createdCollectionAutomatically: false,
        commitQuorum: "votingMembers",
        ok: 1,
      },
    },
    {
      command: {
        update: "c",
        updates: [{q: {no: {$in: [20, Decimal128("20")]}, x: 2}, u: {$set: {y: 1}}, upsert: true}],
      },
      reply: {
        n: 0,
        nModified: 0,
        writeErrors: [{index: 0, code: 11000, keyPattern: {no: 1}, keyValue: {no: 20}}],
        ok: 1,
      },
    },
  ],
  after: [{_id: 1, no: 20, x: 1}],
  seconds: 1,
},
{
  name: "limits: an optimistic number makes an inserted document too long",
  must: "is rejected",
  rules: ["sequence: { field: no, strategy: optimistic }", "limits: { document: 105B }"],
  stored: [],
  steps: [{
    command: {
      insert: "c",
      documents: [{_id: 1, x: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}],
    },
    reply: {n: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [],
},
{
  name: "limits: an optimistic number makes one document of an ordered batch too long",
  must: "the documents before it are inserted",
  rules: ["sequence: { field: no, strategy: optimistic }", "limits: { document: 105B }"],
  stored: [],
  steps: [{
    command: {
      insert: "c",
      documents: [
        {_id: 7},
        {_id: 1, x: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"},
        {_id: 2, x: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"},
        {_id: 8},
      ],
    },
    reply: {n: 1, writeErrors: [{index: 1, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [{_id: 7, no: 1}],
},
{
  name: "limits: an upsert by a replacement that keeps an optimistic number",
  must: "is inserted with a number",
  rules: ["sequence: { field: no, strategy: optimistic, on_upsert: true }", "limits: { document: 1600B }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {}, u: {}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, no: 1}],
},
{
  name: "limits: an upsert by a replacement that keeps an optimistic number of a stored document",
  must: "replaces it",
  rules: ["sequence: { field: no, strategy: optimistic, on_upsert: true }", "limits: { document: 1600B }"],
  stored: [{_id: 1, no: 7}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {a: 1}, upsert: true}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, a: 1, no: 7}],
},
{
  name: "limits: an upsert with a number that timestamps makes a pipeline of",
  must: "is inserted with a number",
  rules: [
    "timestamps: { source: at, fields: [a.n, b], without_source: clock }",
    "sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }",
    "limits: { document: 1600B }",
  ],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {}, u: {$set: {at: new Date(1000000000000)}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, at: new Date(1000000000000), last_modified: {at: new Date(1000000000000)}, no: 1}],
},
{
  name: "schema_version: an upsert with an optimistic number",
  must: "is inserted with a number",
  rules: [
    "sequence: { field: a.n, strategy: optimistic, on_upsert: true }",
    "schema_version: { field: b, current: 2, minimum: 1 }",
  ],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {}, u: {$set: {b: 1}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, a: {n: 1}, b: 1}],
},
{
  name: "bounds: an optimistic number beyond the range",
  must: "only the first document is inserted",
  rules: ["sequence: { field: no, strategy: optimistic }", "bounds: { field: no, max: 21 }"],
  stored: [{_id: 1, no: 20, x: 1}],
  steps: [{
    command: {insert: "c", documents: [{_id: 2}, {_id: 3}, {_id: 4}], ordered: false},
    reply: {
      n: 1,
      writeErrors: [{index: 1, code: 121, pattern: "bounds"}, {index: 2, code: 121, pattern: "bounds"}],
      ok: 1,
    },
  }],
  after: [{_id: 1, no: 20, x: 1}, {_id: 2, no: 21}],
},
]
