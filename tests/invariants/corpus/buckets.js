// Documents that `bucket` opens and fills.
[
{
  name: "bucket: an empty push as an upsert, to a bucket without a count",
  must: "changes that bucket",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [{_id: 1, sku: "x", messages: [1, 2]}],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {sku: "x"}, u: {$push: {messages: {$each: []}}, $set: {a: 1}}, upsert: true}],
    },
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, sku: "x", messages: [1, 2], a: 1, count: 2}],
},
{
  name: "bucket: an empty push as an upsert that selects a bucket by its _id, and one that opens a bucket",
  must: "are done, and both counts are right",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [{_id: 1, messages: [1, 2, 3], count: 3}],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {_id: 1}, u: {$push: {messages: {$each: []}}, $set: {a: 1}}, upsert: true}],
      },
      reply: {n: 1, nModified: 1, ok: 1},
    },
    {
      command: {
        update: "c",
        updates: [{q: {_id: 2}, u: {$push: {messages: {$each: []}}, $set: {a: 1}}, upsert: true}],
      },
      reply: {n: 1, upserted: [{index: 0, _id: 2}], nModified: 0, ok: 1},
    },
  ],
  after: [{_id: 1, messages: [1, 2, 3], count: 3, a: 1}, {_id: 2, a: 1, messages: [], count: 0}],
},
{
  name: "bucket: an insert with a duplicate key of a unique index",
  must: "has the server's error: it opens no bucket",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [{_id: 1, note: 5}],
  steps: [
    {
      command: {createIndexes: "c", indexes: [{key: {note: 1}, name: "note", unique: true}]},
      reply: {
        numIndexesBefore: 1,
        numIndexesAfter: 2,
        createdCollectionAutomatically: false,
        commitQuorum: "votingMembers",
        ok: 1,
      },
    },
    {
      command: {insert: "c", documents: [{_id: 2, note: 5}]},
      reply: {n: 0, writeErrors: [{index: 0, code: 11000, keyPattern: {note: 1}, keyValue: {note: 5}}], ok: 1},
    },
  ],
  after: [{_id: 1, note: 5}],
},
{
  name: "bucket: a push whose filter has an equality on a version that is not stored any more",
  must: "n is 0, and no bucket is opened",
  rules: [
    "replacement: { policy: check_version, version: version }",
    "bucket: { array: messages, count: count, limit: 3 }",
  ],
  stored: [{_id: 1, sku: "x", version: 4, messages: [1], count: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {sku: "x", version: 3}, u: {$push: {messages: 2}}}]},
    reply: {n: 0, nModified: 0, ok: 1},
  }],
  after: [{_id: 1, sku: "x", version: 4, messages: [1], count: 1}],
},
{
  name: "bucket: a push whose filter has an equality on the stored version",
  must: "it is pushed and counted",
  rules: [
    "replacement: { policy: check_version, version: version }",
    "bucket: { array: messages, count: count, limit: 3 }",
  ],
  stored: [{_id: 1, sku: "x", version: 4, messages: [1], count: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {sku: "x", version: 4}, u: {$push: {messages: 2}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, sku: "x", version: 5, messages: [1, 2], count: 2}],
},
{
  name: "bucket: an upsert that gives the true count as a decimal",
  must: "it is inserted",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {sku: "x"}, u: {$setOnInsert: {count: Decimal128("0E-8")}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, sku: "x", count: Decimal128("0E-8")}],
},
{
  name: "bucket: an upsert that gives a field below the count",
  must: "it opens a bucket whose count is true",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {$or: [{"count.x": 1}]}, u: {$push: {messages: 1}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, count: 1, messages: [1]}],
},
{
  name: "bucket: an upsert that is no push",
  must: "inserts a document whose count is true",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {note: 1}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, count: 0, note: 1}],
},
{
  name: "bucket: an upsert that renames a field to the time of its opening",
  must: "inserts a document whose count is true",
  rules: ["bucket: { array: messages, count: count, limit: 3, opened: opened }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$rename: {sku: "opened"}, $set: {note: 1}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, count: 0, note: 1}],
},
{
  name: "bucket: a push whose filter has an equality on the count",
  must: "the count is the array's length",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {owner: "x", count: 2}, u: {$push: {messages: 1}}}]},
    reply: {n: 0, nModified: 0, ok: 1},
  }],
  after: [],
},
{
  name: "bucket: a push whose filter has an equality on the array",
  must: "the count is the array's length",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {owner: "x", messages: [1, 2]}, u: {$push: {messages: 1}}}]},
    reply: {n: 0, nModified: 0, ok: 1},
  }],
  after: [],
},
{
  name: "bucket: a push whose filter has an equality on the count in a branch of $or",
  must: "the count is the array's length",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {owner: "x", $or: [{count: 2}]}, u: {$push: {messages: 1}}}]},
    reply: {n: 0, nModified: 0, ok: 1},
  }],
  after: [],
},
{
  name: "bucket: a push without upsert whose filter cannot be inserted",
  must: "no error of an upsert that the client did not request",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {owner: {$all: ["x", "y"]}}, u: {$push: {messages: 1}}}]},
    reply: {n: 0, nModified: 0, ok: 1},
  }],
  after: [],
},
{
  name: "bucket: a push without upsert by a dotted path and what is around it",
  must: "no error of an upsert that the client did not request",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {o: 1, "o.n": 1}, u: {$push: {messages: 1}}}]},
    reply: {n: 0, nModified: 0, ok: 1},
  }],
  after: [],
},
{
  name: "bucket: a push without upsert by an owner and texts that a collation makes one",
  must: "no error of an upsert that the client did not request",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {$and: [{owner: "x"}, {owner: {$in: ["x", "X"]}}]},
        u: {$push: {messages: 1}},
        collation: {locale: "en", strength: 2},
      }],
    },
    reply: {n: 0, nModified: 0, ok: 1},
  }],
  after: [],
},
{
  name: "bucket: a push without upsert by an owner, and by the same in the only branch of $or that can match",
  must: "no error of an upsert that the client did not request",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {owner: "x", $or: [{zq: {$all: []}}, {owner: "x"}]}, u: {$push: {messages: 1}}}],
    },
    reply: {n: 0, nModified: 0, ok: 1},
  }],
  after: [],
},
{
  name: "bucket: a push by an owner and one of several",
  must: "matches nothing, as in mongod",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {$and: [{owner: "x"}, {owner: {$in: ["x", "X"]}}]}, u: {$push: {messages: 1}}}],
    },
    reply: {n: 0, nModified: 0, ok: 1},
  }],
  after: [],
},
{
  name: "bucket: pushes beside a bucket whose count is an array with a number",
  must: "open another bucket",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [{_id: 2, count: [-1], sku: "x"}],
  steps: [
    {
      command: {update: "c", updates: [{q: {sku: "x"}, u: {$push: {messages: 1}}}]},
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {
      command: {update: "c", updates: [{q: {sku: "x", count: {$lt: 3}}, u: {$push: {messages: 2}}}]},
      reply: {n: 1, nModified: 1, ok: 1},
    },
  ],
  after: [{_id: 2, count: [-1], sku: "x"}, {_id: {$now: "id"}, sku: "x", count: 2, messages: [1, 2]}],
},
{
  name: "bucket: a push that can open no bucket, beside one whose count is an array with a number",
  must: "is rejected",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [{_id: 2, count: [-1], sku: "x"}],
  steps: [{
    command: {update: "c", updates: [{q: {sku: {$in: ["x", "y"]}}, u: {$push: {messages: 1}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "bucket"}], ok: 1},
  }],
  after: [{_id: 2, count: [-1], sku: "x"}],
},
{
  name: "bucket: a push beside a bucket whose count is inside an array",
  must: "opens another bucket",
  rules: ["bucket: { array: messages, count: a.n, limit: 3 }"],
  stored: [{_id: 2, a: [{n: 0}], sku: "x"}],
  steps: [{
    command: {update: "c", updates: [{q: {sku: "x"}, u: {$push: {messages: 1}}}]},
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: 2, a: [{n: 0}], sku: "x"}, {_id: {$now: "id"}, sku: "x", a: {n: 1}, messages: [1]}],
},
{
  name: "bucket: an upsert by an element, and the bucket is full",
  must: "is rejected with the reason",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [{_id: 1, messages: [0, 1, 2], count: 3}],
  steps: [{
    command: {update: "c", updates: [{q: {messages: 0}, u: {$push: {messages: {$each: [1, 2]}}}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "bucket"}], ok: 1},
  }],
  after: [{_id: 1, messages: [0, 1, 2], count: 3}],
  message: "the limit is 3",
},
{
  name: "bucket: an upsert by an element, and no bucket has it",
  must: "has the server's error",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [{_id: 1, messages: [0, 1, 2], count: 3}],
  steps: [{
    command: {update: "c", updates: [{q: {messages: 9}, u: {$push: {messages: 1}}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 2}], ok: 1},
  }],
  after: [{_id: 1, messages: [0, 1, 2], count: 3}],
},
{
  name: "bucket: an upsert by an element, and the bucket has room",
  must: "pushes",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [{_id: 1, messages: [0], count: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {messages: 0}, u: {$push: {messages: 1}}, upsert: true}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, messages: [0, 1], count: 2}],
},
{
  name: "bucket: an upsert that sets an element of the count on insert",
  must: "changes the stored document",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [{_id: 1, count: 0, ref: [{name: "A"}]}],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {$and: [{"ref.name": {$lt: "X"}}]},
        u: {$set: {x: 1}, $setOnInsert: {"count.$": []}},
        upsert: true,
      }],
    },
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, count: 0, ref: [{name: "A"}], x: 1}],
},
{
  name: "bucket: a push with an array filter below an array that the filter states",
  must: "matches nothing",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {sku: []}, u: {$push: {messages: 1}, $inc: {"sku.x.$[e]": 1}}, arrayFilters: [{e: 1}]}],
    },
    reply: {n: 0, nModified: 0, ok: 1},
  }],
  after: [],
},
{
  name: "bucket: a push for which a unique index has no room, beside tree in a transaction",
  must: "is rejected with the name of the index",
  rules: ["bucket: { array: messages, count: count, limit: 3 }", "tree: { path: path, parent: parent }"],
  stored: [{_id: 1, sku: "x", path: null}],
  steps: [
    {
      command: {createIndexes: "c", indexes: [{key: {sku: 1}, name: "sku", unique: true, sparse: true}]},
      reply: {
        numIndexesBefore: 1,
        numIndexesAfter: 2,
        createdCollectionAutomatically: false,
        commitQuorum: "votingMembers",
        ok: 1,
      },
    },
    {
      session: "in a transaction, then commit",
      command: {findAndModify: "c", query: {sku: "x"}, update: {$push: {messages: 1}}},
      reply: {ok: 0, code: 121, pattern: "bucket"},
      commit: {errorLabels: ["TransientTransactionError"], ok: 0, code: 251},
    },
  ],
  after: [{_id: 1, sku: "x", path: null}],
},
{
  name: "bucket: a push whose $setOnInsert sets a document around the count",
  must: "keeps the other fields of that document, beside the count and the time",
  rules: ["bucket: { array: messages, count: meta.n, limit: 3, opened: meta.at }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {sku: "x"}, u: {$push: {messages: 1}, $setOnInsert: {meta: {by: "ann"}}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, sku: "x", messages: [1], meta: {by: "ann", at: {$now: "date"}, n: 1}}],
},
{
  name: "bucket: a push whose $setOnInsert sets a document around the count, beside schema_version",
  must: "passes, because the bucket has a version",
  rules: [
    "bucket: { array: messages, count: meta.n, limit: 3, opened: meta.at }",
    "schema_version: { field: meta.v, current: 3, minimum: 2 }",
  ],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {sku: "x"}, u: {$push: {messages: 1}, $setOnInsert: {meta: {v: 3}}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, sku: "x", messages: [1], meta: {v: 3, at: {$now: "date"}, n: 1}}],
},
{
  name: "bucket: a push whose $setOnInsert sets something else around the count",
  must: "is rejected",
  rules: ["bucket: { array: messages, count: meta.n, limit: 3, opened: meta.at }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {sku: "x"}, u: {$push: {messages: 1}, $setOnInsert: {meta: 5}}, upsert: true}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "bucket"}], ok: 1},
  }],
  after: [],
},
{
  name: "bucket: an upsert whose $setOnInsert sets a document around array and count",
  must: "inserts a bucket with its count",
  rules: ["bucket: { array: d.ms, count: d.n, limit: 3 }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$setOnInsert: {d: {ms: [7]}}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, d: {ms: [7], n: 1}}],
},
{
  name: "bucket: an upsert whose $setOnInsert replaces an array of its filter",
  must: "inserts the document that the client sets, with its count",
  rules: ["bucket: { array: d.ms, count: d.n, limit: 3 }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {sku: "x", "d.ms": [1, 2, 3, 4, 5]}, u: {$setOnInsert: {d: {by: 1}}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, d: {by: 1, n: 0}, sku: "x"}],
},
{
  name: "bucket: a push whose $setOnInsert replaces what its filter gives",
  must: "opens a bucket whose count is true",
  rules: ["bucket: { array: messages, count: meta.n, limit: 3, opened: meta.at }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {sku: "x", "meta.t": 5},
        u: {$push: {messages: 1}, $setOnInsert: {meta: {by: "ann"}}},
        upsert: true,
      }],
    },
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, meta: {by: "ann", at: {$now: "date"}, n: 1}, sku: "x", messages: [1]}],
},
{
  name: "bucket: a push whose $setOnInsert sets null around the time",
  must: "opens a bucket without a time",
  rules: ["bucket: { array: messages, count: n, limit: 3, opened: meta.at }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {sku: "x"}, u: {$push: {messages: 1}, $setOnInsert: {meta: null}}}]},
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, sku: "x", messages: [1], meta: null, n: 1}],
},
{
  name: "bucket: a push whose $setOnInsert sets a part of a document twice",
  must: "fails, as in mongod",
  rules: ["bucket: { array: messages, count: meta.n, limit: 3, opened: meta.at }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {sku: "x"}, u: {$push: {messages: 1}, $setOnInsert: {meta: {by: 1}, "meta.z": 2}}, upsert: true}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 40}], ok: 1},
  }],
  after: [],
},
{
  name: "bucket: two operators of the client on the document around the count",
  must: "fails, as in mongod",
  rules: ["bucket: { array: messages, count: meta.n, limit: 3, opened: meta.at }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {sku: "x"},
        u: {$push: {messages: 1}, $set: {"meta.z": 1}, $setOnInsert: {meta: {by: 1}}},
        upsert: true,
      }],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 40}], ok: 1},
  }],
  after: [],
},
{
  name: "bucket: a push opens a bucket whose filter states a reference",
  must: "is rejected, because the new bucket would lack the copied field",
  rules: [
    "bucket: { array: messages, count: count, limit: 3 }",
    "copies: [{ into: protected.COLLECTION, key: f.id, fields: { n: f.n } }]",
  ],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {"f.id": 3}, u: {$push: {messages: 1}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "copies"}], ok: 1},
  }],
  after: [],
},
{
  name: "bucket: an upsert without a push makes a duplicate key",
  must: "fails with the server's error",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [{_id: 1, sku: "x"}, {_id: 2}],
  steps: [
    {
      command: {createIndexes: "c", indexes: [{key: {sku: 1}, name: "sku", unique: true, sparse: true}]},
      reply: {
        numIndexesBefore: 1,
        numIndexesAfter: 2,
        createdCollectionAutomatically: false,
        commitQuorum: "votingMembers",
        ok: 1,
      },
    },
    {
      command: {update: "c", updates: [{q: {_id: 2}, u: {$set: {sku: "x"}}, upsert: true}]},
      reply: {
        n: 0,
        writeErrors: [{index: 0, code: 11000, keyPattern: {sku: 1}, keyValue: {sku: "x"}}],
        nModified: 0,
        ok: 1,
      },
    },
  ],
  after: [{_id: 1, sku: "x"}, {_id: 2}],
},
{
  name: "bucket: a push beside a value that makes a duplicate key",
  must: "fails with the server's error",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [{_id: 1, sku: "x"}, {_id: 2, messages: [], count: 0}],
  steps: [
    {
      command: {createIndexes: "c", indexes: [{key: {sku: 1}, name: "sku", unique: true, sparse: true}]},
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
        updates: [{q: {count: {$gte: 0}}, u: {$set: {sku: "x"}, $push: {messages: 1}}, upsert: true}],
      },
      reply: {
        n: 0,
        nModified: 0,
        writeErrors: [{index: 0, code: 11000, keyPattern: {sku: 1}, keyValue: {sku: "x"}}],
        ok: 1,
      },
    },
  ],
  after: [{_id: 1, sku: "x"}, {_id: 2, messages: [], count: 0}],
},
{
  name: "bucket: a push beside a field below an array that the filter states",
  must: "matches nothing",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {sku: [{x: 1}]}, u: {$push: {messages: 1}, $inc: {"sku.x": 1}}}]},
    reply: {n: 0, nModified: 0, ok: 1},
  }],
  after: [],
},
// `$` in the array, with a position that another array may give.
{
  name: "bucket: $ with the position of another array",
  must: "is done as in mongod, and counted",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [{_id: 1, owner: "joe", tags: ["a", "b", "c"], messages: [{t: 1}], count: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {owner: "joe", tags: "c"}, u: {$set: {"messages.$.read": true}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, owner: "joe", tags: ["a", "b", "c"], messages: [{t: 1}, null, {read: true}], count: 3}],
},
{
  name: "bucket: $ with conditions on two arrays",
  must: "is done as in mongod, and counted",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [{_id: 1, owner: "joe", tags: ["a", "b", "c"], messages: [{t: 1}], count: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {"messages.t": 1, tags: "c"}, u: {$set: {"messages.$.read": true}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, owner: "joe", tags: ["a", "b", "c"], messages: [{t: 1}, null, {read: true}], count: 3}],
},
{
  name: "bucket: $ with the position of another array, where the array is missing",
  must: "is rejected",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [{_id: 1, tags: ["a", "b"], count: 0}],
  steps: [{
    command: {update: "c", updates: [{q: {tags: "b"}, u: {$set: {"messages.$.read": true}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "bucket"}], ok: 1},
  }],
  after: [{_id: 1, tags: ["a", "b"], count: 0}],
},
{
  name: "bucket: $ of an array in a subdocument of the filter",
  must: "is done as in mongod, and counted",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [{_id: 1, owner: "joe", tags: ["a", "b", "c"], messages: [{t: 1}], count: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {$jsonSchema: {required: ["tags"]}}, u: {$set: {"messages.$.read": true}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, owner: "joe", tags: ["a", "b", "c"], messages: [{t: 1, read: true}], count: 1}],
},
{
  name: "bucket: $ beside the owner",
  must: "passes",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [{_id: 1, owner: "joe", tags: ["a", "b", "c"], messages: [{t: 1}], count: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {owner: "joe", "messages.t": 1}, u: {$set: {"messages.$.read": true}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, owner: "joe", tags: ["a", "b", "c"], messages: [{t: 1, read: true}], count: 1}],
},
{
  name: "bucket: $ beside _id",
  must: "passes",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [{_id: 1, owner: "joe", tags: ["a", "b", "c"], messages: [{t: 1}], count: 1}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, "messages.t": 1}, u: {$set: {"messages.$.read": true}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, owner: "joe", tags: ["a", "b", "c"], messages: [{t: 1, read: true}], count: 1}],
},
{
  name: "bucket: a push that picks its bucket by _id in a branch",
  must: "is rejected",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [{_id: 1, owner: "joe", messages: [1, 2, 3], count: 3}],
  steps: [{
    command: {update: "c", updates: [{q: {owner: "joe", $or: [{_id: 1}, {_id: 2}]}, u: {$push: {messages: 4}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "bucket"}], ok: 1},
  }],
  after: [{_id: 1, owner: "joe", messages: [1, 2, 3], count: 3}],
},
{
  name: "bucket: an upsert whose other branch never matches, and one is inside the count",
  must: "it opens a bucket whose count is true",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {$or: [{zq: {$all: []}}, {"count.x": 1}]}, u: {$push: {messages: 1}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, count: 1, messages: [1]}],
},
{
  name: "bucket + bounds: $ beside the owner, and no room in the other rule",
  must: "matches nothing",
  rules: ["bucket: { array: messages, count: count, limit: 3 }", "bounds: { field: n, min: 0, max: 10 }"],
  stored: [{_id: 1, owner: "joe", messages: [{t: 1}], count: 1, n: 0}],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {owner: "joe", "messages.t": 1}, u: {$set: {"messages.$.read": true}, $inc: {n: -1}}}],
    },
    reply: {n: 0, nModified: 0, ok: 1},
  }],
  after: [{_id: 1, owner: "joe", messages: [{t: 1}], count: 1, n: 0}],
},
]
