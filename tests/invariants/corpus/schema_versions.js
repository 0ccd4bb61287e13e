// Versions of `schema_version`: those that a filter names, and stored numbers of other types.
[
{
  name: "schema_version: a filter that names a version",
  must: "is a statement of that version",
  rules: ["schema_version: { field: sv, current: 3, minimum: 1 }"],
  stored: [{_id: 1, sv: 2}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, sv: {$in: [null, 2]}}, u: {$set: {x: 1}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, sv: 2, x: 1}],
},
{
  name: "schema_version: a filter that names a version",
  must: "is a statement of that version",
  rules: ["schema_version: { field: sv, current: 3, minimum: 1 }"],
  stored: [{_id: 1, sv: 2}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, sv: {$in: [2, "x"]}}, u: {$set: {x: 1}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, sv: 2, x: 1}],
},
{
  name: "schema_version: a filter that names a version",
  must: "is a statement of that version",
  rules: ["schema_version: { field: sv, current: 3, minimum: 1 }"],
  stored: [{_id: 1, sv: 2}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, sv: {$in: [2, 1.5]}}, u: {$set: {x: 1}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, sv: 2, x: 1}],
},
{
  name: "schema_version: a filter that names a version",
  must: "is a statement of that version",
  rules: ["schema_version: { field: sv, current: 3, minimum: 1 }"],
  stored: [{_id: 1, sv: 2}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, sv: {$lte: 2.5}}, u: {$set: {x: 1}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, sv: 2, x: 1}],
},
{
  name: "schema_version: a filter that names a version",
  must: "is a statement of that version",
  rules: ["schema_version: { field: sv, current: 3, minimum: 1 }"],
  stored: [{_id: 1, sv: 2}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, sv: {$lt: 2.5}}, u: {$set: {x: 1}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, sv: 2, x: 1}],
},
{
  name: "schema_version: a filter that names a version",
  must: "is a statement of that version",
  rules: ["schema_version: { field: sv, current: 3, minimum: 1 }"],
  stored: [{_id: 1, sv: 2}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, $or: [{sv: {$lte: 2}}]}, u: {$set: {x: 1}}}]},
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, sv: 2, x: 1}],
},
{
  name: "schema_version: a filter that names a version",
  must: "is not a statement of a newer version",
  rules: ["schema_version: { field: sv, current: 3, minimum: 1 }"],
  stored: [{_id: 1, sv: 2.5}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, sv: {$lte: 2.5}}, u: {$set: {x: 1}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "schema_version"}], ok: 1},
  }],
  after: [{_id: 1, sv: 2.5}],
},
{
  name: "schema_version: a stored number of another type",
  must: "is newer than the statement",
  rules: ["schema_version: { field: sv, current: 3, minimum: 1 }"],
  stored: [{_id: 1, sv: Decimal128("5")}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {x: 1}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "schema_version"}], ok: 1},
  }],
  after: [{_id: 1, sv: Decimal128("5")}],
},
{
  name: "schema_version: a stored number of another type",
  must: "is newer than the statement",
  rules: ["schema_version: { field: sv, current: 3, minimum: 1 }"],
  stored: [{_id: 1, sv: 1.5}],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1}, u: {$set: {x: 1}}}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "schema_version"}], ok: 1},
  }],
  after: [{_id: 1, sv: 1.5}],
},
{
  name: "schema_version: an upsert whose $max raises the version of its filter",
  must: "inserts the higher version",
  rules: ["schema_version: { field: sv, current: 3, minimum: 1 }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, sv: 2}, u: {$max: {sv: 3}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, sv: 3}],
},
{
  name: "schema_version: an upsert whose $max leaves the version of its filter",
  must: "inserts the version of the filter",
  rules: ["schema_version: { field: sv, current: 3, minimum: 1 }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, sv: 2}, u: {$max: {sv: Double(1.0)}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, sv: 2}],
},
]
