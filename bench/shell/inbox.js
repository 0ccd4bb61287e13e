// Inboxes. Every message is pushed to its owner's array.
//
// The failure: the document grows with every message, up to 16 MiB, and every push rewrites a larger one.

/* global workload, ObjectId */

const OWNERS = ['ann', 'joe'];
const LIMIT = 20; // as in inbox.yaml

workload('inbox', {
  setup(db) {
    db.buckets.createIndex({ owner: 1, count: 1 });
    db.buckets.deleteMany({});
  },

  traffic(db, { worker, rounds }) {
    let pushed = 0;
    for (let i = 0; i < rounds; i += 1) {
      const message = { _id: ObjectId(), from: `shell ${worker}`, text: 'See you at the fountain.' };
      const result = db.buckets.updateOne({ owner: OWNERS[i % OWNERS.length] }, { $push: { messages: message } }, { upsert: true });
      pushed += result.modifiedCount + result.upsertedCount;
    }
    return { operations: rounds, changes: { buckets: pushed } };
  },

  check(db, done) {
    const size = { $size: '$messages' };
    const groups = db.buckets.aggregate([
      { $unwind: '$messages' },
      { $group: { _id: '$messages._id', times: { $sum: 1 } } },
      { $group: { _id: null, messages: { $sum: 1 }, stored: { $sum: '$times' } } },
    ], { allowDiskUse: true }).toArray();
    const { messages = 0, stored = 0 } = groups[0] || {};
    return {
      'messages in two places': stored - messages,
      'messages that are lost': Math.abs(done.buckets - messages),
      'buckets over the limit': db.buckets.countDocuments({ $expr: { $gt: [size, LIMIT] } }),
      'buckets with a wrong count': db.buckets.countDocuments({ $expr: { $ne: [size, '$count'] } }),
    };
  },
});
