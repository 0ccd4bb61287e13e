// Statements whose growth docward once counted too low, and patterns that read the values of `$addToSet`.
[
{
  name: "limits: a push to a full array inside an array, as an upsert",
  must: "is an error, as directly",
  rules: ["limits: { items: { m.arr: 3 } }"],
  stored: [{_id: 1, m: [{arr: [1, 2, 3]}]}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$push: {"m.arr": 1}}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [{_id: 1, m: [{arr: [1, 2, 3]}]}],
},
{
  name: "limits: an upsert adds an equal number of another type to the full array of its filter",
  must: "inserts the array of the filter, as directly",
  rules: ["limits: { items: { messages: 3 } }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {messages: {$eq: [1, 2, 8]}}, u: {$addToSet: {messages: Double(8.0)}}, upsert: true}],
    },
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, messages: [1, 2, 8]}],
},
{
  name: "limits: a path with a name that begins with $",
  must: "counts the documents around it",
  rules: ["limits: { document: 400B }"],
  stored: [{
    _id: 1,
    pad: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    z: 1,
  }],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1}, u: {$set: {"kkkkkkkkkkkkkkkkkkkkkkkkkkkkkk.jjjjjjjjjjjjjjjjjjjjjjjjjjjjjj.$id": "c"}}}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [{
    _id: 1,
    pad: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    z: 1,
  }],
},
{
  name: "limits: a path with a name that begins with $",
  must: "counts the documents around it",
  rules: ["limits: { document: 400B }"],
  stored: [{
    _id: 1,
    pad: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    z: 1,
  }],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1}, u: {$inc: {"kkkkkkkkkkkkkkkkkkkkkkkkkkkkkk.jjjjjjjjjjjjjjjjjjjjjjjjjjjjjj.$id": 1}}}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [{
    _id: 1,
    pad: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    z: 1,
  }],
},
{
  name: "limits: a path with a name that begins with $",
  must: "counts the documents around it",
  rules: ["limits: { document: 400B }"],
  stored: [{
    _id: 1,
    pad: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    z: 1,
  }],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {_id: 1},
        u: {$currentDate: {"kkkkkkkkkkkkkkkkkkkkkkkkkkkkkk.jjjjjjjjjjjjjjjjjjjjjjjjjjjjjj.$id": true}},
      }],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [{
    _id: 1,
    pad: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    z: 1,
  }],
},
{
  name: "limits: a path with a name that begins with $",
  must: "counts the documents around it",
  rules: ["limits: { document: 400B }"],
  stored: [{
    _id: 1,
    pad: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    z: 1,
  }],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {_id: 1},
        u: {$set: {"kkkkkkkkkkkkkkkkkkkkkkkkkkkkkk.jjjjjjjjjjjjjjjjjjjjjjjjjjjjjj.$name": "c"}},
      }],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [{
    _id: 1,
    pad: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    z: 1,
  }],
},
{
  name: "limits: a path with a name that begins with $",
  must: "counts the documents around it",
  rules: ["limits: { document: 400B }"],
  stored: [{
    _id: 1,
    pad: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    z: 1,
  }],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1}, u: {$set: {"kkkkkkkkkkkkkkkkkkkkkkkkkkkkkk.jjjjjjjjjjjjjjjjjjjjjjjjjjjjjj.$[x": "c"}}}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [{
    _id: 1,
    pad: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    z: 1,
  }],
},
{
  name: "limits: a path with a name that begins with $, within the limit",
  must: "is stored",
  rules: ["limits: { document: 400B }"],
  stored: [{
    _id: 1,
    pad: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    z: 1,
  }],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {"k.$id": 1}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{
    _id: 1,
    pad: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    z: 1,
    k: {$id: 1},
  }],
},
{
  name: "limits: a position with leading zeros in the filter is no condition",
  must: "is rejected",
  rules: ["limits: { items: { messages: 3 } }"],
  stored: [{_id: 1, messages: [1, 2, 3]}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, "messages.00": {$exists: false}}, u: {$push: {messages: 9}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [{_id: 1, messages: [1, 2, 3]}],
},
{
  name: "limits: $addToSet with $each after another field adds the document",
  must: "is rejected",
  rules: ["limits: { items: { messages: 3 } }"],
  stored: [{_id: 1, messages: [1, 2, 3]}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$addToSet: {messages: {a: 1, $each: []}}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [{_id: 1, messages: [1, 2, 3]}],
},
{
  name: "limits: an upsert by $addToSet of a value that its filter's array has",
  must: "inserts the array of the filter",
  rules: ["limits: { items: { messages: 1 } }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {messages: [1]}, u: {$addToSet: {messages: 1}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, messages: [1]}],
},
{
  name: "limits: an upsert by $addToSet of another value than its filter's array has",
  must: "is rejected",
  rules: ["limits: { items: { messages: 1 } }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {messages: [1]}, u: {$addToSet: {messages: {$each: [1, 2]}}}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [],
},
{
  name: "limits: an upsert by $addToSet of one value twice",
  must: "inserts it once",
  rules: ["limits: { items: { messages: 2 } }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {messages: [1]}, u: {$addToSet: {messages: {$each: [2, 2]}}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: {$now: "id"}}], nModified: 0, ok: 1},
  }],
  after: [{_id: {$now: "id"}, messages: [1, 2]}],
},
{
  name: "limits: the bytes of an $addToSet with $each after another field",
  must: "is rejected",
  rules: ["limits: { document: 200B }"],
  stored: [{_id: 1}],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {_id: 1},
        u: {
          $addToSet: {
            messages: {
              a: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
              $each: [],
            },
          },
        },
      }],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [{_id: 1}],
},
{
  name: "limits: arrays that $[] creates in elements",
  must: "is rejected",
  rules: ["limits: { document: 200B }"],
  stored: [{_id: 1, messages: [{}, {}]}],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {_id: 1},
        u: {
          $push: {
            "messages.$[].xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx": {
              $each: [],
            },
          },
        },
      }],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [{_id: 1, messages: [{}, {}]}],
},
{
  name: "limits: an array that a push creates behind a position",
  must: "is rejected",
  rules: ["limits: { document: 200B }"],
  stored: [{_id: 1, messages: [{}]}],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {_id: 1},
        u: {
          $addToSet: {
            "messages.0.xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx": {
              $each: [],
            },
          },
        },
      }],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [{_id: 1, messages: [{}]}],
},
{
  name: "limits: nulls before a position in an array in an array",
  must: "is rejected",
  rules: ["limits: { document: 200B }"],
  stored: [{_id: 1, messages: [[]]}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {"messages.$[].80": 1}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [{_id: 1, messages: [[]]}],
},
{
  name: "limits: an upsert applies $[] to each element of the filter's array",
  must: "is rejected",
  rules: ["limits: { document: 200B }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {_id: 1, messages: [{}, {}, {}, {}]},
        u: {$set: {"messages.$[].x": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}},
        upsert: true,
      }],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [],
},
{
  name: "limits: the same by $setOnInsert",
  must: "is rejected",
  rules: ["limits: { document: 200B }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {_id: 1, messages: [{}, {}, {}, {}]},
        u: {$setOnInsert: {"messages.$[].x": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}},
        upsert: true,
      }],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [],
},
{
  name: "limits: an upsert writes a position beyond the filter's array by $setOnInsert",
  must: "is rejected",
  rules: ["limits: { items: { messages: 3 } }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, messages: [1]}, u: {$setOnInsert: {"messages.9": 1}}, upsert: true}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [],
},
{
  name: "limits: $ has the position of an element of another array",
  must: "is rejected",
  rules: ["limits: { items: { messages: 3 } }"],
  stored: [{_id: 1, messages: [], other: [1, 2, 3, 4, 5]}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, other: 5}, u: {$set: {"messages.$": 1}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [{_id: 1, messages: [], other: [1, 2, 3, 4, 5]}],
},
{
  name: "limits: the bytes before the position of an element of another array",
  must: "is rejected",
  rules: ["limits: { document: 200B }"],
  stored: [{_id: 1, messages: [], b: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, b: 14}, u: {$set: {"messages.$": 1}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [{_id: 1, messages: [], b: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]}],
},
{
  name: "limits: $exists selects the first element of another array",
  must: "is rejected",
  rules: ["limits: { document: 60B }"],
  stored: [{_id: 1, messages: [7, 8, 9]}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, messages: {$exists: true}}, u: {$set: {"last_modified.$": 1}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [{_id: 1, messages: [7, 8, 9]}],
},
{
  name: "limits: $exists below another array gives $ a position beyond the array",
  must: "is rejected",
  rules: ["limits: { items: { messages: 3 } }"],
  stored: [{_id: 1, messages: [1], other: [{}, {}, {}, {x: 1}]}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, "other.x": {$exists: true}}, u: {$set: {"messages.$": 1}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [{_id: 1, messages: [1], other: [{}, {}, {}, {x: 1}]}],
},
{
  name: "limits: an array in an element of the array gives $ a position beyond the array",
  must: "is rejected",
  rules: ["limits: { items: { messages: 3 } }"],
  stored: [{_id: 1, messages: [{x: [0, 0, 0, 0, 5]}]}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, "messages.0.x": 5}, u: {$set: {"messages.$": 1}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [{_id: 1, messages: [{x: [0, 0, 0, 0, 5]}]}],
},
{
  name: "limits: the required fields of $jsonSchema select the first element of another array",
  must: "is rejected",
  rules: ["limits: { document: 60B }"],
  stored: [{_id: 1, messages: [7, 8, 9]}],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, $jsonSchema: {required: ["messages"]}}, u: {$set: {"last_modified.$": 1}}}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [{_id: 1, messages: [7, 8, 9]}],
},
{
  name: "limits: an array in a document gives $ a position that becomes a field of the document",
  must: "is rejected",
  rules: ["limits: { document: 76B }"],
  stored: [{_id: 1, b: {x: [0, 1, 2, 3, 4]}}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, "b.x": 4}, u: {$set: {"b.$.c": 1}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [{_id: 1, b: {x: [0, 1, 2, 3, 4]}}],
},
{
  name: "limits: a condition on a field that is not an array selects no element",
  must: "is executed",
  rules: ["limits: { items: { messages: 3 } }"],
  stored: [{_id: 1, messages: [1, 2, 3], status: "open"}],
  steps: [{
    command: {update: "c", updates: [{q: {status: "open", messages: 3}, u: {$set: {"messages.$": 7}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, messages: [1, 2, 7], status: "open"}],
},
{
  name: "limits: the same with a limit of the document",
  must: "is executed",
  rules: ["limits: { document: 200B }"],
  stored: [{_id: 1, messages: [1, 2], a: {b: 5}}],
  steps: [{
    command: {update: "c", updates: [{q: {"a.b": 5, messages: 2}, u: {$set: {"messages.$": 7}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, messages: [1, 7], a: {b: 5}}],
},
{
  name: "limits: an operator that adds no bytes may have the position of another array",
  must: "is executed",
  rules: ["limits: { document: 200B }"],
  stored: [{_id: 1, messages: [{x: 1}], other: [5]}],
  steps: [{
    command: {update: "c", updates: [{q: {other: 5}, u: {$unset: {"messages.$.x": 1}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, messages: [{}], other: [5]}],
},
{
  name: "limits: $ selects an element of the array that the filter is about",
  must: "is forwarded",
  rules: ["limits: { items: { messages: 3 } }"],
  stored: [{_id: 1, messages: [1, 2, 3]}],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, messages: 3, other: {$exists: false}}, u: {$set: {"messages.$": 7}}}],
    },
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, messages: [1, 2, 7]}],
},
{
  name: "together: $addToSet with $each after another field adds an element with one of the fields",
  must: "is rejected",
  rules: ["together: [a.n, a.m]"],
  stored: [{_id: 1, a: []}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$addToSet: {a: {n: 1, $each: []}}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
  }],
  after: [{_id: 1, a: []}],
},
{
  name: "together: an upsert creates a number around one field, and sets the other field",
  must: "is rejected",
  rules: ["together: [a.n, b]"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {}, u: {$bit: {a: {and: 5}}, $min: {b: 1}}, upsert: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "together"}], ok: 1},
  }],
  after: [],
},
{
  name: "limits: the bytes of timestamps beside an operator that no pipeline can express",
  must: "is rejected",
  rules: ["limits: { document: 200B }", "timestamps: { source: at, fields: [b] }"],
  stored: [{
    _id: 1,
    messages: [1],
    note: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
  }],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1}, u: {$pop: {messages: 1}, $set: {b: 1, at: new Date(1000000009000)}}}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [{
    _id: 1,
    messages: [1],
    note: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
  }],
},
{
  name: "limits: the bytes of timestamps of an upsert by such an operator",
  must: "is rejected",
  rules: ["limits: { document: 200B }", "timestamps: { source: at, fields: [b] }"],
  stored: [],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {
          _id: 1,
          note: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
          b: 1,
        },
        u: {$pop: {messages: 1}, $set: {at: new Date(1000000009000)}},
        upsert: true,
      }],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [],
},
{
  name: "limits: a stale write keeps a long value, and the statement adds another one",
  must: "is rejected",
  rules: ["limits: { document: 1600B }", "timestamps: { source: at, fields: [b] }"],
  stored: [{
    _id: 1,
    messages: [1],
    b: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    at: new Date(1000000009000),
    last_modified: {b: new Date(1000000009000)},
  }],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {_id: 1},
        u: {
          $set: {
            b: "",
            at: new Date(1000000001000),
            note: "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy",
          },
        },
      }],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [{
    _id: 1,
    messages: [1],
    b: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    at: new Date(1000000009000),
    last_modified: {b: new Date(1000000009000)},
  }],
},
{
  name: "limits: the same beside an operator that no pipeline can express",
  must: "is rejected",
  rules: ["limits: { document: 1600B }", "timestamps: { source: at, fields: [b] }"],
  stored: [{
    _id: 1,
    messages: [1],
    b: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    at: new Date(1000000009000),
    last_modified: {b: new Date(1000000009000)},
  }],
  steps: [{
    command: {
      update: "c",
      updates: [{
        q: {_id: 1},
        u: {
          $pop: {messages: 1},
          $set: {
            b: "",
            at: new Date(1000000001000),
            note: "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy",
          },
        },
      }],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [{
    _id: 1,
    messages: [1],
    b: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    at: new Date(1000000009000),
    last_modified: {b: new Date(1000000009000)},
  }],
},
{
  name: "limits: $addToSet of a value that a full array has",
  must: "passes: it adds nothing",
  rules: ["limits: { items: { messages: 3 } }"],
  stored: [{_id: 1, messages: [1, 2, 3, 4, 5]}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$addToSet: {messages: 1}, $set: {b: 1}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, messages: [1, 2, 3, 4, 5], b: 1}],
},
{
  name: "limits: $addToSet of nothing to a full array",
  must: "passes",
  rules: ["limits: { items: { messages: 3 } }"],
  stored: [{_id: 1, messages: [1, 2, 3, 4, 5]}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$addToSet: {messages: {$each: []}}, $set: {b: 1}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, messages: [1, 2, 3, 4, 5], b: 1}],
},
{
  name: "limits: $addToSet of a known and a new value to a full array",
  must: "is rejected, with the number of new values",
  rules: ["limits: { items: { messages: 3 } }"],
  stored: [{_id: 1, messages: [1, 2, 3]}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$addToSet: {messages: {$each: [1, 9]}}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "limits"}], ok: 1},
  }],
  after: [{_id: 1, messages: [1, 2, 3]}],
  message: "3 elements and the statement adds 1",
},
]
