// Upserts of a stored and of new documents in one command: what is stored, and the upserted ids in the reply. Each
// also in a transaction, and with `timestamps` beside the rule.
[
{
  name: "sequence: a batch of upserts, one of a stored document without a number",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }"],
  stored: [{_id: 1}],
  steps: [{
    command: {
      update: "c",
      updates: [
        {q: {_id: 1}, u: {$set: {x: 1}}, upsert: true},
        {q: {_id: 2}, u: {$set: {x: 2}}, upsert: true},
        {q: {_id: 3}, u: {$set: {x: 3}}, upsert: true},
      ],
    },
    reply: {n: 3, upserted: [{index: 1, _id: 2}, {index: 2, _id: 3}], nModified: 1, ok: 1},
  }],
  after: [{_id: 1, x: 1}, {_id: 2, no: 2, x: 2}, {_id: 3, no: 3, x: 3}],
},
{
  name: "sequence: a batch of upserts, one of a stored document without a number",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }"],
  stored: [{_id: 1}],
  steps: [{
    command: {
      update: "c",
      updates: [
        {q: {_id: 1}, u: {$set: {x: 1}}, upsert: true},
        {q: {_id: 2}, u: {$set: {x: 2}}, upsert: true},
        {q: {_id: 3}, u: {$set: {x: 3}}, upsert: true},
      ],
      ordered: false,
    },
    reply: {n: 3, upserted: [{index: 1, _id: 2}, {index: 2, _id: 3}], nModified: 1, ok: 1},
  }],
  after: [{_id: 1, x: 1}, {_id: 2, no: 2, x: 2}, {_id: 3, no: 3, x: 3}],
},
{
  name: "sequence: a batch of upserts, one of a stored document without a number",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }"],
  stored: [{_id: 1}],
  steps: [{
    session: "in a transaction, then commit",
    command: {
      update: "c",
      updates: [
        {q: {_id: 1}, u: {$set: {x: 1}}, upsert: true},
        {q: {_id: 2}, u: {$set: {x: 2}}, upsert: true},
        {q: {_id: 3}, u: {$set: {x: 3}}, upsert: true},
      ],
    },
    reply: {n: 3, upserted: [{index: 1, _id: 2}, {index: 2, _id: 3}], nModified: 1, ok: 1},
    commit: {ok: 1},
  }],
  after: [{_id: 1, x: 1}, {_id: 2, no: 2, x: 2}, {_id: 3, no: 3, x: 3}],
},
{
  name: "sequence: a batch of upserts, one of a stored document without a number",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: [
    "sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }",
    "timestamps: { source: at, fields: [x] }",
  ],
  stored: [{_id: 1}],
  steps: [{
    command: {
      update: "c",
      updates: [
        {q: {_id: 1}, u: {$set: {x: 1, at: new Date(1000000000000)}}, upsert: true},
        {q: {_id: 2}, u: {$set: {x: 2, at: new Date(1000000000000)}}, upsert: true},
        {q: {_id: 3}, u: {$set: {x: 3, at: new Date(1000000000000)}}, upsert: true},
      ],
    },
    reply: {n: 3, upserted: [{index: 1, _id: 2}, {index: 2, _id: 3}], nModified: 1, ok: 1},
  }],
  after: [
    {
      _id: 1,
      at: new Date(1000000000000),
      x: 1,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
    },
    {
      _id: 2,
      at: new Date(1000000000000),
      x: 2,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
      no: 2,
    },
    {
      _id: 3,
      at: new Date(1000000000000),
      x: 3,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
      no: 3,
    },
  ],
},
{
  name: "sequence: a batch of upserts, one of a stored document without a number",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: [
    "sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }",
    "timestamps: { source: at, fields: [x] }",
  ],
  stored: [{_id: 1}],
  steps: [{
    command: {
      update: "c",
      updates: [
        {q: {_id: 1}, u: {$set: {x: 1, at: new Date(1000000000000)}}, upsert: true},
        {q: {_id: 2}, u: {$set: {x: 2, at: new Date(1000000000000)}}, upsert: true},
        {q: {_id: 3}, u: {$set: {x: 3, at: new Date(1000000000000)}}, upsert: true},
      ],
      ordered: false,
    },
    reply: {n: 3, upserted: [{index: 1, _id: 2}, {index: 2, _id: 3}], nModified: 1, ok: 1},
  }],
  after: [
    {
      _id: 1,
      at: new Date(1000000000000),
      x: 1,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
    },
    {
      _id: 2,
      at: new Date(1000000000000),
      x: 2,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
      no: 2,
    },
    {
      _id: 3,
      at: new Date(1000000000000),
      x: 3,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
      no: 3,
    },
  ],
},
{
  name: "sequence: a batch of upserts, one of a stored document without a number",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: [
    "sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }",
    "timestamps: { source: at, fields: [x] }",
  ],
  stored: [{_id: 1}],
  steps: [{
    session: "in a transaction, then commit",
    command: {
      update: "c",
      updates: [
        {q: {_id: 1}, u: {$set: {x: 1, at: new Date(1000000000000)}}, upsert: true},
        {q: {_id: 2}, u: {$set: {x: 2, at: new Date(1000000000000)}}, upsert: true},
        {q: {_id: 3}, u: {$set: {x: 3, at: new Date(1000000000000)}}, upsert: true},
      ],
    },
    reply: {n: 3, upserted: [{index: 1, _id: 2}, {index: 2, _id: 3}], nModified: 1, ok: 1},
    commit: {ok: 1},
  }],
  after: [
    {
      _id: 1,
      at: new Date(1000000000000),
      x: 1,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
    },
    {
      _id: 2,
      at: new Date(1000000000000),
      x: 2,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
      no: 2,
    },
    {
      _id: 3,
      at: new Date(1000000000000),
      x: 3,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
      no: 3,
    },
  ],
},
{
  name: "replacement: a batch of upserts, one of them a save with the stored version",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["replacement: { policy: check_version, version: version }"],
  stored: [{_id: 1, version: 4}],
  steps: [{
    command: {
      update: "c",
      updates: [
        {q: {_id: 1}, u: {x: 1, version: 4}, upsert: true},
        {q: {_id: 2}, u: {x: 2}, upsert: true},
        {q: {_id: 3}, u: {x: 3}, upsert: true},
      ],
    },
    reply: {n: 3, upserted: [{index: 1, _id: 2}, {index: 2, _id: 3}], nModified: 1, ok: 1},
  }],
  after: [{_id: 1, x: 1, version: 5}, {_id: 2, x: 2, version: 1}, {_id: 3, x: 3, version: 1}],
},
{
  name: "replacement: a batch of upserts, one of them a save with the stored version",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["replacement: { policy: check_version, version: version }"],
  stored: [{_id: 1, version: 4}],
  steps: [{
    command: {
      update: "c",
      updates: [
        {q: {_id: 1}, u: {x: 1, version: 4}, upsert: true},
        {q: {_id: 2}, u: {x: 2}, upsert: true},
        {q: {_id: 3}, u: {x: 3}, upsert: true},
      ],
      ordered: false,
    },
    reply: {n: 3, upserted: [{index: 1, _id: 2}, {index: 2, _id: 3}], nModified: 1, ok: 1},
  }],
  after: [{_id: 1, x: 1, version: 5}, {_id: 2, x: 2, version: 1}, {_id: 3, x: 3, version: 1}],
},
{
  name: "replacement: a batch of upserts, one of them a save with the stored version",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["replacement: { policy: check_version, version: version }"],
  stored: [{_id: 1, version: 4}],
  steps: [{
    session: "in a transaction, then commit",
    command: {
      update: "c",
      updates: [
        {q: {_id: 1}, u: {x: 1, version: 4}, upsert: true},
        {q: {_id: 2}, u: {x: 2}, upsert: true},
        {q: {_id: 3}, u: {x: 3}, upsert: true},
      ],
    },
    reply: {n: 3, upserted: [{index: 1, _id: 2}, {index: 2, _id: 3}], nModified: 1, ok: 1},
    commit: {ok: 1},
  }],
  after: [{_id: 1, x: 1, version: 5}, {_id: 2, x: 2, version: 1}, {_id: 3, x: 3, version: 1}],
},
{
  name: "replacement: a batch of upserts, one of them a save with the stored version",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["replacement: { policy: check_version, version: version }", "timestamps: { source: at, per: document }"],
  stored: [{_id: 1, version: 4}],
  steps: [{
    command: {
      update: "c",
      updates: [
        {q: {_id: 1}, u: {x: 1, version: 4, at: new Date(1000000000000)}, upsert: true},
        {q: {_id: 2}, u: {x: 2, at: new Date(1000000000000)}, upsert: true},
        {q: {_id: 3}, u: {x: 3, at: new Date(1000000000000)}, upsert: true},
      ],
    },
    reply: {n: 3, upserted: [{index: 1, _id: 2}, {index: 2, _id: 3}], nModified: 1, ok: 1},
  }],
  after: [
    {_id: 1, x: 1, version: 5, at: new Date(1000000000000), last_modified: new Date(1000000000000)},
    {_id: 2, x: 2, at: new Date(1000000000000), version: 1, last_modified: new Date(1000000000000)},
    {_id: 3, x: 3, at: new Date(1000000000000), version: 1, last_modified: new Date(1000000000000)},
  ],
},
{
  name: "replacement: a batch of upserts, one of them a save with the stored version",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["replacement: { policy: check_version, version: version }", "timestamps: { source: at, per: document }"],
  stored: [{_id: 1, version: 4}],
  steps: [{
    command: {
      update: "c",
      updates: [
        {q: {_id: 1}, u: {x: 1, version: 4, at: new Date(1000000000000)}, upsert: true},
        {q: {_id: 2}, u: {x: 2, at: new Date(1000000000000)}, upsert: true},
        {q: {_id: 3}, u: {x: 3, at: new Date(1000000000000)}, upsert: true},
      ],
      ordered: false,
    },
    reply: {n: 3, upserted: [{index: 1, _id: 2}, {index: 2, _id: 3}], nModified: 1, ok: 1},
  }],
  after: [
    {_id: 1, x: 1, version: 5, at: new Date(1000000000000), last_modified: new Date(1000000000000)},
    {_id: 2, x: 2, at: new Date(1000000000000), version: 1, last_modified: new Date(1000000000000)},
    {_id: 3, x: 3, at: new Date(1000000000000), version: 1, last_modified: new Date(1000000000000)},
  ],
},
{
  name: "replacement: a batch of upserts, one of them a save with the stored version",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["replacement: { policy: check_version, version: version }", "timestamps: { source: at, per: document }"],
  stored: [{_id: 1, version: 4}],
  steps: [{
    session: "in a transaction, then commit",
    command: {
      update: "c",
      updates: [
        {q: {_id: 1}, u: {x: 1, version: 4, at: new Date(1000000000000)}, upsert: true},
        {q: {_id: 2}, u: {x: 2, at: new Date(1000000000000)}, upsert: true},
        {q: {_id: 3}, u: {x: 3, at: new Date(1000000000000)}, upsert: true},
      ],
    },
    reply: {n: 3, upserted: [{index: 1, _id: 2}, {index: 2, _id: 3}], nModified: 1, ok: 1},
    commit: {ok: 1},
  }],
  after: [
    {_id: 1, x: 1, version: 5, at: new Date(1000000000000), last_modified: new Date(1000000000000)},
    {_id: 2, x: 2, at: new Date(1000000000000), version: 1, last_modified: new Date(1000000000000)},
    {_id: 3, x: 3, at: new Date(1000000000000), version: 1, last_modified: new Date(1000000000000)},
  ],
},
{
  name: "bounds: a batch of upserts that increment",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["bounds: { field: n, min: 0, max: 10 }"],
  stored: [{_id: 1, n: 9}],
  steps: [{
    command: {
      update: "c",
      updates: [
        {q: {_id: 1}, u: {$set: {x: 1}, $inc: {n: 1}}, upsert: true},
        {q: {_id: 2}, u: {$set: {x: 2}, $inc: {n: 1}}, upsert: true},
        {q: {_id: 3}, u: {$set: {x: 3}, $inc: {n: 1}}, upsert: true},
      ],
    },
    reply: {n: 3, upserted: [{index: 1, _id: 2}, {index: 2, _id: 3}], nModified: 1, ok: 1},
  }],
  after: [{_id: 1, n: 10, x: 1}, {_id: 2, n: 1, x: 2}, {_id: 3, n: 1, x: 3}],
},
{
  name: "bounds: a batch of upserts that increment",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["bounds: { field: n, min: 0, max: 10 }"],
  stored: [{_id: 1, n: 9}],
  steps: [{
    command: {
      update: "c",
      updates: [
        {q: {_id: 1}, u: {$set: {x: 1}, $inc: {n: 1}}, upsert: true},
        {q: {_id: 2}, u: {$set: {x: 2}, $inc: {n: 1}}, upsert: true},
        {q: {_id: 3}, u: {$set: {x: 3}, $inc: {n: 1}}, upsert: true},
      ],
      ordered: false,
    },
    reply: {n: 3, upserted: [{index: 1, _id: 2}, {index: 2, _id: 3}], nModified: 1, ok: 1},
  }],
  after: [{_id: 1, n: 10, x: 1}, {_id: 2, n: 1, x: 2}, {_id: 3, n: 1, x: 3}],
},
{
  name: "bounds: a batch of upserts that increment",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["bounds: { field: n, min: 0, max: 10 }"],
  stored: [{_id: 1, n: 9}],
  steps: [{
    session: "in a transaction, then commit",
    command: {
      update: "c",
      updates: [
        {q: {_id: 1}, u: {$set: {x: 1}, $inc: {n: 1}}, upsert: true},
        {q: {_id: 2}, u: {$set: {x: 2}, $inc: {n: 1}}, upsert: true},
        {q: {_id: 3}, u: {$set: {x: 3}, $inc: {n: 1}}, upsert: true},
      ],
    },
    reply: {n: 3, upserted: [{index: 1, _id: 2}, {index: 2, _id: 3}], nModified: 1, ok: 1},
    commit: {ok: 1},
  }],
  after: [{_id: 1, n: 10, x: 1}, {_id: 2, n: 1, x: 2}, {_id: 3, n: 1, x: 3}],
},
{
  name: "bounds: a batch of upserts that increment",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["bounds: { field: n, min: 0, max: 10 }", "timestamps: { source: at, fields: [x] }"],
  stored: [{_id: 1, n: 9}],
  steps: [{
    command: {
      update: "c",
      updates: [
        {q: {_id: 1}, u: {$set: {x: 1, at: new Date(1000000000000)}, $inc: {n: 1}}, upsert: true},
        {q: {_id: 2}, u: {$set: {x: 2, at: new Date(1000000000000)}, $inc: {n: 1}}, upsert: true},
        {q: {_id: 3}, u: {$set: {x: 3, at: new Date(1000000000000)}, $inc: {n: 1}}, upsert: true},
      ],
    },
    reply: {n: 3, upserted: [{index: 1, _id: 2}, {index: 2, _id: 3}], nModified: 1, ok: 1},
  }],
  after: [
    {
      _id: 1,
      n: 10,
      at: new Date(1000000000000),
      x: 1,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
    },
    {
      _id: 2,
      at: new Date(1000000000000),
      n: 1,
      x: 2,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
    },
    {
      _id: 3,
      at: new Date(1000000000000),
      n: 1,
      x: 3,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
    },
  ],
},
{
  name: "bounds: a batch of upserts that increment",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["bounds: { field: n, min: 0, max: 10 }", "timestamps: { source: at, fields: [x] }"],
  stored: [{_id: 1, n: 9}],
  steps: [{
    command: {
      update: "c",
      updates: [
        {q: {_id: 1}, u: {$set: {x: 1, at: new Date(1000000000000)}, $inc: {n: 1}}, upsert: true},
        {q: {_id: 2}, u: {$set: {x: 2, at: new Date(1000000000000)}, $inc: {n: 1}}, upsert: true},
        {q: {_id: 3}, u: {$set: {x: 3, at: new Date(1000000000000)}, $inc: {n: 1}}, upsert: true},
      ],
      ordered: false,
    },
    reply: {n: 3, upserted: [{index: 1, _id: 2}, {index: 2, _id: 3}], nModified: 1, ok: 1},
  }],
  after: [
    {
      _id: 1,
      n: 10,
      at: new Date(1000000000000),
      x: 1,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
    },
    {
      _id: 2,
      at: new Date(1000000000000),
      n: 1,
      x: 2,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
    },
    {
      _id: 3,
      at: new Date(1000000000000),
      n: 1,
      x: 3,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
    },
  ],
},
{
  name: "bounds: a batch of upserts that increment",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["bounds: { field: n, min: 0, max: 10 }", "timestamps: { source: at, fields: [x] }"],
  stored: [{_id: 1, n: 9}],
  steps: [{
    session: "in a transaction, then commit",
    command: {
      update: "c",
      updates: [
        {q: {_id: 1}, u: {$set: {x: 1, at: new Date(1000000000000)}, $inc: {n: 1}}, upsert: true},
        {q: {_id: 2}, u: {$set: {x: 2, at: new Date(1000000000000)}, $inc: {n: 1}}, upsert: true},
        {q: {_id: 3}, u: {$set: {x: 3, at: new Date(1000000000000)}, $inc: {n: 1}}, upsert: true},
      ],
    },
    reply: {n: 3, upserted: [{index: 1, _id: 2}, {index: 2, _id: 3}], nModified: 1, ok: 1},
    commit: {ok: 1},
  }],
  after: [
    {
      _id: 1,
      n: 10,
      at: new Date(1000000000000),
      x: 1,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
    },
    {
      _id: 2,
      at: new Date(1000000000000),
      n: 1,
      x: 2,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
    },
    {
      _id: 3,
      at: new Date(1000000000000),
      n: 1,
      x: 3,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
    },
  ],
},
{
  name: "queue: a batch of upserts that insert jobs",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 1, locked: true, tlocked: new Date(4200000000000), try: 1}],
  steps: [{
    command: {
      update: "c",
      updates: [
        {q: {_id: 1}, u: {$setOnInsert: {x: 1}}, upsert: true},
        {q: {_id: 2}, u: {$setOnInsert: {x: 2}}, upsert: true},
        {q: {_id: 3}, u: {$setOnInsert: {x: 3}}, upsert: true},
      ],
    },
    reply: {n: 3, upserted: [{index: 1, _id: 2}, {index: 2, _id: 3}], nModified: 0, ok: 1},
  }],
  after: [
    {_id: 1, locked: true, tlocked: new Date(4200000000000), try: 1},
    {_id: 2, locked: false, tlocked: {$now: "date"}, try: 0, x: 2},
    {_id: 3, locked: false, tlocked: {$now: "date"}, try: 0, x: 3},
  ],
},
{
  name: "queue: a batch of upserts that insert jobs",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 1, locked: true, tlocked: new Date(4200000000000), try: 1}],
  steps: [{
    command: {
      update: "c",
      updates: [
        {q: {_id: 1}, u: {$setOnInsert: {x: 1}}, upsert: true},
        {q: {_id: 2}, u: {$setOnInsert: {x: 2}}, upsert: true},
        {q: {_id: 3}, u: {$setOnInsert: {x: 3}}, upsert: true},
      ],
      ordered: false,
    },
    reply: {n: 3, upserted: [{index: 1, _id: 2}, {index: 2, _id: 3}], nModified: 0, ok: 1},
  }],
  after: [
    {_id: 1, locked: true, tlocked: new Date(4200000000000), try: 1},
    {_id: 2, locked: false, tlocked: {$now: "date"}, try: 0, x: 2},
    {_id: 3, locked: false, tlocked: {$now: "date"}, try: 0, x: 3},
  ],
},
{
  name: "queue: a batch of upserts that insert jobs",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 1, locked: true, tlocked: new Date(4200000000000), try: 1}],
  steps: [{
    session: "in a transaction, then commit",
    command: {
      update: "c",
      updates: [
        {q: {_id: 1}, u: {$setOnInsert: {x: 1}}, upsert: true},
        {q: {_id: 2}, u: {$setOnInsert: {x: 2}}, upsert: true},
        {q: {_id: 3}, u: {$setOnInsert: {x: 3}}, upsert: true},
      ],
    },
    reply: {n: 3, upserted: [{index: 1, _id: 2}, {index: 2, _id: 3}], nModified: 0, ok: 1},
    commit: {ok: 1},
  }],
  after: [
    {_id: 1, locked: true, tlocked: new Date(4200000000000), try: 1},
    {_id: 2, locked: false, tlocked: {$now: "date"}, try: 0, x: 2},
    {_id: 3, locked: false, tlocked: {$now: "date"}, try: 0, x: 3},
  ],
},
{
  name: "queue: a batch of upserts that insert jobs",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: [
    "queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }",
    "timestamps: { source: at, fields: [x] }",
  ],
  stored: [{_id: 1, locked: true, tlocked: new Date(4200000000000), try: 1}],
  steps: [{
    command: {
      update: "c",
      updates: [
        {q: {_id: 1}, u: {$setOnInsert: {x: 1, at: new Date(1000000000000)}}, upsert: true},
        {q: {_id: 2}, u: {$setOnInsert: {x: 2, at: new Date(1000000000000)}}, upsert: true},
        {q: {_id: 3}, u: {$setOnInsert: {x: 3, at: new Date(1000000000000)}}, upsert: true},
      ],
    },
    reply: {n: 3, upserted: [{index: 1, _id: 2}, {index: 2, _id: 3}], nModified: 0, ok: 1},
  }],
  after: [
    {_id: 1, locked: true, tlocked: new Date(4200000000000), try: 1},
    {
      _id: 2,
      at: new Date(1000000000000),
      last_modified: {at: new Date(1000000000000), x: new Date(1000000000000)},
      locked: false,
      tlocked: {$now: "date"},
      try: 0,
      x: 2,
    },
    {
      _id: 3,
      at: new Date(1000000000000),
      last_modified: {at: new Date(1000000000000), x: new Date(1000000000000)},
      locked: false,
      tlocked: {$now: "date"},
      try: 0,
      x: 3,
    },
  ],
},
{
  name: "queue: a batch of upserts that insert jobs",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: [
    "queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }",
    "timestamps: { source: at, fields: [x] }",
  ],
  stored: [{_id: 1, locked: true, tlocked: new Date(4200000000000), try: 1}],
  steps: [{
    command: {
      update: "c",
      updates: [
        {q: {_id: 1}, u: {$setOnInsert: {x: 1, at: new Date(1000000000000)}}, upsert: true},
        {q: {_id: 2}, u: {$setOnInsert: {x: 2, at: new Date(1000000000000)}}, upsert: true},
        {q: {_id: 3}, u: {$setOnInsert: {x: 3, at: new Date(1000000000000)}}, upsert: true},
      ],
      ordered: false,
    },
    reply: {n: 3, upserted: [{index: 1, _id: 2}, {index: 2, _id: 3}], nModified: 0, ok: 1},
  }],
  after: [
    {_id: 1, locked: true, tlocked: new Date(4200000000000), try: 1},
    {
      _id: 2,
      at: new Date(1000000000000),
      last_modified: {at: new Date(1000000000000), x: new Date(1000000000000)},
      locked: false,
      tlocked: {$now: "date"},
      try: 0,
      x: 2,
    },
    {
      _id: 3,
      at: new Date(1000000000000),
      last_modified: {at: new Date(1000000000000), x: new Date(1000000000000)},
      locked: false,
      tlocked: {$now: "date"},
      try: 0,
      x: 3,
    },
  ],
},
{
  name: "queue: a batch of upserts that insert jobs",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: [
    "queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }",
    "timestamps: { source: at, fields: [x] }",
  ],
  stored: [{_id: 1, locked: true, tlocked: new Date(4200000000000), try: 1}],
  steps: [{
    session: "in a transaction, then commit",
    command: {
      update: "c",
      updates: [
        {q: {_id: 1}, u: {$setOnInsert: {x: 1, at: new Date(1000000000000)}}, upsert: true},
        {q: {_id: 2}, u: {$setOnInsert: {x: 2, at: new Date(1000000000000)}}, upsert: true},
        {q: {_id: 3}, u: {$setOnInsert: {x: 3, at: new Date(1000000000000)}}, upsert: true},
      ],
    },
    reply: {n: 3, upserted: [{index: 1, _id: 2}, {index: 2, _id: 3}], nModified: 0, ok: 1},
    commit: {ok: 1},
  }],
  after: [
    {_id: 1, locked: true, tlocked: new Date(4200000000000), try: 1},
    {
      _id: 2,
      at: new Date(1000000000000),
      last_modified: {at: new Date(1000000000000), x: new Date(1000000000000)},
      locked: false,
      tlocked: {$now: "date"},
      try: 0,
      x: 2,
    },
    {
      _id: 3,
      at: new Date(1000000000000),
      last_modified: {at: new Date(1000000000000), x: new Date(1000000000000)},
      locked: false,
      tlocked: {$now: "date"},
      try: 0,
      x: 3,
    },
  ],
},
{
  name: "tree: a batch of upserts, each below the node before it",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["tree: { path: path, parent: parent }"],
  stored: [{_id: "a", path: null}],
  steps: [{
    command: {
      update: "c",
      updates: [
        {q: {_id: "a"}, u: {$set: {x: 1}}, upsert: true},
        {q: {_id: "b"}, u: {$set: {x: 2, parent: "a"}}, upsert: true},
        {q: {_id: "c", parent: "b"}, u: {$set: {x: 3}}, upsert: true},
      ],
    },
    reply: {n: 3, upserted: [{index: 1, _id: "b"}, {index: 2, _id: "c"}], nModified: 1, ok: 1},
  }],
  after: [
    {_id: "a", path: null, x: 1},
    {_id: "b", parent: "a", path: ",a,", x: 2},
    {_id: "c", parent: "b", path: ",a,b,", x: 3},
  ],
},
{
  name: "tree: a batch of upserts, each below the node before it",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["tree: { path: path, parent: parent }"],
  stored: [{_id: "a", path: null}],
  steps: [{
    command: {
      update: "c",
      updates: [
        {q: {_id: "a"}, u: {$set: {x: 1}}, upsert: true},
        {q: {_id: "b"}, u: {$set: {x: 2, parent: "a"}}, upsert: true},
        {q: {_id: "c", parent: "b"}, u: {$set: {x: 3}}, upsert: true},
      ],
      ordered: false,
    },
    reply: {n: 3, upserted: [{index: 1, _id: "b"}, {index: 2, _id: "c"}], nModified: 1, ok: 1},
  }],
  after: [
    {_id: "a", path: null, x: 1},
    {_id: "b", parent: "a", path: ",a,", x: 2},
    {_id: "c", parent: "b", path: ",a,b,", x: 3},
  ],
},
{
  name: "tree: a batch of upserts, each below the node before it",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["tree: { path: path, parent: parent }"],
  stored: [{_id: "a", path: null}],
  steps: [{
    session: "in a transaction, then commit",
    command: {
      update: "c",
      updates: [
        {q: {_id: "a"}, u: {$set: {x: 1}}, upsert: true},
        {q: {_id: "b"}, u: {$set: {x: 2, parent: "a"}}, upsert: true},
        {q: {_id: "c", parent: "b"}, u: {$set: {x: 3}}, upsert: true},
      ],
    },
    reply: {n: 3, upserted: [{index: 1, _id: "b"}, {index: 2, _id: "c"}], nModified: 1, ok: 1},
    commit: {ok: 1},
  }],
  after: [
    {_id: "a", path: null, x: 1},
    {_id: "b", parent: "a", path: ",a,", x: 2},
    {_id: "c", parent: "b", path: ",a,b,", x: 3},
  ],
},
{
  name: "tree: a batch of upserts, each below the node before it",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["tree: { path: path, parent: parent }", "timestamps: { source: at, fields: [x] }"],
  stored: [{_id: "a", path: null}],
  steps: [{
    command: {
      update: "c",
      updates: [
        {q: {_id: "a"}, u: {$set: {x: 1, at: new Date(1000000000000)}}, upsert: true},
        {q: {_id: "b"}, u: {$set: {x: 2, parent: "a", at: new Date(1000000000000)}}, upsert: true},
        {q: {_id: "c", parent: "b"}, u: {$set: {x: 3, at: new Date(1000000000000)}}, upsert: true},
      ],
    },
    reply: {n: 3, upserted: [{index: 1, _id: "b"}, {index: 2, _id: "c"}], nModified: 1, ok: 1},
  }],
  after: [
    {
      _id: "a",
      path: null,
      at: new Date(1000000000000),
      x: 1,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
    },
    {
      _id: "b",
      at: new Date(1000000000000),
      parent: "a",
      x: 2,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
      path: ",a,",
    },
    {
      _id: "c",
      parent: "b",
      at: new Date(1000000000000),
      x: 3,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
      path: ",a,b,",
    },
  ],
},
{
  name: "tree: a batch of upserts, each below the node before it",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["tree: { path: path, parent: parent }", "timestamps: { source: at, fields: [x] }"],
  stored: [{_id: "a", path: null}],
  steps: [{
    command: {
      update: "c",
      updates: [
        {q: {_id: "a"}, u: {$set: {x: 1, at: new Date(1000000000000)}}, upsert: true},
        {q: {_id: "b"}, u: {$set: {x: 2, parent: "a", at: new Date(1000000000000)}}, upsert: true},
        {q: {_id: "c", parent: "b"}, u: {$set: {x: 3, at: new Date(1000000000000)}}, upsert: true},
      ],
      ordered: false,
    },
    reply: {n: 3, upserted: [{index: 1, _id: "b"}, {index: 2, _id: "c"}], nModified: 1, ok: 1},
  }],
  after: [
    {
      _id: "a",
      path: null,
      at: new Date(1000000000000),
      x: 1,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
    },
    {
      _id: "b",
      at: new Date(1000000000000),
      parent: "a",
      x: 2,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
      path: ",a,",
    },
    {
      _id: "c",
      parent: "b",
      at: new Date(1000000000000),
      x: 3,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
      path: ",a,b,",
    },
  ],
},
{
  name: "tree: a batch of upserts, each below the node before it",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["tree: { path: path, parent: parent }", "timestamps: { source: at, fields: [x] }"],
  stored: [{_id: "a", path: null}],
  steps: [{
    session: "in a transaction, then commit",
    command: {
      update: "c",
      updates: [
        {q: {_id: "a"}, u: {$set: {x: 1, at: new Date(1000000000000)}}, upsert: true},
        {q: {_id: "b"}, u: {$set: {x: 2, parent: "a", at: new Date(1000000000000)}}, upsert: true},
        {q: {_id: "c", parent: "b"}, u: {$set: {x: 3, at: new Date(1000000000000)}}, upsert: true},
      ],
    },
    reply: {n: 3, upserted: [{index: 1, _id: "b"}, {index: 2, _id: "c"}], nModified: 1, ok: 1},
    commit: {ok: 1},
  }],
  after: [
    {
      _id: "a",
      path: null,
      at: new Date(1000000000000),
      x: 1,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
    },
    {
      _id: "b",
      at: new Date(1000000000000),
      parent: "a",
      x: 2,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
      path: ",a,",
    },
    {
      _id: "c",
      parent: "b",
      at: new Date(1000000000000),
      x: 3,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
      path: ",a,b,",
    },
  ],
},
{
  name: "bucket: a batch of upserts that push, two of them to one new bucket",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [{_id: 1, sku: "x", messages: [1], count: 1}],
  steps: [{
    command: {
      update: "c",
      updates: [
        {q: {sku: "x"}, u: {$push: {messages: 2}}, upsert: true},
        {q: {sku: "y"}, u: {$push: {messages: 3}}, upsert: true},
        {q: {sku: "y"}, u: {$push: {messages: 4}}, upsert: true},
        {q: {sku: "z"}, u: {$push: {messages: 5}}, upsert: true},
      ],
    },
    reply: {n: 4, upserted: [{index: 1, _id: {$now: "id"}}, {index: 3, _id: {$now: "id"}}], nModified: 2, ok: 1},
  }],
  after: [
    {_id: 1, sku: "x", messages: [1, 2], count: 2},
    {_id: {$now: "id"}, sku: "y", count: 2, messages: [3, 4]},
    {_id: {$now: "id"}, sku: "z", count: 1, messages: [5]},
  ],
},
{
  name: "bucket: a batch of upserts that push, two of them to one new bucket",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [{_id: 1, sku: "x", messages: [1], count: 1}],
  steps: [{
    command: {
      update: "c",
      updates: [
        {q: {sku: "x"}, u: {$push: {messages: 2}}, upsert: true},
        {q: {sku: "y"}, u: {$push: {messages: 3}}, upsert: true},
        {q: {sku: "y"}, u: {$push: {messages: 4}}, upsert: true},
        {q: {sku: "z"}, u: {$push: {messages: 5}}, upsert: true},
      ],
      ordered: false,
    },
    reply: {n: 4, upserted: [{index: 1, _id: {$now: "id"}}, {index: 3, _id: {$now: "id"}}], nModified: 2, ok: 1},
  }],
  after: [
    {_id: 1, sku: "x", messages: [1, 2], count: 2},
    {_id: {$now: "id"}, sku: "y", count: 2, messages: [3, 4]},
    {_id: {$now: "id"}, sku: "z", count: 1, messages: [5]},
  ],
},
{
  name: "bucket: a batch of upserts that push, two of them to one new bucket",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [{_id: 1, sku: "x", messages: [1], count: 1}],
  steps: [{
    session: "in a transaction, then commit",
    command: {
      update: "c",
      updates: [
        {q: {sku: "x"}, u: {$push: {messages: 2}}, upsert: true},
        {q: {sku: "y"}, u: {$push: {messages: 3}}, upsert: true},
        {q: {sku: "y"}, u: {$push: {messages: 4}}, upsert: true},
        {q: {sku: "z"}, u: {$push: {messages: 5}}, upsert: true},
      ],
    },
    reply: {n: 4, upserted: [{index: 1, _id: {$now: "id"}}, {index: 3, _id: {$now: "id"}}], nModified: 2, ok: 1},
    commit: {ok: 1},
  }],
  after: [
    {_id: 1, sku: "x", messages: [1, 2], count: 2},
    {_id: {$now: "id"}, sku: "y", count: 2, messages: [3, 4]},
    {_id: {$now: "id"}, sku: "z", count: 1, messages: [5]},
  ],
},
{
  name: "bucket: a batch of upserts that push, two of them to one new bucket",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["bucket: { array: messages, count: count, limit: 3 }", "timestamps: { source: at, fields: [x] }"],
  stored: [{_id: 1, sku: "x", messages: [1], count: 1}],
  steps: [{
    command: {
      update: "c",
      updates: [
        {q: {sku: "x"}, u: {$push: {messages: 2}, $set: {x: 2, at: new Date(1000000000000)}}, upsert: true},
        {q: {sku: "y"}, u: {$push: {messages: 3}, $set: {x: 3, at: new Date(1000000000000)}}, upsert: true},
        {q: {sku: "y"}, u: {$push: {messages: 4}, $set: {x: 4, at: new Date(1000000000000)}}, upsert: true},
        {q: {sku: "z"}, u: {$push: {messages: 5}, $set: {x: 5, at: new Date(1000000000000)}}, upsert: true},
      ],
    },
    reply: {n: 4, upserted: [{index: 1, _id: {$now: "id"}}, {index: 3, _id: {$now: "id"}}], nModified: 2, ok: 1},
  }],
  after: [
    {
      _id: 1,
      sku: "x",
      messages: [1, 2],
      count: 2,
      at: new Date(1000000000000),
      x: 2,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
    },
    {
      _id: {$now: "id"},
      sku: "y",
      at: new Date(1000000000000),
      count: 2,
      messages: [3, 4],
      x: 4,
      last_modified: {at: new Date(1000000000000), x: new Date(1000000000000)},
    },
    {
      _id: {$now: "id"},
      sku: "z",
      at: new Date(1000000000000),
      count: 1,
      messages: [5],
      x: 5,
      last_modified: {at: new Date(1000000000000), x: new Date(1000000000000)},
    },
  ],
},
{
  name: "bucket: a batch of upserts that push, two of them to one new bucket",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["bucket: { array: messages, count: count, limit: 3 }", "timestamps: { source: at, fields: [x] }"],
  stored: [{_id: 1, sku: "x", messages: [1], count: 1}],
  steps: [{
    command: {
      update: "c",
      updates: [
        {q: {sku: "x"}, u: {$push: {messages: 2}, $set: {x: 2, at: new Date(1000000000000)}}, upsert: true},
        {q: {sku: "y"}, u: {$push: {messages: 3}, $set: {x: 3, at: new Date(1000000000000)}}, upsert: true},
        {q: {sku: "y"}, u: {$push: {messages: 4}, $set: {x: 4, at: new Date(1000000000000)}}, upsert: true},
        {q: {sku: "z"}, u: {$push: {messages: 5}, $set: {x: 5, at: new Date(1000000000000)}}, upsert: true},
      ],
      ordered: false,
    },
    reply: {n: 4, upserted: [{index: 1, _id: {$now: "id"}}, {index: 3, _id: {$now: "id"}}], nModified: 2, ok: 1},
  }],
  after: [
    {
      _id: 1,
      sku: "x",
      messages: [1, 2],
      count: 2,
      at: new Date(1000000000000),
      x: 2,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
    },
    {
      _id: {$now: "id"},
      sku: "y",
      at: new Date(1000000000000),
      count: 2,
      messages: [3, 4],
      x: 4,
      last_modified: {at: new Date(1000000000000), x: new Date(1000000000000)},
    },
    {
      _id: {$now: "id"},
      sku: "z",
      at: new Date(1000000000000),
      count: 1,
      messages: [5],
      x: 5,
      last_modified: {at: new Date(1000000000000), x: new Date(1000000000000)},
    },
  ],
},
{
  name: "bucket: a batch of upserts that push, two of them to one new bucket",
  must: "stores the documents, and reports the upserted ones at their indexes",
  rules: ["bucket: { array: messages, count: count, limit: 3 }", "timestamps: { source: at, fields: [x] }"],
  stored: [{_id: 1, sku: "x", messages: [1], count: 1}],
  steps: [{
    session: "in a transaction, then commit",
    command: {
      update: "c",
      updates: [
        {q: {sku: "x"}, u: {$push: {messages: 2}, $set: {x: 2, at: new Date(1000000000000)}}, upsert: true},
        {q: {sku: "y"}, u: {$push: {messages: 3}, $set: {x: 3, at: new Date(1000000000000)}}, upsert: true},
        {q: {sku: "y"}, u: {$push: {messages: 4}, $set: {x: 4, at: new Date(1000000000000)}}, upsert: true},
        {q: {sku: "z"}, u: {$push: {messages: 5}, $set: {x: 5, at: new Date(1000000000000)}}, upsert: true},
      ],
    },
    reply: {n: 4, upserted: [{index: 1, _id: {$now: "id"}}, {index: 3, _id: {$now: "id"}}], nModified: 2, ok: 1},
    commit: {ok: 1},
  }],
  after: [
    {
      _id: 1,
      sku: "x",
      messages: [1, 2],
      count: 2,
      at: new Date(1000000000000),
      x: 2,
      last_modified: {x: new Date(1000000000000), at: new Date(1000000000000)},
    },
    {
      _id: {$now: "id"},
      sku: "y",
      at: new Date(1000000000000),
      count: 2,
      messages: [3, 4],
      x: 4,
      last_modified: {at: new Date(1000000000000), x: new Date(1000000000000)},
    },
    {
      _id: {$now: "id"},
      sku: "z",
      at: new Date(1000000000000),
      count: 1,
      messages: [5],
      x: 5,
      last_modified: {at: new Date(1000000000000), x: new Date(1000000000000)},
    },
  ],
},
]
