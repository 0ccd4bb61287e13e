// Statements that two rules change, where the second one must not undo or break what the first one made, and upserts
// whose document depends on the server's version.
[
{
  name: "sequence: a late replacement leaves a number where the document around the field would be",
  must: "n: 1, and nothing changes",
  rules: [
    "sequence: { field: a.n, counter: COLLECTION, collection: counters, on_upsert: true }",
    "timestamps: { source: at, per: document }",
  ],
  stored: [{_id: 1, a: 1, last_modified: new Date(1000000004000)}],
  steps: [{
    command: {update: "c", updates: [{q: {}, u: {at: new Date(1000000002000)}, upsert: true}]},
    reply: {n: 1, nModified: 0, ok: 1},
  }],
  after: [{_id: 1, a: 1, last_modified: new Date(1000000004000)}],
},
{
  name: "queue: an upsert whose filter gives a field of the lease only on later servers",
  must: "inserts no job without the field",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {$or: [{tlocked: new Date(1000000000000)}, {tlocked: new Date(1000000000000)}]},
        u: {$setOnInsert: {a: 1}},
        upsert: true,
      }],
    },
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, a: 1, locked: false, tlocked: {$now: "date"}, try: 0}],
},
]
