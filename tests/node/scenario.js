// A scenario of MongoDB's driver for Node, as in applications: `node scenario.js URI DATABASE`.
//
// Each step runs on an empty database and returns a result or an error. Each line of output is Extended JSON with the
// result and every server reply that the driver received meanwhile. A direct run and one through docward must print
// the same apart from ids and times.

'use strict';

const { createHash } = require('node:crypto');
const { Readable } = require('node:stream');
const { text, buffer } = require('node:stream/consumers');
const { BSON, GridFSBucket, MongoClient } = require('mongodb');

const APP_NAME = 'node-scenario';
const LARGE = 100_000; // only the digest of larger batches is printed
const [uri, databaseName] = process.argv.slice(2);

const people = async (db, count = 5) => {
  const documents = Array.from({ length: count }, (_, i) => ({ _id: i, name: `name${i}`, age: 20 + i, tags: ['a', `t${i}`] }));
  await db.collection('people').insertMany(documents);
  return db.collection('people');
};

const contents = (collection) => collection.find().sort({ _id: 1 }).toArray();

// Makes the server fail the next `times` commands with these names, from this scenario's client only.
const failNext = (client, times, data) =>
  client.db('admin').command({ configureFailPoint: 'failCommand', mode: { times }, data: { appName: process.env.FAILPOINT_APP_NAME || APP_NAME, ...data } });

const take = async (stream, count) => {
  const changes = [];
  while (changes.length < count) changes.push(await stream.next());
  return changes;
};

const STEPS = {
  async insert_and_find({ db }) {
    const collection = await people(db);
    return [
      await collection.insertOne({ name: 'Ada', born: new Date(0), notes: null, big: BSON.Long.MAX_VALUE, price: BSON.Decimal128.fromString('1.50') }),
      await collection.find({ age: { $gt: 21 } }).project({ name: 1 }).sort({ age: -1 }).limit(2).toArray(),
      await collection.findOne({ _id: 9 }),
      await collection.countDocuments({ tags: 'a' }),
      await collection.estimatedDocumentCount(),
      await collection.distinct('name', { age: { $lt: 22 } }),
    ];
  },

  async update_replace_delete({ db }) {
    const collection = await people(db);
    return [
      await collection.updateOne({ _id: 1 }, { $set: { name: 'Ada' }, $inc: { age: 1 } }),
      await collection.updateMany({}, [{ $set: { double: { $multiply: ['$age', 2] } } }]),
      await collection.updateOne({ _id: 7 }, { $setOnInsert: { name: 'Bob' } }, { upsert: true }),
      await collection.updateOne({ _id: 0 }, { $set: { 'tags.$[t]': 'b' } }, { arrayFilters: [{ t: 'a' }] }),
      await collection.replaceOne({ _id: 2 }, { name: 'whole' }),
      await collection.findOneAndUpdate({ _id: 3 }, { $push: { tags: 'x' } }, { returnDocument: 'after', includeResultMetadata: true }),
      await collection.findOneAndReplace({ _id: 4 }, { name: 'other' }),
      await collection.findOneAndDelete({ _id: 0 }),
      await collection.deleteOne({ _id: 1 }),
      await collection.deleteMany({ age: { $gt: 22 } }),
      await contents(collection),
    ];
  },

  async duplicate_key({ db }) {
    const collection = await people(db);
    await collection.insertOne({ _id: 1 });
  },

  async failed_validation({ db }) {
    const collection = await db.createCollection('checked', { validator: { n: { $gte: 0 } } });
    await collection.insertOne({ n: -1 });
  },

  async ordered_bulk_write({ db }) {
    const collection = await people(db);
    await collection.bulkWrite([
      { insertOne: { document: { _id: 10 } } },
      { updateOne: { filter: { _id: 1 }, update: { $set: { a: 1 } } } },
      { insertOne: { document: { _id: 10 } } },
      { deleteMany: { filter: {} } },
    ]);
  },

  async unordered_bulk_write({ db }) {
    const collection = await people(db);
    const operations = [
      { insertOne: { document: { _id: 1 } } },
      { replaceOne: { filter: { _id: 20 }, replacement: { a: 1 }, upsert: true } },
      { updateMany: { filter: {}, update: { $inc: { age: 1 } } } },
      { insertOne: { document: { _id: 2 } } },
      { deleteOne: { filter: { _id: 3 } } },
    ];
    try {
      await collection.bulkWrite(operations, { ordered: false });
    } catch (error) {
      return [failure(error), await contents(collection)];
    }
  },

  async bulk_write_of_more_than_one_message({ db }) {
    const collection = db.collection('many');
    const filler = 'x'.repeat(100);
    const operations = Array.from({ length: 100_001 }, (_, i) => ({ insertOne: { document: { _id: i, filler } } }));
    const result = await collection.bulkWrite(operations, { ordered: false });
    return [result.insertedCount, await collection.countDocuments()];
  },

  async with_transaction({ client, db }) {
    const collection = await people(db);
    const result = await client.withSession((session) =>
      session.withTransaction(async () => {
        await collection.insertOne({ _id: 'new' }, { session });
        await collection.updateOne({ _id: 1 }, { $set: { age: 0 } }, { session });
        return [await collection.countDocuments({}, { session }), await collection.countDocuments()];
      }),
    );
    return [result, await contents(collection)];
  },

  async with_transaction_begun_again({ client, db }) {
    const collection = await people(db);
    let attempts = 0;
    await failNext(client, 1, { failCommands: ['commitTransaction'], errorCode: 251, errorLabels: ['TransientTransactionError'] });
    await client.withSession((session) =>
      session.withTransaction(async () => {
        attempts += 1;
        await collection.updateOne({ _id: 1 }, { $inc: { age: 1 } }, { session });
      }),
    );
    return [attempts, await collection.findOne({ _id: 1 })];
  },

  async commit_whose_reply_is_lost({ client, db }) {
    const collection = await people(db);
    await failNext(client, 1, { failCommands: ['commitTransaction'], closeConnection: true });
    await client.withSession((session) => session.withTransaction(() => collection.deleteOne({ _id: 1 }, { session })));
    return contents(collection);
  },

  async aborted_transaction({ client, db }) {
    const collection = await people(db);
    const session = client.startSession();
    session.startTransaction();
    await collection.deleteMany({}, { session });
    await session.abortTransaction();
    await session.endSession();
    return contents(collection);
  },

  async error_in_a_transaction({ client, db }) {
    const collection = await people(db);
    const errors = [];
    const session = client.startSession();
    session.startTransaction();
    await collection.insertOne({ _id: 1 }, { session }).catch((error) => errors.push(failure(error)));
    await collection.insertOne({ _id: 30 }, { session }).catch((error) => errors.push(failure(error)));
    await session.endSession();
    return [errors, await collection.countDocuments()];
  },

  async write_conflict({ client, db }) {
    const collection = await people(db);
    const [first, second] = [client.startSession(), client.startSession()];
    first.startTransaction();
    second.startTransaction();
    await collection.updateOne({ _id: 1 }, { $set: { by: 1 } }, { session: first });
    const error = await collection.updateOne({ _id: 1 }, { $set: { by: 2 } }, { session: second }).catch(failure);
    await first.commitTransaction();
    await Promise.all([first.endSession(), second.endSession()]);
    return [error, await collection.findOne({ _id: 1 })];
  },

  async retried_write_and_read({ client, db }) {
    const collection = await people(db);
    await failNext(client, 1, { failCommands: ['insert'], closeConnection: true });
    const inserted = await collection.insertOne({ _id: 'again' });
    await failNext(client, 1, { failCommands: ['find'], closeConnection: true });
    return [inserted, await contents(collection)];
  },

  async write_that_fails_twice({ client, db }) {
    const collection = await people(db);
    await failNext(client, 2, { failCommands: ['update'], errorCode: 91, errorLabels: ['RetryableWriteError'] });
    await collection.updateOne({ _id: 1 }, { $inc: { age: 1 } });
  },

  async causal_and_snapshot_sessions({ client, db }) {
    const collection = await people(db);
    const causal = await client.withSession({ causalConsistency: true }, async (session) => {
      await collection.insertOne({ _id: 40 }, { session, writeConcern: { w: 'majority' } });
      return collection.findOne({ _id: 40 }, { session, readConcern: { level: 'majority' } });
    });
    const snapshot = await client.withSession({ snapshot: true }, async (session) => {
      const before = await collection.countDocuments({}, { session });
      await collection.deleteMany({});
      return [before, await collection.countDocuments({}, { session })];
    });
    return [causal, snapshot];
  },

  async change_stream_of_a_collection({ db }) {
    const collection = await people(db, 2);
    const stream = collection.watch([], { fullDocument: 'updateLookup', maxAwaitTimeMS: 100 });
    await stream.tryNext(); // opens it
    await collection.insertOne({ _id: 10 });
    await collection.updateOne({ _id: 1 }, { $set: { name: 'Ada' } });
    await collection.replaceOne({ _id: 0 }, { new: true });
    await collection.deleteOne({ _id: 0 });
    await collection.drop();
    const changes = await take(stream, 6);
    return [changes, stream.closed, await stream.tryNext().catch(failure)];
  },

  async change_stream_resumed({ client, db }) {
    const collection = await people(db, 1);
    const first = db.watch([{ $match: { operationType: 'insert' } }], { maxAwaitTimeMS: 100 });
    await first.tryNext();
    await collection.insertMany([{ _id: 1 }, { _id: 2 }, { _id: 3 }]);
    const change = await first.next();
    await first.close();
    const second = db.watch([{ $match: { operationType: 'insert' } }], { maxAwaitTimeMS: 100, resumeAfter: change._id });
    await failNext(client, 1, { failCommands: ['getMore'], closeConnection: true });
    const rest = await take(second, 2);
    await second.close();
    return [change, rest];
  },

  async change_stream_as_events({ client, db }) {
    const collection = await people(db, 1);
    const stream = client.watch([{ $match: { 'ns.db': db.databaseName } }], { maxAwaitTimeMS: 100 });
    const seen = [];
    const done = new Promise((resolve, reject) => {
      stream.on('error', reject);
      stream.on('change', (change) => seen.push(change) === 2 && resolve());
    });
    await new Promise((resolve) => stream.once('resumeTokenChanged', resolve)); // it is open
    await collection.insertOne({ _id: 1 });
    await collection.insertOne({ _id: 2 });
    await done;
    await stream.close();
    return seen;
  },

  async grid_fs({ db }) {
    const bucket = new GridFSBucket(db, { bucketName: 'files', chunkSizeBytes: 100_000 });
    const data = Buffer.alloc(1_234_567, 'docward ');
    const upload = bucket.openUploadStream('data.bin', { metadata: { of: 'docward' } });
    await new Promise((resolve, reject) => Readable.from([data.subarray(0, 700_000), data.subarray(700_000)]).pipe(upload).on('finish', resolve).on('error', reject));
    const whole = await buffer(bucket.openDownloadStream(upload.id));
    const part = await text(bucket.openDownloadStreamByName('data.bin', { start: 99_996, end: 100_012 }));
    await bucket.rename(upload.id, 'renamed.bin');
    const files = await bucket.find().toArray();
    await bucket.delete(upload.id);
    const gone = await buffer(bucket.openDownloadStream(upload.id)).catch((error) => error.message.replace(/[0-9a-f]{24}/, 'ID'));
    return [whole.equals(data), part, files, gone, await db.collection('files.chunks').countDocuments()];
  },

  async tailable_cursor({ db }) {
    const log = await db.createCollection('log', { capped: true, size: 100_000 });
    await log.insertMany([{ _id: 1 }, { _id: 2 }]);
    const cursor = log.find({}, { tailable: true, awaitData: true, maxAwaitTimeMS: 100 });
    const seen = [await cursor.next(), await cursor.next(), await cursor.tryNext()];
    const waiting = cursor.next();
    await log.insertOne({ _id: 3 });
    seen.push(await waiting);
    await cursor.close();
    return seen;
  },

  async explain({ db }) {
    const collection = await people(db);
    await collection.createIndex({ age: 1 });
    return [
      await collection.find({ age: { $gt: 21 } }).explain('executionStats'),
      await collection.aggregate([{ $group: { _id: '$age', n: { $sum: 1 } } }]).explain('queryPlanner'),
      await collection.deleteMany({ age: 21 }, { explain: 'queryPlanner' }).catch(failure),
      await collection.countDocuments(),
    ];
  },

  async large_results({ db }) {
    const collection = db.collection('large');
    const documents = Array.from({ length: 10_000 }, (_, i) => ({ _id: i, filler: String(i).padStart(1000, '.') }));
    await collection.insertMany(documents);
    await collection.insertOne({ _id: -1, text: 'x'.repeat(16_000_000) });
    const read = async (options) => {
      const hash = createHash('sha256');
      let count = 0;
      for await (const document of collection.find({}, options).sort({ _id: 1 })) {
        hash.update(BSON.serialize(document));
        count += 1;
      }
      return [count, hash.digest('hex')];
    };
    return [await read({}), await read({ batchSize: 777 }), await read({ skip: 5000, limit: 2000 })];
  },

  async abandoned_cursors({ db }) {
    const collection = await people(db, 50);
    const cursor = collection.find({}, { batchSize: 10 }).sort({ _id: 1 });
    const first = await cursor.next();
    await db.command({ killCursors: 'people', cursors: [cursor.id] });
    const error = await cursor.toArray().catch((error) => [error.name, error.code]);
    for await (const document of collection.find({}, { batchSize: 2 })) {
      if (document._id === 3) break; // the driver kills its cursor
    }
    return [first, error];
  },

  async unacknowledged_writes({ db, observer }) {
    await people(db);
    const collection = db.collection('people', { writeConcern: { w: 0 } });
    const results = [
      await collection.insertOne({ _id: 1 }), // an unacknowledged duplicate
      await collection.insertMany([{ _id: 50 }, { _id: 51 }]),
      await collection.updateMany({}, { $set: { seen: true } }),
      await collection.deleteOne({ _id: 0 }),
      await collection.bulkWrite([{ insertOne: { document: { _id: 60 } } }, { deleteOne: { filter: { _id: 2 } } }]),
    ].map(({ acknowledged, insertedCount }) => [acknowledged, insertedCount]);
    // They may use several connections and arrive in any order.
    const stored = async () => (await contents(observer.collection('people'))).map(({ _id }) => _id);
    while ((await stored()).join() !== '1,3,4,50,51,60');
    return [results, await stored()];
  },

  async aggregation({ db }) {
    const collection = await people(db);
    return [
      await collection.aggregate([{ $unwind: '$tags' }, { $group: { _id: '$tags', n: { $sum: 1 } } }, { $sort: { _id: 1 } }]).toArray(),
      await collection.aggregate([{ $match: { _id: { $lt: 2 } } }, { $out: 'copy' }]).toArray(),
      await collection.aggregate([{ $set: { merged: true } }, { $merge: { into: 'copy', whenMatched: 'merge' } }]).toArray(),
      await contents(db.collection('copy')),
    ];
  },

  async collections_and_indexes({ db }) {
    const collection = await people(db);
    await db.createCollection('views', { viewOn: 'people', pipeline: [{ $project: { name: 1 } }] });
    await db.createCollection('series', { timeseries: { timeField: 'at' } });
    await db.collection('series').insertOne({ at: new Date(0), n: 1 });
    return [
      await collection.createIndexes([{ key: { name: 1 }, unique: true }, { key: { age: -1 }, name: 'by age' }]),
      await collection.listIndexes().toArray(),
      await collection.dropIndex('by age'),
      (await db.listCollections({}, { nameOnly: true }).toArray()).map(({ name }) => name).sort(),
      await db.collection('views').findOne({ _id: 1 }),
      await db.collection('series').countDocuments(),
      await (await collection.rename('persons')).countDocuments(),
      await db.collection('persons').drop(),
    ];
  },

  async options_and_errors_of_commands({ client, db }) {
    const collection = await people(db);
    await failNext(client, 1, { failCommands: ['find'], errorCode: 50 });
    return [
      await collection.find({ name: 'NAME1' }).collation({ locale: 'en', strength: 2 }).comment('a comment').hint({ _id: 1 }).toArray().catch(failure),
      await collection.find({ name: 'NAME1' }).collation({ locale: 'en', strength: 2 }).comment('a comment').hint({ _id: 1 }).toArray(),
      await collection.find({ $bad: 1 }).toArray().catch(failure),
      await db.command({ noSuchCommand: 1 }).catch(failure),
      await collection.updateOne({ _id: 1 }, { $set: { _id: 2 } }).catch(failure),
      await client.bulkWrite([{ name: 'insertOne', namespace: `${db.databaseName}.people`, document: {} }]).catch(failure),
    ];
  },

  async two_hundred_at_once({ db, observer }) {
    await people(db, 200);
    return Promise.all(Array.from({ length: 200 }, (_, i) => observer.collection('people').findOne({ _id: i })));
  },

  async what_the_driver_knows_of_the_servers({ client }) {
    const { type, setName, servers } = client.topology.description;
    const known = [...servers.values()].map(({ address, type, hosts, me, primary }) => ({ address, type, hosts, me, primary }));
    return { type, setName, known };
  },
};

// Stores replies as the driver received them. Replies of waiting cursors, and of change streams, are merged, because
// their number depends on timing.
class Recorder {
  constructor(client) {
    this.replies = [];
    this.waiting = new Set();
    client.on('commandStarted', ({ requestId, commandName, command }) => {
      const waits = commandName === 'getMore' && command.maxTimeMS !== undefined;
      if (waits || isOfChangeStream(commandName, command)) this.waiting.add(requestId);
    });
    client.on('commandSucceeded', ({ requestId, commandName, reply }) => {
      const waited = this.waiting.delete(requestId);
      if (waited && commandName === 'aggregate') CHANGE_STREAMS.add(String(reply.cursor.id));
      if (waited) return;
      this.replies.push([commandName, comparable(commandName, reply)]);
    });
    client.on('commandFailed', ({ requestId, commandName, failure: error }) => {
      if (!this.waiting.delete(requestId)) this.replies.push([commandName, failure(error)]);
    });
  }

  take() {
    return this.replies.splice(0);
  }
}

const CHANGE_STREAMS = new Set();

// A change stream's cursor is known from the reply to its aggregate, which precedes any getMore on it.
function isOfChangeStream(commandName, command) {
  if (commandName === 'aggregate') return command.pipeline.some((stage) => stage.$changeStream);
  const cursors = { getMore: [command.getMore], killCursors: command.cursors }[commandName] ?? [];
  return cursors.some((cursor) => CHANGE_STREAMS.has(String(cursor)));
}

function comparable(commandName, reply) {
  // The other fields count all uses of the failpoint since mongod started.
  if (commandName === 'configureFailPoint') return reply.ok;
  // In the order of a hash table.
  if (commandName === 'listCollections') return reply.cursor.firstBatch.map(({ name }) => name).sort();
  const batch = reply.cursor?.firstBatch ?? reply.cursor?.nextBatch ?? [];
  if (BSON.calculateObjectSize(batch) < LARGE) return reply;
  const shown = ([name, value]) => [name, value?._bsontype === 'ObjectId' ? 'id' : value];
  const content = batch.map((document) => Object.entries(document).map(shown));
  return [batch.length, createHash('sha256').update(BSON.serialize({ content })).digest('hex')];
}

// All error properties that an application can read, except texts about a lost connection.
function failure(error) {
  if (!(error instanceof Error)) throw error;
  const { name, message, code, codeName, errorLabels, errInfo, writeErrors, result } = error;
  const lost = name.startsWith('MongoNetwork');
  const writes = [writeErrors ?? []].flat().map(({ index, code, errmsg, errInfo }) => ({ index, code, errmsg, errInfo }));
  const counts = result && { inserted: result.insertedCount, modified: result.modifiedCount, deleted: result.deletedCount, upserted: result.upsertedIds };
  return { name, message: lost ? null : message, code, codeName, errorLabels: [...(errorLabels ?? [])].sort(), errInfo, writes, counts };
}

async function main() {
  const client = new MongoClient(uri, { appName: APP_NAME, monitorCommands: true, heartbeatFrequencyMS: 500 });
  const recorder = new Recorder(client);
  const db = client.db(databaseName);
  // A client without recording, for commands whose number varies.
  const unrecorded = new MongoClient(uri);
  const observer = unrecorded.db(databaseName);
  for (const [step, run] of Object.entries(STEPS)) {
    await db.dropDatabase();
    recorder.take();
    const outcome = await run({ client, db, observer }).then(
      (result) => ({ result }),
      (error) => ({ error: error.name.startsWith('Mongo') ? failure(error) : String(error.stack) }),
    );
    console.log(BSON.EJSON.stringify({ step, outcome: plain(outcome), replies: plain(recorder.take()) }, { relaxed: false }));
  }
  await db.dropDatabase();
  await Promise.all([client.close(), unrecorded.close()]);
}

// Results of writes are class instances; only their own fields are compared.
function plain(value) {
  if (value?.constructor?.name?.endsWith('BulkWriteResult')) {
    const { insertedCount, matchedCount, modifiedCount, deletedCount, upsertedCount, upsertedIds, insertedIds } = value;
    return { insertedCount, matchedCount, modifiedCount, deletedCount, upsertedCount, upsertedIds, insertedIds };
  }
  if (Array.isArray(value)) return value.map(plain);
  if (value && Object.getPrototypeOf(value) === Object.prototype) {
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, plain(each)]));
  }
  return value;
}

main();
