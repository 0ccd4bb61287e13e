// A shop. Every till numbers its orders by max + 1, and saves whole carts that it has read and changed.
//
// The failure: two tills read the same maximum and issue one number twice; two tills save the same cart, and the
// second save erases the first one's items.

/* global workload, ObjectId */

const CARTS = 8;
const WRITE_CONFLICT = 112;

function highestNumber(db) {
  const [last] = db.orders.find({}, { order_no: 1 }).sort({ order_no: -1 }).limit(1).toArray();
  return last ? last.order_no : 0;
}

function placeOrder(db, { worker, numbers }, total) {
  const order = { customer: `customer ${worker}`, total, status: 'new' };
  // The one line that the application omits if docward numbers its orders.
  if (numbers === 'application') order.order_no = highestNumber(db) + 1;
  db.orders.insertOne(order);
}

/** Puts an item in a cart; repeats it if docward reports that another till saved the cart meanwhile. */
function putIntoCart(db, _id, item) {
  for (;;) {
    const cart = db.carts.findOne({ _id });
    cart.items.push(item);
    try {
      return db.carts.replaceOne({ _id }, cart).modifiedCount;
    } catch (error) {
      if (error.code !== WRITE_CONFLICT) throw error;
    }
  }
}

workload('shop', {
  setup(db) {
    db.orders.createIndex({ order_no: 1 });
    db.orders.deleteMany({});
    db.carts.deleteMany({});
    const carts = [];
    for (let i = 0; i < CARTS; i += 1) carts.push({ _id: i, items: [] });
    db.carts.insertMany(carts);
  },

  traffic(db, work) {
    let saved = 0;
    for (let i = 0; i < work.rounds; i += 1) {
      saved += putIntoCart(db, i % CARTS, ObjectId());
      placeOrder(db, work, 100 + i);
    }
    return { operations: 2 * work.rounds, changes: { carts: saved } };
  },

  check(db, done) {
    const groups = db.orders.aggregate([
      { $group: { _id: '$order_no', orders: { $sum: 1 } } },
      { $group: { _id: null, numbers: { $sum: 1 }, orders: { $sum: '$orders' } } },
    ]).toArray();
    const { numbers = 0, orders = 0 } = groups[0] || {};
    const [{ items }] = db.carts.aggregate([{ $group: { _id: null, items: { $sum: { $size: '$items' } } } }]).toArray();
    return { 'orders whose number another has': orders - numbers, 'saved items that are lost': Math.abs(done.carts - items) };
  },
});
