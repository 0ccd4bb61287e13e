// Mongo shell traffic: runs workloads of this folder by `mongosh URI --file run.js`. Environment variables:
//
//   WORKLOADS        names of workloads, such as shop,jobs
//   PHASE            setup: empty the collections and fill them
//                    traffic: the work of one of several concurrent shells
//                    check: count broken invariants; all zero if they held
//   WORKER, WORKERS  index of this shell, from 0, and number of shells (traffic)
//   ROUNDS           repetitions per shell (traffic)
//   NUMBERS          which side assigns order numbers: application or docward (traffic)
//
// Prints one line of JSON for each workload. Run setup and check directly, and traffic through docward with the rules
// of WORKLOAD.yaml, as `bench/compare/shell/` does.

/* global db, load, print, sleep, process, __dirname */

const workloads = {};

/** A workload registers itself: { setup(db), traffic(db, work), check(db, done) }. Its database has its name. */
function workload(name, steps) {
  workloads[name] = steps;
}

const setting = (name, otherwise) => process.env[name] || otherwise;
const workers = Number(setting('WORKERS', 1));
const work = { worker: Number(setting('WORKER', 0)), rounds: Number(setting('ROUNDS', 20)), numbers: setting('NUMBERS', 'application') };
// The database in which the shells synchronise; it is neither replayed nor protected.
const meeting = db.getSiblingDB('meeting');

/** Waits until all shells have started, because their start times differ. */
function waitForAll(name) {
  const deadline = Date.now() + 60000;
  meeting.present.insertOne({ workload: name });
  while (meeting.present.countDocuments({ workload: name }) < workers) {
    if (Date.now() > deadline) throw new Error(`not all ${workers} shells came to ${name}`);
    sleep(5);
  }
}

/** The number of acknowledged changes, by collection. */
function acknowledged(name) {
  const sum = {};
  for (const { changes } of meeting.acknowledged.find({ workload: name }).toArray()) {
    for (const [collection, count] of Object.entries(changes)) sum[collection] = (sum[collection] || 0) + Number(count);
  }
  return sum;
}

const PHASES = {
  setup(name, own) {
    meeting.present.deleteMany({ workload: name });
    meeting.acknowledged.deleteMany({ workload: name });
    workloads[name].setup(own);
    return {};
  },

  traffic(name, own) {
    waitForAll(name);
    const begun = Date.now();
    const { operations, changes = {} } = workloads[name].traffic(own, work);
    const ended = Date.now();
    meeting.acknowledged.insertOne({ workload: name, changes });
    return { operations, begun, ended };
  },

  check(name, own) {
    return { broken: workloads[name].check(own, acknowledged(name)) };
  },
};

const phase = PHASES[setting('PHASE', 'check')];
for (const name of setting('WORKLOADS', 'shop,library,devices,jobs,inbox').split(',')) {
  load(`${__dirname}/${name}.js`);
  print(JSON.stringify({ workload: name, ...phase(name, db.getSiblingDB(name)) }));
}
