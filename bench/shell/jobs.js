// A job queue. Every worker inserts a job, takes the first new one, marks it as its own, and completes it.
//
// The failure: a new job may have been read by two workers. Both take it, and the mail is sent twice.

/* global workload, ObjectId */

function takeJob(db, token) {
  return db.queue.findOneAndUpdate(
    { state: 'new' },
    { $set: { locked: true, by: token }, $inc: { taken: 1 } },
    { returnDocument: 'after' },
  );
}

workload('jobs', {
  setup(db) {
    db.queue.createIndex({ state: 1 });
    db.queue.createIndex({ by: 1 });
    db.queue.deleteMany({});
  },

  traffic(db, { rounds }) {
    for (let i = 0; i < rounds; i += 1) {
      db.queue.insertOne({ kind: 'mail', state: 'new', locked: false, try: 0, taken: 0 });
      const token = ObjectId();
      const job = takeJob(db, token);
      if (job) db.queue.updateOne({ by: token, try: job.try }, { $set: { state: 'done', locked: false } });
    }
    return { operations: rounds };
  },

  check(db) {
    return { 'jobs taken more than once': db.queue.countDocuments({ taken: { $gt: 1 } }) };
  },
});
