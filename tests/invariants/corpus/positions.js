// Conditions of rules that once gave the client's `$` the position of an element in another array.
[
{
  name: "positions: a checked update by operators of a version that is an array",
  must: "is a conflict: an element of an array is no version",
  rules: ["replacement: { policy: check_version, version: version }"],
  stored: [{_id: 1, tags: ["a", "b"], version: [2, 1]}, {_id: 2, tags: ["a", "b"], version: [null, 1]}],
  steps: [
    {
      command: {update: "c", updates: [{q: {_id: 1, tags: "b"}, u: {$set: {"tags.$": "z", version: 2}}}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 112, pattern: "replacement"}], ok: 1},
    },
    {
      command: {update: "c", updates: [{q: {_id: 2, tags: "b"}, u: {$set: {"tags.$": "z", version: null}}}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 112, pattern: "replacement"}], ok: 1},
    },
  ],
  after: [{_id: 1, tags: ["a", "b"], version: [2, 1]}, {_id: 2, tags: ["a", "b"], version: [null, 1]}],
},
{
  name: "positions: a save with a positional projection of a version that is an array",
  must: "is a conflict, and returns no document",
  rules: ["replacement: { policy: check_version, version: version }"],
  stored: [{_id: 1, tags: ["a", "b"], version: [2, 1]}],
  steps: [
    {
      command: {
        findAndModify: "c",
        query: {_id: 1, tags: "b"},
        update: {$set: {x: 1, version: 2}},
        fields: {"tags.$": 1},
      },
      reply: {ok: 0, code: 112, pattern: "replacement"},
    },
    {
      command: {
        findAndModify: "c",
        query: {_id: 1, tags: "b"},
        update: {tags: ["a", "b"], x: 1, version: 2},
        fields: {"tags.$": 1},
      },
      reply: {ok: 0, code: 112, pattern: "replacement"},
    },
  ],
  after: [{_id: 1, tags: ["a", "b"], version: [2, 1]}],
},
{
  name: "positions: a replacement with a positional projection and the number of a sequence",
  must: "returns no other element than the one that its filter selects",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, provided: reject }"],
  stored: [{_id: 1, tags: ["a", "b"], no: [2, 1]}],
  steps: [{
    command: {
      findAndModify: "c",
      query: {_id: 1, tags: "b"},
      update: {tags: ["a", "b"], x: 1, no: 2},
      fields: {"tags.$": 1},
    },
    reply: {ok: 0, code: 121, pattern: "sequence"},
  }],
  after: [{_id: 1, tags: ["a", "b"], no: [2, 1]}],
},
{
  name: "positions: a save of a whole array as the version",
  must: "is rejected or done, and writes the element that its filter selects",
  rules: ["replacement: { policy: check_version, version: version }"],
  stored: [{_id: 1, tags: ["a", "b"], version: [2, 1]}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, tags: "b"}, u: {$set: {"tags.$": "z", version: [2, 1], x: 1}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "replacement"}], ok: 1},
  }],
  after: [{_id: 1, tags: ["a", "b"], version: [2, 1]}],
},
]
