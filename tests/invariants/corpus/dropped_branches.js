// Upserts by an `$or` of which the server drops the branches that match nothing, and takes the equalities of the other.
[
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["bounds: { field: n, min: 0, max: 10 }"],
  stored: [],
  steps: [
    {
      command: {update: "c", updates: [{q: {$or: [{n: 11}, {zq: {$all: []}}]}, u: {$set: {z: 1}}, upsert: true}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "bounds"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: []}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["bounds: { field: n, min: 0, max: 10 }"],
  stored: [],
  steps: [
    {
      command: {update: "c", updates: [{q: {$or: [{$alwaysFalse: 1}, {n: 11}]}, u: {$set: {z: 1}}, upsert: true}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "bounds"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: []}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["bounds: { field: n, min: 0, max: 10 }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{n: 11}, {$or: [{$and: [{zq: {$all: []}}]}]}]}, u: {$set: {z: 1}}, upsert: true}],
      },
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "bounds"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: []}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["bounds: { field: n, min: 0, max: 10 }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{$and: [{x: 1}, {$alwaysFalse: 1}]}, {n: 11}]}, u: {$set: {z: 1}}, upsert: true}],
      },
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "bounds"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: []}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["bounds: { field: n, min: 0, max: 10 }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{n: 11}, {$or: [{$alwaysFalse: 1}]}]}, u: {$set: {z: 1}}, upsert: true}],
      },
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "bounds"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: []}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["bounds: { field: n, min: 0, max: 10 }"],
  stored: [],
  steps: [
    {
      command: {update: "c", updates: [{q: {$or: [{n: 10}, {zq: {$all: []}}]}, u: {$inc: {n: 5}}, upsert: true}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "bounds"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: []}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["bounds: { field: n, min: 0, max: 10 }"],
  stored: [],
  steps: [
    {
      command: {update: "c", updates: [{q: {$or: [{$alwaysFalse: 1}, {n: 10}]}, u: {$inc: {n: 5}}, upsert: true}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "bounds"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: []}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["bounds: { field: n, min: 0, max: 10 }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{n: 10}, {$or: [{$and: [{zq: {$all: []}}]}]}]}, u: {$inc: {n: 5}}, upsert: true}],
      },
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "bounds"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: []}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["bounds: { field: n, min: 0, max: 10 }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{$and: [{x: 1}, {$alwaysFalse: 1}]}, {n: 10}]}, u: {$inc: {n: 5}}, upsert: true}],
      },
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "bounds"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: []}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["bounds: { field: n, min: 0, max: 10 }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{n: 10}, {$or: [{$alwaysFalse: 1}]}]}, u: {$inc: {n: 5}}, upsert: true}],
      },
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "bounds"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: []}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{count: 2}, {zq: {$all: []}}]}, u: {$push: {messages: 1}}, upsert: true}],
      },
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: [], count: 0}, {_id: {$now: "id"}, count: 1, messages: [1]}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{$alwaysFalse: 1}, {count: 2}]}, u: {$push: {messages: 1}}, upsert: true}],
      },
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: [], count: 0}, {_id: {$now: "id"}, count: 1, messages: [1]}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{
          q: {$or: [{count: 2}, {$or: [{$and: [{zq: {$all: []}}]}]}]},
          u: {$push: {messages: 1}},
          upsert: true,
        }],
      },
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: [], count: 0}, {_id: {$now: "id"}, count: 1, messages: [1]}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{
          q: {$or: [{$and: [{x: 1}, {$alwaysFalse: 1}]}, {count: 2}]},
          u: {$push: {messages: 1}},
          upsert: true,
        }],
      },
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: [], count: 0}, {_id: {$now: "id"}, count: 1, messages: [1]}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{count: 2}, {$or: [{$alwaysFalse: 1}]}]}, u: {$push: {messages: 1}}, upsert: true}],
      },
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: [], count: 0}, {_id: {$now: "id"}, count: 1, messages: [1]}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{messages: [1]}, {zq: {$all: []}}]}, u: {$push: {messages: 1}}, upsert: true}],
      },
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: [], count: 0}, {_id: {$now: "id"}, messages: [1, 1], count: 2}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{$alwaysFalse: 1}, {messages: [1]}]}, u: {$push: {messages: 1}}, upsert: true}],
      },
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: [], count: 0}, {_id: {$now: "id"}, messages: [1, 1], count: 2}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{
          q: {$or: [{messages: [1]}, {$or: [{$and: [{zq: {$all: []}}]}]}]},
          u: {$push: {messages: 1}},
          upsert: true,
        }],
      },
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: [], count: 0}, {_id: {$now: "id"}, messages: [1, 1], count: 2}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{
          q: {$or: [{$and: [{x: 1}, {$alwaysFalse: 1}]}, {messages: [1]}]},
          u: {$push: {messages: 1}},
          upsert: true,
        }],
      },
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: [], count: 0}, {_id: {$now: "id"}, messages: [1, 1], count: 2}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{messages: [1]}, {$or: [{$alwaysFalse: 1}]}]}, u: {$push: {messages: 1}}, upsert: true}],
      },
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: [], count: 0}, {_id: {$now: "id"}, messages: [1, 1], count: 2}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{messages: [1, 2, 3, 4]}, {zq: {$all: []}}]}, u: {$set: {z: 1}}, upsert: true}],
      },
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "bucket"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: [], count: 0}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{$alwaysFalse: 1}, {messages: [1, 2, 3, 4]}]}, u: {$set: {z: 1}}, upsert: true}],
      },
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "bucket"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: [], count: 0}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{
          q: {$or: [{messages: [1, 2, 3, 4]}, {$or: [{$and: [{zq: {$all: []}}]}]}]},
          u: {$set: {z: 1}},
          upsert: true,
        }],
      },
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "bucket"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: [], count: 0}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{
          q: {$or: [{$and: [{x: 1}, {$alwaysFalse: 1}]}, {messages: [1, 2, 3, 4]}]},
          u: {$set: {z: 1}},
          upsert: true,
        }],
      },
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "bucket"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: [], count: 0}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["bucket: { array: messages, count: count, limit: 3 }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{messages: [1, 2, 3, 4]}, {$or: [{$alwaysFalse: 1}]}]}, u: {$set: {z: 1}}, upsert: true}],
      },
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "bucket"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: [], count: 0}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["limits: { items: { messages: 3 } }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{messages: [1, 2, 3]}, {zq: {$all: []}}]}, u: {$push: {messages: 5}}, upsert: true}],
      },
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: []}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["limits: { items: { messages: 3 } }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{$alwaysFalse: 1}, {messages: [1, 2, 3]}]}, u: {$push: {messages: 5}}, upsert: true}],
      },
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: []}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["limits: { items: { messages: 3 } }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{
          q: {$or: [{messages: [1, 2, 3]}, {$or: [{$and: [{zq: {$all: []}}]}]}]},
          u: {$push: {messages: 5}},
          upsert: true,
        }],
      },
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: []}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["limits: { items: { messages: 3 } }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{
          q: {$or: [{$and: [{x: 1}, {$alwaysFalse: 1}]}, {messages: [1, 2, 3]}]},
          u: {$push: {messages: 5}},
          upsert: true,
        }],
      },
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: []}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["limits: { items: { messages: 3 } }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{
          q: {$or: [{messages: [1, 2, 3]}, {$or: [{$alwaysFalse: 1}]}]},
          u: {$push: {messages: 5}},
          upsert: true,
        }],
      },
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: []}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["together: [t1, t2]"],
  stored: [],
  steps: [
    {
      command: {update: "c", updates: [{q: {$or: [{t1: 1}, {zq: {$all: []}}]}, u: {$set: {z: 1}}, upsert: true}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: []}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["together: [t1, t2]"],
  stored: [],
  steps: [
    {
      command: {update: "c", updates: [{q: {$or: [{$alwaysFalse: 1}, {t1: 1}]}, u: {$set: {z: 1}}, upsert: true}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: []}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["together: [t1, t2]"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{t1: 1}, {$or: [{$and: [{zq: {$all: []}}]}]}]}, u: {$set: {z: 1}}, upsert: true}],
      },
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: []}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["together: [t1, t2]"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{$and: [{x: 1}, {$alwaysFalse: 1}]}, {t1: 1}]}, u: {$set: {z: 1}}, upsert: true}],
      },
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: []}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["together: [t1, t2]"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{t1: 1}, {$or: [{$alwaysFalse: 1}]}]}, u: {$set: {z: 1}}, upsert: true}],
      },
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: []}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["copies: [{ into: protected.COLLECTION, key: f.id, fields: { n: f.n } }]"],
  stored: [],
  steps: [
    {
      command: {update: "c", updates: [{q: {$or: [{"f.id": 7}, {zq: {$all: []}}]}, u: {$set: {z: 1}}, upsert: true}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "copies"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: []}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["copies: [{ into: protected.COLLECTION, key: f.id, fields: { n: f.n } }]"],
  stored: [],
  steps: [
    {
      command: {update: "c", updates: [{q: {$or: [{$alwaysFalse: 1}, {"f.id": 7}]}, u: {$set: {z: 1}}, upsert: true}]},
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "copies"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: []}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["copies: [{ into: protected.COLLECTION, key: f.id, fields: { n: f.n } }]"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{"f.id": 7}, {$or: [{$and: [{zq: {$all: []}}]}]}]}, u: {$set: {z: 1}}, upsert: true}],
      },
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "copies"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: []}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["copies: [{ into: protected.COLLECTION, key: f.id, fields: { n: f.n } }]"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{$and: [{x: 1}, {$alwaysFalse: 1}]}, {"f.id": 7}]}, u: {$set: {z: 1}}, upsert: true}],
      },
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "copies"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: []}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["copies: [{ into: protected.COLLECTION, key: f.id, fields: { n: f.n } }]"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{"f.id": 7}, {$or: [{$alwaysFalse: 1}]}]}, u: {$set: {z: 1}}, upsert: true}],
      },
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "copies"}], ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: []}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["timestamps: { source: s, type: long, fields: [a, b], store: lm }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{a: 1}, {zq: {$all: []}}]}, u: {$set: {s: Long("5")}}, upsert: true}],
      },
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {
      command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]},
      reply: {n: 0, writeErrors: [{index: 0, code: 121, pattern: "timestamps"}], ok: 1},
    },
  ],
  after: [{_id: {$now: "id"}, a: 1, s: Long("5"), lm: {a: Long("5"), s: Long("5")}}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["timestamps: { source: s, type: long, fields: [a, b], store: lm }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{$alwaysFalse: 1}, {a: 1}]}, u: {$set: {s: Long("5")}}, upsert: true}],
      },
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {
      command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]},
      reply: {n: 0, writeErrors: [{index: 0, code: 121, pattern: "timestamps"}], ok: 1},
    },
  ],
  after: [{_id: {$now: "id"}, a: 1, s: Long("5"), lm: {a: Long("5"), s: Long("5")}}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["timestamps: { source: s, type: long, fields: [a, b], store: lm }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{a: 1}, {$or: [{$and: [{zq: {$all: []}}]}]}]}, u: {$set: {s: Long("5")}}, upsert: true}],
      },
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {
      command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]},
      reply: {n: 0, writeErrors: [{index: 0, code: 121, pattern: "timestamps"}], ok: 1},
    },
  ],
  after: [{_id: {$now: "id"}, a: 1, s: Long("5"), lm: {a: Long("5"), s: Long("5")}}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["timestamps: { source: s, type: long, fields: [a, b], store: lm }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{$and: [{x: 1}, {$alwaysFalse: 1}]}, {a: 1}]}, u: {$set: {s: Long("5")}}, upsert: true}],
      },
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {
      command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]},
      reply: {n: 0, writeErrors: [{index: 0, code: 121, pattern: "timestamps"}], ok: 1},
    },
  ],
  after: [{_id: {$now: "id"}, a: 1, s: Long("5"), lm: {a: Long("5"), s: Long("5")}}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["timestamps: { source: s, type: long, fields: [a, b], store: lm }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{a: 1}, {$or: [{$alwaysFalse: 1}]}]}, u: {$set: {s: Long("5")}}, upsert: true}],
      },
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {
      command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]},
      reply: {n: 0, writeErrors: [{index: 0, code: 121, pattern: "timestamps"}], ok: 1},
    },
  ],
  after: [{_id: {$now: "id"}, a: 1, s: Long("5"), lm: {a: Long("5"), s: Long("5")}}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["timestamps: { source: s, type: long, fields: [a, b], store: lm }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{lm: {a: Long("99")}}, {zq: {$all: []}}]}, u: {$set: {z: 1}}, upsert: true}],
      },
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {
      command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]},
      reply: {n: 0, writeErrors: [{index: 0, code: 121, pattern: "timestamps"}], ok: 1},
    },
  ],
  after: [{_id: {$now: "id"}, z: 1}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["timestamps: { source: s, type: long, fields: [a, b], store: lm }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{$alwaysFalse: 1}, {lm: {a: Long("99")}}]}, u: {$set: {z: 1}}, upsert: true}],
      },
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {
      command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]},
      reply: {n: 0, writeErrors: [{index: 0, code: 121, pattern: "timestamps"}], ok: 1},
    },
  ],
  after: [{_id: {$now: "id"}, z: 1}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["timestamps: { source: s, type: long, fields: [a, b], store: lm }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{
          q: {$or: [{lm: {a: Long("99")}}, {$or: [{$and: [{zq: {$all: []}}]}]}]},
          u: {$set: {z: 1}},
          upsert: true,
        }],
      },
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {
      command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]},
      reply: {n: 0, writeErrors: [{index: 0, code: 121, pattern: "timestamps"}], ok: 1},
    },
  ],
  after: [{_id: {$now: "id"}, z: 1}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["timestamps: { source: s, type: long, fields: [a, b], store: lm }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{
          q: {$or: [{$and: [{x: 1}, {$alwaysFalse: 1}]}, {lm: {a: Long("99")}}]},
          u: {$set: {z: 1}},
          upsert: true,
        }],
      },
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {
      command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]},
      reply: {n: 0, writeErrors: [{index: 0, code: 121, pattern: "timestamps"}], ok: 1},
    },
  ],
  after: [{_id: {$now: "id"}, z: 1}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["timestamps: { source: s, type: long, fields: [a, b], store: lm }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{lm: {a: Long("99")}}, {$or: [{$alwaysFalse: 1}]}]}, u: {$set: {z: 1}}, upsert: true}],
      },
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {
      command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]},
      reply: {n: 0, writeErrors: [{index: 0, code: 121, pattern: "timestamps"}], ok: 1},
    },
  ],
  after: [{_id: {$now: "id"}, z: 1}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }"],
  stored: [],
  steps: [
    {
      command: {update: "c", updates: [{q: {$or: [{no: 1}, {zq: {$all: []}}]}, u: {$set: {z: 1}}, upsert: true}]},
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: [], no: 2}, {_id: {$now: "id"}, no: 1, z: 1}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }"],
  stored: [],
  steps: [
    {
      command: {update: "c", updates: [{q: {$or: [{$alwaysFalse: 1}, {no: 1}]}, u: {$set: {z: 1}}, upsert: true}]},
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: [], no: 2}, {_id: {$now: "id"}, no: 1, z: 1}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{no: 1}, {$or: [{$and: [{zq: {$all: []}}]}]}]}, u: {$set: {z: 1}}, upsert: true}],
      },
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: [], no: 2}, {_id: {$now: "id"}, no: 1, z: 1}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{$and: [{x: 1}, {$alwaysFalse: 1}]}, {no: 1}]}, u: {$set: {z: 1}}, upsert: true}],
      },
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: [], no: 2}, {_id: {$now: "id"}, no: 1, z: 1}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{no: 1}, {$or: [{$alwaysFalse: 1}]}]}, u: {$set: {z: 1}}, upsert: true}],
      },
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [{_id: 9, t1: 1, t2: 1, messages: [], no: 2}, {_id: {$now: "id"}, no: 1, z: 1}],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{locked: true}, {zq: {$all: []}}]}, u: {$setOnInsert: {z: 1}}, upsert: true}],
      },
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [
    {_id: 9, t1: 1, t2: 1, messages: [], locked: false, tlocked: {$now: "date"}, try: 0},
    {_id: {$now: "id"}, locked: true, z: 1, tlocked: {$now: "date"}, try: 0},
  ],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{$alwaysFalse: 1}, {locked: true}]}, u: {$setOnInsert: {z: 1}}, upsert: true}],
      },
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [
    {_id: 9, t1: 1, t2: 1, messages: [], locked: false, tlocked: {$now: "date"}, try: 0},
    {_id: {$now: "id"}, locked: true, z: 1, tlocked: {$now: "date"}, try: 0},
  ],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{
          q: {$or: [{locked: true}, {$or: [{$and: [{zq: {$all: []}}]}]}]},
          u: {$setOnInsert: {z: 1}},
          upsert: true,
        }],
      },
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [
    {_id: 9, t1: 1, t2: 1, messages: [], locked: false, tlocked: {$now: "date"}, try: 0},
    {_id: {$now: "id"}, locked: true, z: 1, tlocked: {$now: "date"}, try: 0},
  ],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{
          q: {$or: [{$and: [{x: 1}, {$alwaysFalse: 1}]}, {locked: true}]},
          u: {$setOnInsert: {z: 1}},
          upsert: true,
        }],
      },
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [
    {_id: 9, t1: 1, t2: 1, messages: [], locked: false, tlocked: {$now: "date"}, try: 0},
    {_id: {$now: "id"}, locked: true, z: 1, tlocked: {$now: "date"}, try: 0},
  ],
},
{
  name: "an upsert by an $or with a branch that matches nothing",
  must: "what is inserted keeps the rule",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {$or: [{locked: true}, {$or: [{$alwaysFalse: 1}]}]}, u: {$setOnInsert: {z: 1}}, upsert: true}],
      },
      reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
    },
    {command: {insert: "c", documents: [{_id: 9, t1: 1, t2: 1, messages: []}]}, reply: {n: 1, ok: 1}},
  ],
  after: [
    {_id: 9, t1: 1, t2: 1, messages: [], locked: false, tlocked: {$now: "date"}, try: 0},
    {_id: {$now: "id"}, locked: true, z: 1, tlocked: {$now: "date"}, try: 0},
  ],
},
]
