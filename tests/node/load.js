// Node's part of tests/python/drains.py: works until standard input ends, then prints the failures of each kind of
// operation. `node load.js URI DATABASE`

'use strict';

const { setTimeout: sleep } = require('node:timers/promises');
const { text } = require('node:stream/consumers');
const { MongoClient } = require('mongodb');

const WORKERS = { insert: 2, read: 1, cursor: 2, transaction: 4, unretried: 1 };
const THINKING = 50; // milliseconds between two statements of a transaction
const [uri, database] = process.argv.slice(2);
const client = new MongoClient(uri, { appName: 'drain-node' });
const db = client.db(database);
const many = db.collection('many');
const committed = db.collection('committed');

const WORK = {
  insert: () => db.collection('inserted').insertOne({ n: 1 }),
  async read() {
    await many.find({ _id: { $lt: 10 } }).toArray();
    await many.aggregate([{ $match: { _id: { $lt: 5 } } }]).toArray();
  },
  async cursor() {
    const found = await many.find({}, { batchSize: 25 }).toArray();
    if (found.length !== 200) throw new Error(`found ${found.length}`);
  },
  transaction: () =>
    client.withSession((session) =>
      session.withTransaction(async () => {
        for (const part of [1, 2]) {
          await committed.insertOne({ part }, { session });
          await sleep(THINKING);
        }
      }),
    ),
  // Drivers do not retry it.
  unretried: () => many.updateMany({ _id: { $lt: 3 } }, { $inc: { n: 1 } }),
};

const main = async () => {
  const done = {};
  const failures = {};
  const texts = [];
  const longest = {}; // seconds
  let stopped = false;
  const repeat = async (name) => {
    while (!stopped) {
      const began = performance.now();
      try {
        await WORK[name]();
        done[name] = (done[name] || 0) + 1;
      } catch (error) {
        failures[name] = (failures[name] || 0) + 1;
        texts.push(`${name}: ${error.name}: ${error.message}`.slice(0, 300));
        await sleep(1);
      }
      longest[name] = Math.max(longest[name] || 0, (performance.now() - began) / 1000);
    }
  };
  const workers = Object.entries(WORKERS).flatMap(([name, count]) => Array.from({ length: count }, () => repeat(name)));
  while (!Object.keys(WORKERS).every((name) => done[name])) await sleep(10);
  console.log(JSON.stringify({ working: true }));
  await text(process.stdin);
  stopped = true;
  await Promise.all(workers);
  const stored = [await db.collection('inserted').countDocuments(), await committed.countDocuments()];
  console.log(JSON.stringify({ done, failures, texts: texts.slice(0, 200), longest, stored }));
  await client.close();
};

main();
