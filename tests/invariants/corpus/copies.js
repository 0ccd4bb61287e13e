// References with `copies` in arrays.
[
{
  name: "copies: a condition that can select the element of another original",
  must: "does not change its copy",
  rules: ["copies: [{ into: protected.COLLECTION, key: hobbies.id, fields: { n: hobbies.n } }]"],
  stored: [{_id: 1, tags: ["x", "y"], hobbies: [{id: 100, n: "A"}, {id: 200, n: "B"}]}],
  steps: [{
    command: {update: "c", updates: [{q: {"hobbies.id": 100, tags: "y"}, u: {$set: {"hobbies.$.n": "A2"}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "copies"}], ok: 1},
  }],
  after: [{_id: 1, tags: ["x", "y"], hobbies: [{id: 100, n: "A"}, {id: 200, n: "B"}]}],
},
{
  name: "copies: a condition that can select the element of another original",
  must: "does not change its copy",
  rules: ["copies: [{ into: protected.COLLECTION, key: hobbies.id, fields: { n: hobbies.n } }]"],
  stored: [{_id: 1, tags: ["x", "y"], hobbies: [{id: 100, n: "A"}, {id: 200, n: "B"}]}],
  steps: [{
    command: {update: "c", updates: [{q: {"hobbies.id": 100, tags: "y"}, u: {$unset: {"hobbies.$.n": 1}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "copies"}], ok: 1},
  }],
  after: [{_id: 1, tags: ["x", "y"], hobbies: [{id: 100, n: "A"}, {id: 200, n: "B"}]}],
},
{
  name: "copies: a condition that can select the element of another original",
  must: "does not change its copy",
  rules: ["copies: [{ into: protected.COLLECTION, key: hobbies.id, fields: { n: hobbies.n } }]"],
  stored: [{_id: 1, tags: ["x", "y"], hobbies: [{id: 100, n: "A"}, {id: 200, n: "B"}]}],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {$and: [{"hobbies.id": 100}, {"hobbies.n": "B"}]}, u: {$set: {"hobbies.$.n": "A2"}}}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "copies"}], ok: 1},
  }],
  after: [{_id: 1, tags: ["x", "y"], hobbies: [{id: 100, n: "A"}, {id: 200, n: "B"}]}],
},
{
  name: "copies: a condition that can select the element of another original",
  must: "does not change its copy",
  rules: ["copies: [{ into: protected.COLLECTION, key: hobbies.id, fields: { n: hobbies.n } }]"],
  stored: [{_id: 1, tags: ["x", "y"], hobbies: [{id: 100, n: "A"}, {id: 200, n: "B"}]}],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {hobbies: {$elemMatch: {id: 100}, $all: [{$elemMatch: {n: "B"}}]}},
        u: {$set: {"hobbies.$.n": "A2"}},
      }],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "copies"}], ok: 1},
  }],
  after: [{_id: 1, tags: ["x", "y"], hobbies: [{id: 100, n: "A"}, {id: 200, n: "B"}]}],
},
{
  name: "copies: a condition that can select the element of another original",
  must: "does not change its copy",
  rules: ["copies: [{ into: protected.COLLECTION, key: hobbies.id, fields: { n: hobbies.n } }]"],
  stored: [{_id: 1, tags: ["x", "y"], hobbies: [{id: 100, n: "A"}, {id: 200, n: "B"}]}],
  steps: [{
    command: {update: "c", updates: [{q: {"hobbies.id": {$eq: 100, $gt: 150}}, u: {$set: {"hobbies.$.n": "A2"}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "copies"}], ok: 1},
  }],
  after: [{_id: 1, tags: ["x", "y"], hobbies: [{id: 100, n: "A"}, {id: 200, n: "B"}]}],
},
{
  name: "copies: a condition that can select the element of another original",
  must: "does not change its copy",
  rules: ["copies: [{ into: protected.COLLECTION, key: hobbies.id, fields: { n: hobbies.n } }]"],
  stored: [{_id: 1, tags: ["x", "y"], hobbies: [{id: 100, n: "A"}, {id: 200, n: "B"}]}],
  steps: [{
    command: {update: "c", updates: [{q: {"hobbies.id": {$all: [100, 200]}}, u: {$set: {"hobbies.$.n": "A2"}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "copies"}], ok: 1},
  }],
  after: [{_id: 1, tags: ["x", "y"], hobbies: [{id: 100, n: "A"}, {id: 200, n: "B"}]}],
},
{
  name: "copies: $elemMatch inside $and names the original",
  must: "changes the copy of that original",
  rules: ["copies: [{ into: protected.COLLECTION, key: hobbies.id, fields: { n: hobbies.n } }]"],
  stored: [{_id: 1, tags: ["x", "y"], hobbies: [{id: 100, n: "A"}, {id: 200, n: "B"}]}],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, $and: [{hobbies: {$elemMatch: {id: 100, n: "A"}}}]}, u: {$set: {"hobbies.$.n": "A2"}}}],
    },
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, tags: ["x", "y"], hobbies: [{id: 100, n: "A2"}, {id: 200, n: "B"}]}],
},
{
  name: "copies: a negated condition beside the key",
  must: "changes the copy of that original",
  rules: ["copies: [{ into: protected.COLLECTION, key: hobbies.id, fields: { n: hobbies.n } }]"],
  stored: [{_id: 1, tags: ["x", "y"], hobbies: [{id: 100, n: "A"}, {id: 200, n: "B"}]}],
  steps: [{
    command: {update: "c", updates: [{q: {"hobbies.id": 100, tags: {$ne: "z"}}, u: {$set: {"hobbies.$.n": "A2"}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, tags: ["x", "y"], hobbies: [{id: 100, n: "A2"}, {id: 200, n: "B"}]}],
},
{
  name: "copies: a pipeline that removes the _id and changes nothing",
  must: "counts as modified, as directly",
  rules: [
    "namespace: protected.COLLECTION_originals, copies: [{ into: protected.COLLECTION, key: ref.id, fields: { name: ref.name }, on_delete: reject }]",
  ],
  stored: [{_id: 1, ref: []}],
  steps: [{
    command: {update: "c", updates: [{q: {}, u: [{$addFields: {"ref.id": {$literal: 1}}}, {$unset: "_id"}]}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, ref: []}],
},
]
