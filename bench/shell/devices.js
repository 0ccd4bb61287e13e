// Device states. Every shell gets all readings from a queue that delivers them more than once and in any order,
// writes each to the device's state, and keeps a history.
//
// The failure: a late reading overwrites a newer one, and the state stays stale.

/* global workload */

const DEVICES = 10;
const FIRST = Date.UTC(2026, 0, 1);
const MINUTE = 60000;

/** The order in which a shell gets the readings: different for each shell, the same in every run. */
function shuffled(readings, seed) {
  let state = seed + 1;
  for (let i = readings.length - 1; i > 0; i -= 1) {
    state = (state * 48271) % 2147483647;
    const other = state % (i + 1);
    [readings[i], readings[other]] = [readings[other], readings[i]];
  }
  return readings;
}

workload('devices', {
  setup(db) {
    db.history.createIndex({ device: 1, published_at: 1 });
    db.states.deleteMany({});
    db.history.deleteMany({});
  },

  traffic(db, { worker, rounds }) {
    const readings = [];
    for (let i = 0; i < rounds; i += 1) {
      const nth = Math.floor(i / DEVICES);
      readings.push({ device: i % DEVICES, temperature: nth, published_at: new Date(FIRST + nth * MINUTE) });
    }
    for (const { device, temperature, published_at } of shuffled(readings, worker)) {
      db.states.updateOne({ _id: device }, { $set: { temperature, published_at } }, { upsert: true });
      db.history.insertOne({ device, temperature, published_at });
    }
    return { operations: rounds };
  },

  // The state is written before the history, so it may be newer, but never older.
  check(db) {
    const newest = db.history.aggregate([
      { $group: { _id: '$device', published_at: { $max: '$published_at' } } },
      { $lookup: { from: 'states', localField: '_id', foreignField: '_id', as: 'state' } },
      { $match: { $expr: { $gt: ['$published_at', { $first: '$state.published_at' }] } } },
    ]).toArray();
    return { 'devices in an old state': newest.length };
  },
});
