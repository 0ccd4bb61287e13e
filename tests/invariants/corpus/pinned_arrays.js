// Upserts whose filter gives an array around a rule's fields, and operators that change elements of it.
[
{
  name: "copies: $setOnInsert of a key in an element of the filter",
  must: "is rejected, and nothing is inserted",
  rules: ["copies: [{ into: protected.COLLECTION, key: hobbies.id, fields: { n: hobbies.n } }]"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, hobbies: [{z: 1}]}, u: {$setOnInsert: {"hobbies.0.id": 7}}, upsert: true}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "copies"}], ok: 1},
  }],
  after: [],
},
{
  name: "copies: $setOnInsert of a key in an element of the filter",
  must: "is rejected, and nothing is inserted",
  rules: ["copies: [{ into: protected.COLLECTION, key: hobbies.id, fields: { n: hobbies.n } }]"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, hobbies: [{id: 1, n: "A"}]}, u: {$setOnInsert: {"hobbies.0.id": 7}}, upsert: true}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "copies"}], ok: 1},
  }],
  after: [],
},
{
  name: "copies: $setOnInsert of a key in an element of the filter",
  must: "is rejected, and nothing is inserted",
  rules: ["copies: [{ into: protected.COLLECTION, key: hobbies.id, fields: { n: hobbies.n } }]"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, hobbies: [{z: 1}]}, u: {$setOnInsert: {"hobbies.$[].id": 7}}, upsert: true}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "copies"}], ok: 1},
  }],
  after: [],
},
{
  name: "copies: $setOnInsert of a key with its copy in an element of the filter",
  must: "is inserted",
  rules: ["copies: [{ into: protected.COLLECTION, key: hobbies.id, fields: { n: hobbies.n } }]"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {_id: 1, hobbies: [{z: 1}]},
        u: {$setOnInsert: {"hobbies.0.id": 7, "hobbies.0.n": "A"}},
        upsert: true,
      }],
    },
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, hobbies: [{z: 1, id: 7, n: "A"}]}],
},
{
  name: "together: one of the fields in an element of the filter",
  must: "is rejected, and nothing is inserted",
  rules: ["together: [a.x, a.y]"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, a: [{z: 1}]}, u: {$setOnInsert: {"a.0.x": 1}}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
  }],
  after: [],
},
{
  name: "together: one of the fields in an element of the filter",
  must: "is rejected, and nothing is inserted",
  rules: ["together: [a.x, a.y]"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, a: [{z: 1}]}, u: {$setOnInsert: {"a.$[].x": 1}}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
  }],
  after: [],
},
{
  name: "together: one of the fields in an element of the filter",
  must: "is rejected, and nothing is inserted",
  rules: ["together: [a.x, a.y]"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, a: []}, u: {$setOnInsert: {"a.1.x": 1}}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
  }],
  after: [],
},
{
  name: "together: one of the fields in an element of the filter",
  must: "is rejected, and nothing is inserted",
  rules: ["together: [a.x, a.y]"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, a: {$all: [[{z: 1}]]}}, u: {$setOnInsert: {"a.0.x": 1}}, upsert: true}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
  }],
  after: [],
},
{
  name: "together: one of the fields in an element of the filter",
  must: "is rejected, and nothing is inserted",
  rules: ["together: [a.x, a.y]"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, a: [{x: 1}]}, u: {$set: {"a.0.z": 1}}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
  }],
  after: [],
},
{
  name: "together: one of the fields in an element of the filter",
  must: "is rejected, and nothing is inserted",
  rules: ["together: [a.x, a.y]"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, a: [{x: 1}]}, u: {$push: {a: {x: 1, y: 1}}}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
  }],
  after: [],
},
{
  name: "together: both of the fields in an element of the filter",
  must: "are inserted",
  rules: ["together: [a.x, a.y]"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, a: [{z: 1}]}, u: {$setOnInsert: {"a.0.x": 1, "a.0.y": 1}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, a: [{z: 1, x: 1, y: 1}]}],
},
{
  name: "sequence: a number in an array of the filter, which the sequence does not know",
  must: "is rejected, and nothing is inserted",
  rules: ["sequence: { field: a.n, counter: COLLECTION, collection: counters }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, a: [{n: 2}]}, u: {$set: {x: 1}}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "sequence"}], ok: 1},
  }],
  after: [],
},
{
  name: "sequence: a number in an array of the filter, which the sequence does not know",
  must: "is rejected, and nothing is inserted",
  rules: ["sequence: { field: a.n, counter: COLLECTION, collection: counters }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, a: {$in: [[{m: 1}, {n: 2}]]}}, u: {$set: {"a.0.m": 2}}, upsert: true}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "sequence"}], ok: 1},
  }],
  after: [],
},
{
  name: "sequence: a number in an array, which clients may not provide",
  must: "is rejected, and nothing is inserted",
  rules: ["sequence: { field: a.n, counter: COLLECTION, collection: counters, provided: reject }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, a: [{n: 9}]}, u: {$set: {x: 1}}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "sequence"}], ok: 1},
  }],
  after: [],
},
{
  name: "sequence: a number in an array, which clients may not provide",
  must: "is rejected, and nothing is inserted",
  rules: ["sequence: { field: a.n, counter: COLLECTION, collection: counters, provided: reject }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$setOnInsert: {a: [{n: 9}]}}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "sequence"}], ok: 1},
  }],
  after: [],
},
]
