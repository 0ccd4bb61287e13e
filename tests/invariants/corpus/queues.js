// Claims, saves and locks of `queue` jobs.
[
{
  name: "queue: a claim of a job whose attempts are NaN",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: NaN},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: NaN},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are a decimal NaN",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Decimal128("NaN")},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Decimal128("NaN")},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are Infinity",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Infinity},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Infinity},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are -Infinity",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: -Infinity},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: -Infinity},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are a decimal Infinity",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Decimal128("Infinity")},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Decimal128("Infinity")},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are a decimal -Infinity",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Decimal128("-Infinity")},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Decimal128("-Infinity")},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are a decimal too large to count",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Decimal128("1E+40")},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Decimal128("1E+40")},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are a decimal too small to count",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Decimal128("-1E+40")},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Decimal128("-1E+40")},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are a double too large to count",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Double(1e300)},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Double(1e300)},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are the largest long",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Long("9223372036854775807")},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Long("9223372036854775807")},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are null",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: null},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: null},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are a text",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: "1"},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: "1"},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are an array",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: [1]},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: [1]},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are a document",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: {n: 1}},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: {n: 1}},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are a boolean",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: true},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: true},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are a date",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: new Date(1000000000000)},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: new Date(1000000000000)},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are the largest key",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: MaxKey()},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: MaxKey()},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are NaN",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m, max_attempts: 3 }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: NaN},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: NaN},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are a decimal NaN",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m, max_attempts: 3 }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Decimal128("NaN")},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Decimal128("NaN")},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are Infinity",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m, max_attempts: 3 }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Infinity},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Infinity},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are -Infinity",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m, max_attempts: 3 }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: -Infinity},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: -Infinity},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are a decimal Infinity",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m, max_attempts: 3 }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Decimal128("Infinity")},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Decimal128("Infinity")},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are a decimal -Infinity",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m, max_attempts: 3 }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Decimal128("-Infinity")},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Decimal128("-Infinity")},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are a decimal too large to count",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m, max_attempts: 3 }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Decimal128("1E+40")},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Decimal128("1E+40")},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are a decimal too small to count",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m, max_attempts: 3 }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Decimal128("-1E+40")},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Decimal128("-1E+40")},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are a double too large to count",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m, max_attempts: 3 }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Double(1e300)},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Double(1e300)},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are the largest long",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m, max_attempts: 3 }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Long("9223372036854775807")},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: Long("9223372036854775807")},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are null",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m, max_attempts: 3 }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: null},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: null},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are a text",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m, max_attempts: 3 }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: "1"},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: "1"},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are an array",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m, max_attempts: 3 }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: [1]},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: [1]},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are a document",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m, max_attempts: 3 }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: {n: 1}},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: {n: 1}},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are a boolean",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m, max_attempts: 3 }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: true},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: true},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are a date",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m, max_attempts: 3 }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: new Date(1000000000000)},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: new Date(1000000000000)},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
{
  name: "queue: a claim of a job whose attempts are the largest key",
  must: "gets the next job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m, max_attempts: 3 }"],
  stored: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: MaxKey()},
    {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
  ],
  steps: [{
    command: {findAndModify: "c", query: {}, update: {$set: {locked: true, by: "w1"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
      ok: 1,
    },
  }],
  after: [
    {_id: 0, locked: false, tlocked: new Date(1000000000000), try: MaxKey()},
    {_id: 1, locked: true, tlocked: {$now: "date"}, try: 1, by: "w1"},
  ],
},
// Jobs whose lock has a time that is none: docward must not leave them locked for ever.
{
  name: "queue: a lock since NaN",
  must: "the job is claimed",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 1, locked: 1, tlocked: NaN, try: 1, by: "w1"}],
  steps: [{
    command: {findAndModify: "c", query: {_id: 1}, update: {$set: {locked: true, by: "w2"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: 1, tlocked: NaN, try: 1, by: "w1"},
      ok: 1,
    },
  }],
  after: [{_id: 1, locked: true, tlocked: {$now: "date"}, try: 2, by: "w2"}],
},
{
  name: "queue: a lock since Infinity",
  must: "the job is claimed",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 1, locked: 1, tlocked: Infinity, try: 1, by: "w1"}],
  steps: [{
    command: {findAndModify: "c", query: {_id: 1}, update: {$set: {locked: true, by: "w2"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: 1, tlocked: Infinity, try: 1, by: "w1"},
      ok: 1,
    },
  }],
  after: [{_id: 1, locked: true, tlocked: {$now: "date"}, try: 2, by: "w2"}],
},
{
  name: "queue: a lock since -Infinity",
  must: "the job is claimed",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 1, locked: 1, tlocked: -Infinity, try: 1, by: "w1"}],
  steps: [{
    command: {findAndModify: "c", query: {_id: 1}, update: {$set: {locked: true, by: "w2"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: 1, tlocked: -Infinity, try: 1, by: "w1"},
      ok: 1,
    },
  }],
  after: [{_id: 1, locked: true, tlocked: {$now: "date"}, try: 2, by: "w2"}],
},
{
  name: "queue: a lock since a double beyond all times",
  must: "the job is claimed",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 1, locked: 1, tlocked: Double(1e300), try: 1, by: "w1"}],
  steps: [{
    command: {findAndModify: "c", query: {_id: 1}, update: {$set: {locked: true, by: "w2"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: 1, tlocked: Double(1e300), try: 1, by: "w1"},
      ok: 1,
    },
  }],
  after: [{_id: 1, locked: true, tlocked: {$now: "date"}, try: 2, by: "w2"}],
},
{
  name: "queue: a lock since a decimal NaN",
  must: "the job is claimed",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 1, locked: 1, tlocked: Decimal128("NaN"), try: 1, by: "w1"}],
  steps: [{
    command: {findAndModify: "c", query: {_id: 1}, update: {$set: {locked: true, by: "w2"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: 1, tlocked: Decimal128("NaN"), try: 1, by: "w1"},
      ok: 1,
    },
  }],
  after: [{_id: 1, locked: true, tlocked: {$now: "date"}, try: 2, by: "w2"}],
},
{
  name: "queue: a lock since a decimal Infinity",
  must: "the job is claimed",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 1, locked: 1, tlocked: Decimal128("Infinity"), try: 1, by: "w1"}],
  steps: [{
    command: {findAndModify: "c", query: {_id: 1}, update: {$set: {locked: true, by: "w2"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: 1, tlocked: Decimal128("Infinity"), try: 1, by: "w1"},
      ok: 1,
    },
  }],
  after: [{_id: 1, locked: true, tlocked: {$now: "date"}, try: 2, by: "w2"}],
},
{
  name: "queue: a lock since a decimal -Infinity",
  must: "the job is claimed",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 1, locked: 1, tlocked: Decimal128("-Infinity"), try: 1, by: "w1"}],
  steps: [{
    command: {findAndModify: "c", query: {_id: 1}, update: {$set: {locked: true, by: "w2"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: 1, tlocked: Decimal128("-Infinity"), try: 1, by: "w1"},
      ok: 1,
    },
  }],
  after: [{_id: 1, locked: true, tlocked: {$now: "date"}, try: 2, by: "w2"}],
},
{
  name: "queue: a lock since a decimal beyond all times",
  must: "the job is claimed",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 1, locked: 1, tlocked: Decimal128("1E+40"), try: 1, by: "w1"}],
  steps: [{
    command: {findAndModify: "c", query: {_id: 1}, update: {$set: {locked: true, by: "w2"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: 1, tlocked: Decimal128("1E+40"), try: 1, by: "w1"},
      ok: 1,
    },
  }],
  after: [{_id: 1, locked: true, tlocked: {$now: "date"}, try: 2, by: "w2"}],
},
{
  name: "queue: a lock since a text",
  must: "the job is claimed",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 1, locked: 1, tlocked: "x", try: 1, by: "w1"}],
  steps: [{
    command: {findAndModify: "c", query: {_id: 1}, update: {$set: {locked: true, by: "w2"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: 1, tlocked: "x", try: 1, by: "w1"},
      ok: 1,
    },
  }],
  after: [{_id: 1, locked: true, tlocked: {$now: "date"}, try: 2, by: "w2"}],
},
{
  name: "queue: a lock since an empty text",
  must: "the job is claimed",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 1, locked: 1, tlocked: "", try: 1, by: "w1"}],
  steps: [{
    command: {findAndModify: "c", query: {_id: 1}, update: {$set: {locked: true, by: "w2"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: 1, tlocked: "", try: 1, by: "w1"},
      ok: 1,
    },
  }],
  after: [{_id: 1, locked: true, tlocked: {$now: "date"}, try: 2, by: "w2"}],
},
{
  name: "queue: a lock since an array of times",
  must: "the job is claimed",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 1, locked: 1, tlocked: [new Date(4200000000000)], try: 1, by: "w1"}],
  steps: [{
    command: {findAndModify: "c", query: {_id: 1}, update: {$set: {locked: true, by: "w2"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: 1, tlocked: [new Date(4200000000000)], try: 1, by: "w1"},
      ok: 1,
    },
  }],
  after: [{_id: 1, locked: true, tlocked: {$now: "date"}, try: 2, by: "w2"}],
},
{
  name: "queue: a lock since an empty array",
  must: "the job is claimed",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 1, locked: 1, tlocked: [], try: 1, by: "w1"}],
  steps: [{
    command: {findAndModify: "c", query: {_id: 1}, update: {$set: {locked: true, by: "w2"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: 1, tlocked: [], try: 1, by: "w1"},
      ok: 1,
    },
  }],
  after: [{_id: 1, locked: true, tlocked: {$now: "date"}, try: 2, by: "w2"}],
},
{
  name: "queue: a lock since a document",
  must: "the job is claimed",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 1, locked: 1, tlocked: {at: new Date(4200000000000)}, try: 1, by: "w1"}],
  steps: [{
    command: {findAndModify: "c", query: {_id: 1}, update: {$set: {locked: true, by: "w2"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: 1, tlocked: {at: new Date(4200000000000)}, try: 1, by: "w1"},
      ok: 1,
    },
  }],
  after: [{_id: 1, locked: true, tlocked: {$now: "date"}, try: 2, by: "w2"}],
},
{
  name: "queue: a lock since the smallest key",
  must: "the job is claimed",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 1, locked: 1, tlocked: MinKey(), try: 1, by: "w1"}],
  steps: [{
    command: {findAndModify: "c", query: {_id: 1}, update: {$set: {locked: true, by: "w2"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: 1, tlocked: MinKey(), try: 1, by: "w1"},
      ok: 1,
    },
  }],
  after: [{_id: 1, locked: true, tlocked: {$now: "date"}, try: 2, by: "w2"}],
},
{
  name: "queue: a lock since the largest key",
  must: "the job is claimed",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 1, locked: 1, tlocked: MaxKey(), try: 1, by: "w1"}],
  steps: [{
    command: {findAndModify: "c", query: {_id: 1}, update: {$set: {locked: true, by: "w2"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: 1, tlocked: MaxKey(), try: 1, by: "w1"},
      ok: 1,
    },
  }],
  after: [{_id: 1, locked: true, tlocked: {$now: "date"}, try: 2, by: "w2"}],
},
{
  name: "queue: a lock since null",
  must: "the job is claimed",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 1, locked: 1, tlocked: null, try: 1, by: "w1"}],
  steps: [{
    command: {findAndModify: "c", query: {_id: 1}, update: {$set: {locked: true, by: "w2"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: 1, tlocked: null, try: 1, by: "w1"},
      ok: 1,
    },
  }],
  after: [{_id: 1, locked: true, tlocked: {$now: "date"}, try: 2, by: "w2"}],
},
{
  name: "queue: a lock since a timestamp that is over",
  must: "the job is claimed",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 1, locked: 1, tlocked: Timestamp(1, 1), try: 1, by: "w1"}],
  steps: [{
    command: {findAndModify: "c", query: {_id: 1}, update: {$set: {locked: true, by: "w2"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: 1, tlocked: Timestamp(1, 1), try: 1, by: "w1"},
      ok: 1,
    },
  }],
  after: [{_id: 1, locked: true, tlocked: {$now: "date"}, try: 2, by: "w2"}],
},
{
  name: "queue: a lock since a text with a time that is over",
  must: "the job is claimed",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 1, locked: 1, tlocked: "2001-01-01T00:00:00Z", try: 1, by: "w1"}],
  steps: [{
    command: {findAndModify: "c", query: {_id: 1}, update: {$set: {locked: true, by: "w2"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: 1, tlocked: "2001-01-01T00:00:00Z", try: 1, by: "w1"},
      ok: 1,
    },
  }],
  after: [{_id: 1, locked: true, tlocked: {$now: "date"}, try: 2, by: "w2"}],
},
// Claims whose filter the server rejects.
{
  name: "queue: a claim with a number in $and",
  must: "fails as it does without a rule",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0}],
  steps: [{
    command: {findAndModify: "c", query: {$and: [5]}, update: {$set: {locked: true}}},
    reply: {ok: 0, code: 2},
  }],
  after: [{_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0}],
},
{
  name: "queue: a claim with a text as $and",
  must: "fails as it does without a rule",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0}],
  steps: [{
    command: {findAndModify: "c", query: {$and: "x"}, update: {$set: {locked: true}}},
    reply: {ok: 0, code: 2},
  }],
  after: [{_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0}],
},
{
  name: "queue: a claim with an empty $and",
  must: "fails as it does without a rule",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0}],
  steps: [{
    command: {findAndModify: "c", query: {kind: "mail", $and: []}, update: {$set: {locked: true}}},
    reply: {ok: 0, code: 2},
  }],
  after: [{_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0}],
},
{
  name: "queue: claims by locked: 1",
  must: "the second does not get the job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0}],
  steps: [
    {
      command: {findAndModify: "c", query: {_id: 1}, update: {$set: {locked: 1, by: "w1"}}},
      reply: {
        lastErrorObject: {n: 1, updatedExisting: true},
        value: {_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0},
        ok: 1,
      },
    },
    {
      command: {findAndModify: "c", query: {_id: 1}, update: {$set: {locked: 1, by: "w2"}}},
      reply: {lastErrorObject: {n: 0, updatedExisting: false}, value: null, ok: 1},
    },
  ],
  after: [{_id: 1, locked: 1, tlocked: {$now: "date"}, try: 1, by: "w1"}],
},
{
  name: "queue: an upsert that is no claim",
  must: "inserts a job with the fields of the lease, or is rejected",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [],
  steps: [{
    command: {update: "c", updates: [{q: {_id: 1, locked: false}, u: {$set: {note: 1}}, upsert: true}]},
    reply: {n: 1, upserted: [{index: 0, _id: 1}], nModified: 0, ok: 1},
  }],
  after: [{_id: 1, locked: false, note: 1, tlocked: {$now: "date"}, try: 0}],
},
{
  name: "queue: claims by replacement with the attempt",
  must: "not both get the job",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0}],
  steps: [
    {
      command: {
        update: "c",
        updates: [{q: {_id: 1, try: 0}, u: {locked: true, tlocked: new Date(1000000000000), try: 0, by: "w1"}}],
      },
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "queue"}], ok: 1},
    },
    {
      command: {
        update: "c",
        updates: [{q: {_id: 1, try: 0}, u: {locked: true, tlocked: new Date(1000000000000), try: 0, by: "w2"}}],
      },
      reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "queue"}], ok: 1},
    },
  ],
  after: [{_id: 1, locked: false, tlocked: new Date(1000000000000), try: 0}],
},
{
  name: "queue: jobs without attempts, under a limit of them",
  must: "can be claimed",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m, max_attempts: 3 }"],
  stored: [{_id: 1, kind: "mail"}],
  steps: [{
    command: {findAndModify: "c", query: {_id: 1}, update: {$set: {locked: true, by: "w1"}}},
    reply: {lastErrorObject: {n: 1, updatedExisting: true}, value: {_id: 1, kind: "mail"}, ok: 1},
  }],
  after: [{_id: 1, kind: "mail", by: "w1", locked: true, tlocked: {$now: "date"}, try: 1}],
},
{
  name: "queue: a claimed job is updated by an attempt that several have",
  must: "not every worker's job is changed",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [
    {_id: 1, locked: true, tlocked: new Date(4200000000000), try: 1},
    {_id: 2, locked: true, tlocked: new Date(4200000000000), try: 1},
  ],
  steps: [{
    command: {update: "c", updates: [{q: {try: 1}, u: {$set: {done: true}}, multi: true}]},
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "queue"}], ok: 1},
  }],
  after: [
    {_id: 1, locked: true, tlocked: new Date(4200000000000), try: 1},
    {_id: 2, locked: true, tlocked: new Date(4200000000000), try: 1},
  ],
},
{
  name: "queue: claimed jobs are deleted by an attempt that several have",
  must: "not every worker's job is deleted",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [
    {_id: 1, locked: true, tlocked: new Date(4200000000000), try: 1},
    {_id: 2, locked: true, tlocked: new Date(4200000000000), try: 1},
  ],
  steps: [{
    command: {delete: "c", deletes: [{q: {try: 1}, limit: 0}]},
    reply: {n: 0, writeErrors: [{index: 0, code: 121, pattern: "queue"}], ok: 1},
  }],
  after: [
    {_id: 1, locked: true, tlocked: new Date(4200000000000), try: 1},
    {_id: 2, locked: true, tlocked: new Date(4200000000000), try: 1},
  ],
},
{
  name: "queue: claimed jobs are updated by an _id that is equal to others in a collation",
  must: "not every worker's job is changed",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [
    {_id: "a", locked: true, tlocked: new Date(4200000000000), try: 1},
    {_id: "A", locked: true, tlocked: new Date(4200000000000), try: 1},
  ],
  steps: [{
    command: {
      update: "c",
      updates: [{u: {$set: {done: true}}, multi: true, q: {_id: "a", try: 1}, collation: {locale: "en", strength: 1}}],
    },
    reply: {n: 0, nModified: 0, writeErrors: [{index: 0, code: 121, pattern: "queue"}], ok: 1},
  }],
  after: [
    {_id: "A", locked: true, tlocked: new Date(4200000000000), try: 1},
    {_id: "a", locked: true, tlocked: new Date(4200000000000), try: 1},
  ],
},
{
  name: "queue: claimed jobs are deleted by an _id that is equal to others in a collation",
  must: "not every worker's job is deleted",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [
    {_id: "a", locked: true, tlocked: new Date(4200000000000), try: 1},
    {_id: "A", locked: true, tlocked: new Date(4200000000000), try: 1},
  ],
  steps: [{
    command: {delete: "c", deletes: [{limit: 0, q: {_id: "a", try: 1}, collation: {locale: "en", strength: 1}}]},
    reply: {n: 0, writeErrors: [{index: 0, code: 121, pattern: "queue"}], ok: 1},
  }],
  after: [
    {_id: "A", locked: true, tlocked: new Date(4200000000000), try: 1},
    {_id: "a", locked: true, tlocked: new Date(4200000000000), try: 1},
  ],
},
{
  name: "queue: an epoch number as the time of a lease that lasts",
  must: "the job is not claimed",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 1, locked: true, tlocked: Long("4200000000000"), try: 1, by: "w1"}],
  steps: [{
    command: {findAndModify: "c", query: {_id: 1}, update: {$set: {locked: true, by: "w2"}}},
    reply: {lastErrorObject: {n: 0, updatedExisting: false}, value: null, ok: 1},
  }],
  after: [{_id: 1, locked: true, tlocked: Long("4200000000000"), try: 1, by: "w1"}],
},
{
  name: "queue: a timestamp as the time of a lease that lasts",
  must: "the job is not claimed",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 1, locked: true, tlocked: Timestamp(4200000000, 1), try: 1, by: "w1"}],
  steps: [{
    command: {findAndModify: "c", query: {_id: 1}, update: {$set: {locked: true, by: "w2"}}},
    reply: {lastErrorObject: {n: 0, updatedExisting: false}, value: null, ok: 1},
  }],
  after: [{_id: 1, locked: true, tlocked: Timestamp(4200000000, 1), try: 1, by: "w1"}],
},
{
  name: "queue: an epoch number as the time of a lease that is over",
  must: "the job is claimed",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 1, locked: true, tlocked: Long("1000000000000"), try: 1, by: "w1"}],
  steps: [{
    command: {findAndModify: "c", query: {_id: 1}, update: {$set: {locked: true, by: "w2"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: true, tlocked: Long("1000000000000"), try: 1, by: "w1"},
      ok: 1,
    },
  }],
  after: [{_id: 1, locked: true, tlocked: {$now: "date"}, try: 2, by: "w2"}],
},
{
  name: "queue: an expired job whose attempts are bounded",
  must: "can be claimed again",
  rules: [
    "queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }",
    "bounds: { field: try, min: 0, max: 5 }",
  ],
  stored: [{_id: 1, locked: true, tlocked: new Date(1000000000000), try: 1}],
  steps: [{
    command: {findAndModify: "c", query: {_id: 1}, update: {$set: {locked: true, by: "w2"}}},
    reply: {
      lastErrorObject: {n: 1, updatedExisting: true},
      value: {_id: 1, locked: true, tlocked: new Date(1000000000000), try: 1},
      ok: 1,
    },
  }],
  after: [{_id: 1, locked: true, tlocked: {$now: "date"}, try: 2, by: "w2"}],
},
{
  name: "queue: a job saved by merge with its attempt",
  must: "it is done",
  rules: [
    "replacement: { policy: merge }",
    "queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }",
  ],
  stored: [{_id: 1, locked: true, tlocked: new Date(4200000000000), try: 1}],
  steps: [{
    command: {
      update: "c",
      updates: [{q: {_id: 1, try: 1}, u: {locked: false, tlocked: new Date(4200000000000), try: 1, done: true}}],
    },
    reply: {n: 1, nModified: 1, ok: 1},
  }],
  after: [{_id: 1, locked: false, tlocked: new Date(4200000000000), try: 1, done: true}],
},
{
  name: "queue: $mul of a job without a lock",
  must: "stores 0, which is free",
  rules: ["queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }"],
  stored: [{_id: 3}],
  steps: [{command: {update: "c", updates: [{q: {}, u: {$mul: {locked: 1}}}]}, reply: {n: 1, nModified: 1, ok: 1}}],
  after: [{_id: 3, locked: 0}],
},
]
