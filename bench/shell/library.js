// A library. A desk checks that a copy is available, then decrements the count and records the reader. Now and then
// the cellar removes a damaged copy without a record.
//
// The failure: two desks see the last copy and both lend it, so the count drops below zero; and copies are missing
// without a record.

/* global workload, ObjectId */

const BOOKS = 4;
const COPIES = 3;
const REFUSED = 121;

function lend(db, _id, record) {
  const book = db.books.findOne({ _id });
  if (book.available < 1) return false;
  const result = db.books.updateOne({ _id }, { $inc: { available: -1 }, $push: { checkout: { _id: record, by: 'a reader' } } });
  return result.modifiedCount === 1;
}

function takeBack(db, _id, record) {
  db.books.updateOne({ _id, 'checkout._id': record }, { $inc: { available: 1 }, $pull: { checkout: { _id: record } } });
}

function countOutDamaged(db, _id) {
  try {
    db.books.updateOne({ _id }, { $inc: { available: -1 } });
  } catch (error) {
    if (error.code !== REFUSED) throw error;
  }
}

workload('library', {
  setup(db) {
    db.books.deleteMany({});
    const books = [];
    for (let i = 0; i < BOOKS; i += 1) books.push({ _id: i, title: `Volume ${i}`, copies: COPIES, available: COPIES, checkout: [] });
    db.books.insertMany(books);
  },

  traffic(db, { worker, rounds }) {
    for (let i = 0; i < rounds; i += 1) {
      const book = i % BOOKS;
      const record = ObjectId();
      const lent = lend(db, book, record);
      if (lent && i % 3 !== 0) takeBack(db, book, record);
      if (worker === 0 && i % 10 === 9) countOutDamaged(db, book);
    }
    return { operations: rounds };
  },

  check(db) {
    const records = { $add: ['$available', { $size: '$checkout' }] };
    return {
      'books with copies below zero': db.books.countDocuments({ available: { $lt: 0 } }),
      'books whose copies and records disagree': db.books.countDocuments({ $expr: { $ne: ['$copies', records] } }),
    };
  },
});
