// Nodes of `tree`.
[
{
  name: "tree: a retry of an upsert that inserted a document, with a limit",
  must: "does not report that a document matched",
  rules: ["tree: { path: path, parent: parent }", "limits: { items: { messages: 5 } }"],
  stored: [],
  steps: [{
    session: "sent twice",
    command: {update: "c", updates: [{q: {_id: 1}, u: {$push: {messages: 1}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
    again: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 217, pattern: "tree"}], ok: 1},
  }],
  after: [{_id: 1, messages: [1], path: null}],
},
{
  name: "tree: a replacement with another _id",
  must: "is the server's error",
  rules: ["tree: { path: path, parent: parent, on_delete: cascade }"],
  stored: [{_id: 1, path: null}],
  steps: [{command: {findAndModify: "c", query: {}, update: {_id: 6, note: 1}}, reply: {ok: 0, code: 66}}],
  after: [{_id: 1, path: null}],
},
{
  name: "tree: an upsert that collides with a stored node",
  must: "the server's 11000, at once",
  rules: ["tree: { path: path, parent: parent }"],
  stored: [{_id: "a", path: null}, {_id: "b", parent: "a", path: ",a,"}, {_id: "c", parent: "b", path: ",a,b,"}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: "b", x: 5}, u: {$set: {y: 1}}, upsert: true}]},
    reply: {
      n: 0,
      nModified: 0,
      writeErrors: [{index: 0, code: 11000, keyPattern: {_id: 1}, keyValue: {_id: "b"}}],
      ok: 1,
    },
  }],
  after: [{_id: "a", path: null}, {_id: "b", parent: "a", path: ",a,"}, {_id: "c", parent: "b", path: ",a,b,"}],
  seconds: 2,
},
{
  name: "tree: the same beside a version",
  must: "the server's 11000, at once",
  rules: ["tree: { path: path, parent: parent }", "replacement: { policy: check_version, version: version }"],
  stored: [{_id: "a", path: null}, {_id: "b", parent: "a", path: ",a,"}, {_id: "c", parent: "b", path: ",a,b,"}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: "b", x: 5}, u: {$set: {y: 1}}, upsert: true}]},
    reply: {
      n: 0,
      nModified: 0,
      writeErrors: [{index: 0, code: 11000, keyPattern: {_id: 1}, keyValue: {_id: "b"}}],
      ok: 1,
    },
  }],
  after: [{_id: "a", path: null}, {_id: "b", parent: "a", path: ",a,"}, {_id: "c", parent: "b", path: ",a,b,"}],
  seconds: 2,
},
{
  name: "tree: the same beside bounds",
  must: "the server's 11000, at once",
  rules: ["tree: { path: path, parent: parent }", "bounds: { field: n, min: 0 }"],
  stored: [{_id: "a", path: null}, {_id: "b", parent: "a", path: ",a,"}, {_id: "c", parent: "b", path: ",a,b,"}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: "b", x: 5}, u: {$set: {y: 1}}, upsert: true}]},
    reply: {
      n: 0,
      nModified: 0,
      writeErrors: [{index: 0, code: 11000, keyPattern: {_id: 1}, keyValue: {_id: "b"}}],
      ok: 1,
    },
  }],
  after: [{_id: "a", path: null}, {_id: "b", parent: "a", path: ",a,"}, {_id: "c", parent: "b", path: ",a,b,"}],
  seconds: 2,
},
{
  name: "tree: an upsert with its parent in a branch of $or",
  must: "the node gets the parent's path, or is not inserted",
  rules: ["tree: { path: path, parent: parent }"],
  stored: [{_id: "a", path: null}, {_id: "b", parent: "a", path: ",a,"}, {_id: "c", parent: "b", path: ",a,b,"}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: "d", $or: [{parent: "b"}]}, u: {$set: {y: 1}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: "d"}], nModified: 0, ok: 1},
  }],
  after: [
    {_id: "a", path: null},
    {_id: "b", parent: "a", path: ",a,"},
    {_id: "c", parent: "b", path: ",a,b,"},
    {_id: "d", parent: "b", y: 1, path: ",a,b,"},
  ],
},
{
  name: "tree: an upsert with its parent in $in",
  must: "the node gets the parent's path, or is not inserted",
  rules: ["tree: { path: path, parent: parent }"],
  stored: [{_id: "a", path: null}, {_id: "b", parent: "a", path: ",a,"}, {_id: "c", parent: "b", path: ",a,b,"}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: "d", parent: {$in: ["b"]}}, u: {$set: {y: 1}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: "d"}], nModified: 0, ok: 1},
  }],
  after: [
    {_id: "a", path: null},
    {_id: "b", parent: "a", path: ",a,"},
    {_id: "c", parent: "b", path: ",a,b,"},
    {_id: "d", parent: "b", y: 1, path: ",a,b,"},
  ],
},
{
  name: "tree: a replacing upsert whose filter has a parent that the document has not",
  must: "inserts a root, as the server does",
  rules: ["tree: { path: path, parent: parent }"],
  stored: [{_id: "a", path: null}, {_id: "b", parent: "a", path: ",a,"}, {_id: "c", parent: "b", path: ",a,b,"}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: "d", parent: "x"}, u: {y: 1}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: "d"}], nModified: 0, ok: 1},
  }],
  after: [
    {_id: "a", path: null},
    {_id: "b", parent: "a", path: ",a,"},
    {_id: "c", parent: "b", path: ",a,b,"},
    {_id: "d", y: 1, path: null},
  ],
},
{
  name: "tree: an upsert gives a field in the parent",
  must: "inserts no node whose parent is none",
  rules: ["tree: { path: path, parent: parent }"],
  stored: [{_id: "a", path: null}, {_id: "b", parent: "a", path: ",a,"}, {_id: "c", parent: "b", path: ",a,b,"}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: "d", "parent.x": 1}, u: {$set: {y: 1}}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "tree"}], ok: 1},
  }],
  after: [{_id: "a", path: null}, {_id: "b", parent: "a", path: ",a,"}, {_id: "c", parent: "b", path: ",a,b,"}],
},
{
  name: "tree: a late move that would close a circle",
  must: "is ignored, not rejected",
  rules: ["tree: { path: path, parent: parent }", "timestamps: { source: at, fields: [parent] }"],
  stored: [
    {_id: "a", path: null, last_modified: {parent: new Date(1000000001000)}},
    {_id: "b", parent: "a", path: ",a,"},
  ],
  steps: [{
    command: {update: "c", updates: [{q: {_id: "a"}, u: {$set: {parent: "b", at: new Date(1000000000000)}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [
    {
      _id: "a",
      path: null,
      last_modified: {parent: new Date(1000000001000), at: new Date(1000000000000)},
      at: new Date(1000000000000),
    },
    {_id: "b", parent: "a", path: ",a,"},
  ],
},
// The path alone names the parent, which docward adds.
{
  name: "tree and together: the parent is added, and not its partner",
  must: "is rejected",
  rules: ["tree: { path: path, parent: parent }", "together: [parent, x]"],
  stored: [{_id: "a", path: null}, {_id: "i", path: ",a,", parent: "a", x: 1}],
  steps: [{
    command: {insert: "c", documents: [{_id: "g", path: ",a,"}]},
    reply: {n: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
  }],
  after: [{_id: "a", path: null}, {_id: "i", path: ",a,", parent: "a", x: 1}],
  message: "after the changes of rule",
},
{
  name: "tree and together: the parent is added, and not its partner",
  must: "is rejected",
  rules: ["tree: { path: path, parent: parent }", "together: [parent, x]"],
  stored: [{_id: "a", path: null}, {_id: "i", path: ",a,", parent: "a", x: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: "i"}, u: {path: ",a,"}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
  }],
  after: [{_id: "a", path: null}, {_id: "i", path: ",a,", parent: "a", x: 1}],
  message: "after the changes of rule",
},
{
  name: "tree and together: the parent is added, and not its partner",
  must: "is rejected",
  rules: ["tree: { path: path, parent: parent }", "together: [parent, x]"],
  stored: [{_id: "a", path: null}, {_id: "i", path: ",a,", parent: "a", x: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: "h", path: ",a,"}, u: {$set: {q: 1}}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
  }],
  after: [{_id: "a", path: null}, {_id: "i", path: ",a,", parent: "a", x: 1}],
  message: "after the changes of rule",
},
{
  name: "tree and together: the parent is added to its partner",
  must: "is stored",
  rules: ["tree: { path: path, parent: parent }", "together: [parent, x]"],
  stored: [{_id: "a", path: null}, {_id: "i", path: ",a,", parent: "a", x: 1}],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: "h", path: ",a,", parent: "a", x: 1}, u: {$set: {q: 1}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: "h"}], nModified: 0, ok: 1},
  }],
  after: [
    {_id: "a", path: null},
    {_id: "h", parent: "a", path: ",a,", x: 1, q: 1},
    {_id: "i", path: ",a,", parent: "a", x: 1},
  ],
},
{
  name: "tree and bounds: the added parent is in range, or not",
  must: "is rejected if it is not",
  rules: ["tree: { path: path, parent: parent }", "bounds: { field: parent, min: 0, max: 9 }"],
  stored: [{_id: 50, path: null}, {_id: 5, path: null}],
  steps: [{
    command: {insert: "c", documents: [{_id: 51, path: ",50,"}]},
    reply: {n: 0, writeErrors: [{index: 0, code: 121, pattern: "bounds"}], ok: 1},
  }],
  after: [{_id: 5, path: null}, {_id: 50, path: null}],
},
{
  name: "tree and bounds: the added parent is in range, or not",
  must: "is rejected if it is not",
  rules: ["tree: { path: path, parent: parent }", "bounds: { field: parent, min: 0, max: 9 }"],
  stored: [{_id: 50, path: null}, {_id: 5, path: null}],
  steps: [{command: {insert: "c", documents: [{_id: 51, path: ",5,"}]}, reply: {n: 1, ok: 1}}],
  after: [{_id: 5, path: null}, {_id: 50, path: null}, {_id: 51, path: ",5,", parent: 5}],
},
{
  name: "tree: the path of a root is removed",
  must: "is rejected",
  rules: ["tree: { path: path, parent: parent }"],
  stored: [{_id: "a", path: null}, {_id: "b", path: null}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: "a"}, u: {$unset: {path: 1}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "tree"}], ok: 1},
  }],
  after: [{_id: "a", path: null}, {_id: "b", path: null}],
},
{
  name: "tree: the path of a root is removed",
  must: "is rejected",
  rules: ["tree: { path: path, parent: parent }"],
  stored: [{_id: "a", path: null}, {_id: "b", path: null}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: "a"}, u: {$rename: {path: "way"}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "tree"}], ok: 1},
  }],
  after: [{_id: "a", path: null}, {_id: "b", path: null}],
},
{
  name: "tree: the path of a root is removed",
  must: "is rejected",
  rules: ["tree: { path: path, parent: parent }"],
  stored: [{_id: "a", path: null}, {_id: "b", path: null}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: "a"}, u: {$set: {parent: "b"}, $unset: {path: 1}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "tree"}], ok: 1},
  }],
  after: [{_id: "a", path: null}, {_id: "b", path: null}],
},
{
  name: "tree: an $unset of a root's path that is not there",
  must: "removes nothing",
  rules: ["tree: { path: path, parent: parent }"],
  stored: [{_id: "a"}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: "a"}, u: {$unset: {path: 1}, $set: {x: 1}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: "a", x: 1}],
},
{
  name: "tree: a version that cannot be incremented, in a transaction",
  must: "the nodes move, and only a number is incremented",
  rules: ["replacement: { policy: check_version, version: version }", "tree: { path: path, parent: parent }"],
  stored: [
    {_id: "a", path: null, version: Long("9223372036854775807")},
    {_id: "b", path: null, version: "text"},
    {_id: "c", path: null, version: 1},
  ],
  steps: [
    {
      session: "in a transaction, then commit",
      command: {update: "c", updates: [{q: {_id: "a"}, u: {$set: {parent: "c"}}}]},
      reply: {n: 1, nModified: 1, ok: 1},
      commit: {ok: 1},
    },
    {
      session: "in a transaction, then commit",
      command: {update: "c", updates: [{q: {_id: "b"}, u: {$set: {parent: "c"}}}]},
      reply: {n: 1, nModified: 1, ok: 1},
      commit: {ok: 1},
    },
    {
      session: "in a transaction, then commit",
      command: {update: "c", updates: [{q: {_id: "d"}, u: {$set: {parent: "c"}}, upsert: true}]},
      reply: {n: 1, upserted: [{index: 0, _id: "d"}], nModified: 0, ok: 1},
      commit: {ok: 1},
    },
  ],
  after: [
    {_id: "a", path: ",c,", version: Long("9223372036854775807"), parent: "c"},
    {_id: "b", path: ",c,", version: "text", parent: "c"},
    {_id: "c", path: null, version: 1},
    {_id: "d", parent: "c", path: ",c,", version: 1},
  ],
},
// Upserts of many documents that do not move a stored node.
{
  name: "tree: an upsert of many documents that sets another field",
  must: "changes all of them",
  rules: ["tree: { path: path, parent: parent }"],
  stored: [{_id: "a", path: null, k: 1}, {_id: "b", parent: "a", path: ",a,", k: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {k: 1}, u: {$set: {note: 1}}, multi: true, upsert: true}]},
    reply: {n: 2, nModified: 2, ok: 1},
  }],
  after: [{_id: "a", path: null, k: 1, note: 1}, {_id: "b", parent: "a", path: ",a,", k: 1, note: 1}],
},
{
  name: "tree: an upsert of many documents, and none is stored",
  must: "inserts a root",
  rules: ["tree: { path: path, parent: parent }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {k: 1}, u: {$set: {note: 1}}, multi: true, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, k: 1, note: 1, path: null}],
},
{
  name: "tree: an upsert of many documents that inserts a child",
  must: "inserts it with its path",
  rules: ["tree: { path: path, parent: parent }"],
  stored: [{_id: "a", path: null}],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {k: 1}, u: {$set: {note: 1}, $setOnInsert: {_id: "b", parent: "a"}}, multi: true, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: "b"}], nModified: 0, ok: 1},
  }],
  after: [{_id: "a", path: null}, {_id: "b", k: 1, note: 1, parent: "a", path: ",a,"}],
},
{
  name: "tree: an upsert of many documents that sets a parent",
  must: "is rejected",
  rules: ["tree: { path: path, parent: parent }"],
  stored: [{_id: "a", path: null, k: 1}, {_id: "b", parent: "a", path: ",a,", k: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {k: 1}, u: {$set: {parent: "a"}}, multi: true, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "tree"}], ok: 1},
  }],
  after: [{_id: "a", path: null, k: 1}, {_id: "b", parent: "a", path: ",a,", k: 1}],
},
// A field around the path and the parent gets the value of another one.
{
  name: "tree: a $rename to the field around the path",
  must: "keeps the path",
  rules: ["tree: { path: t.path, parent: t.up }"],
  stored: [
    {_id: "A", t: {path: null}},
    {_id: "B", t: {up: "A", path: ",A,"}, x: {up: "A"}},
    {_id: "C", t: {path: null}},
  ],
  steps: [{
    command: {update: "c", updates: [{q: {_id: "B"}, u: {$rename: {x: "t"}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: "A", t: {path: null}}, {_id: "B", t: {up: "A", path: ",A,"}}, {_id: "C", t: {path: null}}],
},
{
  name: "tree: a $rename to the field around the path",
  must: "gets the path of its new parent",
  rules: ["tree: { path: t.path, parent: t.up }"],
  stored: [
    {_id: "A", t: {path: null}},
    {_id: "B", t: {up: "A", path: ",A,"}, x: {up: "C"}},
    {_id: "C", t: {path: null}},
  ],
  steps: [{
    command: {update: "c", updates: [{q: {_id: "B"}, u: {$rename: {x: "t"}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: "A", t: {path: null}}, {_id: "B", t: {up: "C", path: ",C,"}}, {_id: "C", t: {path: null}}],
},
{
  name: "tree: a $rename to the field around the path",
  must: "keeps the path",
  rules: ["tree: { path: t.path, parent: t.up }"],
  stored: [
    {_id: "A", t: {path: null}},
    {_id: "B", t: {up: "A", path: ",A,"}, x: {up: "A", path: null}},
    {_id: "C", t: {path: null}},
  ],
  steps: [{
    command: {update: "c", updates: [{q: {_id: "B"}, u: {$rename: {x: "t"}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: "A", t: {path: null}}, {_id: "B", t: {up: "A", path: ",A,"}}, {_id: "C", t: {path: null}}],
},
{
  name: "tree: a $rename to the field around the path",
  must: "is rejected",
  rules: ["tree: { path: t.path, parent: t.up }"],
  stored: [
    {_id: "A", t: {path: null}},
    {_id: "B", t: {up: "A", path: ",A,"}, x: {up: "A", path: ",C,"}},
    {_id: "C", t: {path: null}},
  ],
  steps: [{
    command: {update: "c", updates: [{q: {_id: "B"}, u: {$rename: {x: "t"}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "tree"}], ok: 1},
  }],
  after: [
    {_id: "A", t: {path: null}},
    {_id: "B", t: {up: "A", path: ",A,"}, x: {up: "A", path: ",C,"}},
    {_id: "C", t: {path: null}},
  ],
},
]
