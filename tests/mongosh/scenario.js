// A scenario of mongosh, as used by people and scripts: `mongosh URI/DATABASE --file scenario.js`.
//
// Each step runs on an empty database; its result or error is printed as one line of Extended JSON. A direct run and
// one through docward must print the same apart from ids and times.

/* global db, EJSON, print, sleep */

const APP_NAME = 'mongosh-scenario';

function people(count = 5) {
  const documents = [];
  for (let i = 0; i < count; i += 1) documents.push({ _id: i, name: `name${i}`, age: 20 + i, tags: ['a', `t${i}`] });
  db.people.insertMany(documents);
}

function contents(collection) {
  return collection.find().sort({ _id: 1 }).toArray();
}

function failNext(times, data) {
  db.adminCommand({ configureFailPoint: 'failCommand', mode: { times }, data: { appName: process.env.FAILPOINT_APP_NAME || APP_NAME, ...data } });
}

function take(cursor, count) {
  const seen = [];
  while (seen.length < count) {
    const next = cursor.tryNext();
    if (next) seen.push(next);
  }
  return seen;
}

function failure(error) {
  const writes = [].concat(error.writeErrors || []).map((each) => [each.index, each.code, each.errmsg]);
  return { name: error.name, message: error.message, code: error.code, codeName: error.codeName, writes };
}

const STEPS = {
  crud() {
    people();
    return [
      db.people.insertOne({ _id: 'Ada', n: NumberLong('9007199254740993'), price: NumberDecimal('1.50'), at: ISODate('2020-01-01') }),
      db.people.find({ age: { $gt: 21 } }, { name: 1 }).sort({ age: -1 }).limit(2).toArray(),
      db.people.findOne({ _id: 9 }),
      db.people.countDocuments(),
      db.people.distinct('name'),
      db.people.updateOne({ _id: 1 }, { $set: { name: 'Ada' } }),
      db.people.updateMany({}, [{ $set: { double: { $multiply: ['$age', 2] } } }]),
      db.people.updateOne({ _id: 7 }, { $setOnInsert: { name: 'Bob' } }, { upsert: true }),
      db.people.replaceOne({ _id: 2 }, { name: 'whole' }),
      db.people.findOneAndUpdate({ _id: 3 }, { $push: { tags: 'x' } }, { returnDocument: 'after' }),
      db.people.findOneAndReplace({ _id: 4 }, { name: 'other' }),
      db.people.findAndModify({ query: { _id: 0 }, remove: true }),
      db.people.deleteOne({ _id: 1 }),
      db.people.deleteMany({ age: { $gt: 22 } }),
      contents(db.people),
    ];
  },

  duplicate_key() {
    people();
    db.people.insertOne({ _id: 1 });
  },

  ordered_bulk_write() {
    people();
    db.people.bulkWrite([{ insertOne: { document: { _id: 10 } } }, { insertOne: { document: { _id: 10 } } }, { deleteMany: { filter: {} } }]);
  },

  unordered_bulk_write() {
    people();
    const bulk = db.people.initializeUnorderedBulkOp();
    bulk.insert({ _id: 10 });
    bulk.find({ _id: 1 }).updateOne({ $set: { a: 1 } });
    bulk.find({ _id: 20 }).upsert().replaceOne({ a: 1 });
    bulk.find({ _id: 2 }).deleteOne();
    return [bulk.execute(), contents(db.people)];
  },

  bulk_write_of_many() {
    const documents = [];
    for (let i = 0; i < 100001; i += 1) documents.push({ _id: i });
    return [Object.keys(db.many.insertMany(documents, { ordered: false }).insertedIds).length, db.many.countDocuments()];
  },

  with_transaction() {
    people();
    const session = db.getMongo().startSession();
    session.withTransaction(() => {
      const inside = session.getDatabase(db.getName()).people;
      inside.insertOne({ _id: 'new' });
      inside.updateOne({ _id: 1 }, { $set: { age: 0 } });
    });
    session.endSession();
    return contents(db.people);
  },

  with_transaction_begun_again() {
    people();
    failNext(1, { failCommands: ['commitTransaction'], errorCode: 251, errorLabels: ['TransientTransactionError'] });
    const session = db.getMongo().startSession();
    let attempts = 0;
    session.withTransaction(() => {
      attempts += 1;
      session.getDatabase(db.getName()).people.updateOne({ _id: 1 }, { $inc: { age: 1 } });
    });
    session.endSession();
    return [attempts, db.people.findOne({ _id: 1 })];
  },

  transaction_with_an_error() {
    people();
    const session = db.getMongo().startSession();
    const inside = session.getDatabase(db.getName()).people;
    session.startTransaction();
    inside.deleteOne({ _id: 0 });
    const errors = [];
    try {
      inside.insertOne({ _id: 1 });
    } catch (error) {
      errors.push(failure(error));
    }
    try {
      session.commitTransaction();
    } catch (error) {
      errors.push(failure(error));
    }
    session.endSession();
    return [errors, contents(db.people)];
  },

  retried_write() {
    people();
    failNext(1, { failCommands: ['insert'], closeConnection: true });
    return [db.people.insertOne({ _id: 'again' }), contents(db.people)];
  },

  change_stream() {
    people(2);
    const cursor = db.people.watch([], { fullDocument: 'updateLookup', maxAwaitTimeMS: 100 });
    cursor.tryNext(); // opens it
    db.people.insertOne({ _id: 10 });
    db.people.updateOne({ _id: 1 }, { $set: { name: 'Ada' } });
    db.people.deleteOne({ _id: 0 });
    const changes = take(cursor, 3);
    cursor.close();
    return changes;
  },

  change_stream_of_a_database() {
    people(1);
    const cursor = db.watch([{ $match: { operationType: 'insert' } }], { maxAwaitTimeMS: 100 });
    cursor.tryNext();
    db.people.insertOne({ _id: 1 });
    db.orders.insertOne({ _id: 1 });
    const [change] = take(cursor, 1);
    cursor.close();
    const resumed = db.watch([{ $match: { operationType: 'insert' } }], { maxAwaitTimeMS: 100, resumeAfter: change._id });
    const rest = take(resumed, 1);
    resumed.close();
    return [change, rest];
  },

  // mongosh has no GridFS; these are the commands that the drivers send for it.
  grid_fs() {
    const id = ObjectId();
    const chunks = [];
    for (let n = 0; n < 5; n += 1) chunks.push({ files_id: id, n, data: BinData(0, 'ZG9jd2FyZCA='.repeat(20000)) });
    db.fs.chunks.createIndex({ files_id: 1, n: 1 }, { unique: true });
    db.fs.chunks.insertMany(chunks);
    db.fs.files.insertOne({ _id: id, length: 5 * 160000, chunkSize: 160000, uploadDate: new Date(), filename: 'data.bin' });
    const stored = db.fs.chunks.find({ files_id: id }).sort({ n: 1 }).toArray();
    return [db.fs.files.findOne({ filename: 'data.bin' }), stored.map(({ n, data }) => [n, data.length()]), db.fs.chunks.deleteMany({ files_id: id })];
  },

  tailable_cursor() {
    db.createCollection('log', { capped: true, size: 100000 });
    db.log.insertMany([{ _id: 1 }, { _id: 2 }]);
    const cursor = db.log.find().tailable({ awaitData: true }).maxAwaitTimeMS(100);
    const seen = [cursor.tryNext(), cursor.tryNext(), cursor.tryNext()];
    db.log.insertOne({ _id: 3 });
    seen.push(...take(cursor, 1));
    cursor.close();
    return seen;
  },

  explain() {
    people();
    db.people.createIndex({ age: 1 });
    return [
      db.people.find({ age: { $gt: 21 } }).explain('executionStats'),
      db.people.explain().aggregate([{ $group: { _id: '$age', n: { $sum: 1 } } }]),
      db.runCommand({ explain: { update: 'people', updates: [{ q: { _id: 1 }, u: { $set: { age: 1 } } }] } }),
      contents(db.people),
    ];
  },

  large_results() {
    const documents = [];
    for (let i = 0; i < 5000; i += 1) documents.push({ _id: i, filler: String(i).padStart(5000, '.') });
    db.large.insertMany(documents);
    db.large.insertOne({ _id: -1, text: 'x'.repeat(16000000) });
    const lengths = {};
    for (const size of [0, 333]) {
      const cursor = db.large.find().sort({ _id: 1 });
      if (size) cursor.batchSize(size);
      lengths[size] = cursor.toArray().reduce((sum, each) => sum + (each.text || each.filler).length, 0);
    }
    return [lengths, db.large.find().skip(3000).limit(1500).itcount()];
  },

  unacknowledged_writes() {
    people();
    const none = { writeConcern: { w: 0 } };
    const results = [
      db.people.insertOne({ _id: 1 }, none).acknowledged,
      db.people.insertMany([{ _id: 50 }, { _id: 51 }], none).acknowledged,
      db.people.updateMany({}, { $set: { seen: true } }, none).acknowledged,
      db.people.deleteOne({ _id: 0 }, none).acknowledged,
    ];
    while (db.people.findOne({ _id: 0 })) sleep(10);
    return [results, db.people.countDocuments()];
  },

  aggregation_into_collections() {
    people();
    db.people.aggregate([{ $match: { _id: { $lt: 2 } } }, { $out: 'copy' }]);
    db.people.aggregate([{ $set: { merged: true } }, { $merge: 'copy' }]);
    return [contents(db.copy), db.people.aggregate([{ $sortByCount: '$tags' }, { $match: { count: { $gt: 1 } } }]).toArray()];
  },

  administration() {
    people();
    db.createView('names', 'people', [{ $project: { name: 1 } }]);
    return [
      db.people.createIndex({ name: 1 }, { unique: true }),
      db.people.getIndexes(),
      db.getCollectionNames().sort(),
      db.names.findOne({ _id: 1 }),
      db.people.validate().valid,
      db.people.stats().count,
      db.people.renameCollection('persons'),
      db.persons.drop(),
      db.runCommand({ noSuchCommand: 1, $readPreference: { mode: 'primary' } }).ok,
    ];
  },

  replica_set() {
    const { hosts, primary, me, isWritablePrimary, setName } = db.hello();
    return { hosts, primary, me, isWritablePrimary, setName };
  },

  failed_query() {
    people();
    return db.people.find({ $bad: 1 }).toArray();
  },
};

for (const [step, run] of Object.entries(STEPS)) {
  db.dropDatabase();
  let outcome;
  try {
    outcome = { result: run() };
  } catch (error) {
    outcome = { error: failure(error) };
  }
  print(EJSON.stringify({ step, outcome }, { relaxed: false }));
}
db.dropDatabase();
