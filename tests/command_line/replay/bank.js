// A bank: transfers in transactions, of which some are aborted, statements that are read in small batches, and at the
// end a save of a whole document. Each worker has accounts of its own, so the stored documents do not depend on the
// order of the workers. PHASE=setup fills the collections.

/* global db, process, sleep */

const bank = db.getSiblingDB('bank');
const worker = Number(process.env.WORKER || 0);
const first = worker * 4;

if (process.env.PHASE === 'setup') {
  bank.dropDatabase();
  bank.accounts.createIndex({ owner: 1 });
  bank.accounts.insertMany(Array.from({ length: 8 }, (_, id) => ({ _id: id, owner: `o${id}`, balance: 1000 })));
  bank.createCollection('transfers');
} else {
  const session = db.getMongo().startSession();
  const own = session.getDatabase('bank');
  for (let round = 0; round < 20; round += 1) {
    const [from, to] = [first + (round % 4), first + ((round + 1) % 4)];
    session.startTransaction();
    own.accounts.updateOne({ _id: from }, { $inc: { balance: -5 } });
    own.accounts.updateOne({ _id: to }, { $inc: { balance: 5 } });
    own.transfers.insertOne({ from, to, amount: 5, at: new Date() });
    if (round % 5 === 4) session.abortTransaction();
    else session.commitTransaction();
    if (round % 4 === 3) {
      bank.transfers.find({ from: { $gte: first, $lt: first + 4 } }).batchSize(2).toArray();
      const cursor = bank.transfers.find({ from: { $gte: first, $lt: first + 4 } }).batchSize(2);
      cursor.next();
      cursor.close();
    }
    sleep(10);
  }
  bank.accounts.replaceOne({ _id: first }, bank.accounts.findOne({ _id: first }));
}
