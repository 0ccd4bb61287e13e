// Mongoose's save().

const mongoose = require("mongoose");

const { run } = require("./scenario.js");

const FIELDS = { _id: mongoose.Schema.Types.Mixed, name: String, qty: Number, note: String, tags: [String], seen: Number };

const MINUTE = 60_000; // milliseconds

const arrays = {
  async save_with_a_push(model, collection, key) {
    await model.create(key, { qty: 1, tags: ["a"] });
    const entity = await model.read(key);
    entity.tags.push("b");
    await model.save(entity);
  },

  async save_with_an_array_element(model, collection, key) {
    await model.create(key, { qty: 1, tags: ["a"] });
    const entity = await model.read(key);
    entity.tags.set(0, "b");
    await model.save(entity);
  },
};

const times = {
  async upsert(model, collection, key) {
    await model.Entity.updateOne({ _id: key }, { $set: { qty: 2 } }, { upsert: true });
  },

  async operators(model, collection, key) {
    await model.create(key, { qty: 1 });
    await model.Entity.findOneAndUpdate({ _id: key }, { $push: { tags: "a" }, $inc: { seen: 1 } }, { upsert: true });
  },

  async save_older_than_another_applications_set(model, collection, key) {
    await model.create(key, { qty: 1 });
    const entity = await model.read(key);
    await collection.updateOne({ _id: key }, { $set: { qty: 9, updatedAt: new Date(Date.now() + MINUTE) } });
    entity.qty = 2;
    await model.save(entity);
  },
};

const schemas = {
  plain: [{}, arrays],
  optimistic: [{ optimisticConcurrency: true }, arrays],
  timestamps: [{ timestamps: true }, times],
};

function modelOf(connection, name, options, more) {
  const collection = `mongoose_${name}`;
  const Entity = connection.model(name, new mongoose.Schema(FIELDS, { collection, autoCreate: false, autoIndex: false, ...options }));
  const make = (key = new mongoose.Types.ObjectId(), fields) => new Entity({ _id: key, ...fields });
  return {
    name,
    collection,
    more,
    increments: name !== "timestamps", // of its fields, which take the newest value
    Entity,
    key: "_id",
    make,
    create: (key, fields) => make(key, fields).save(),
    read: (key) => Entity.findById(key),
    save: (entity) => entity.save(),
    remove: (entity) => entity.deleteOne(),
  };
}

run(async (uri, dbName) => {
  const connection = await mongoose.createConnection(uri, { dbName }).asPromise();
  const models = Object.entries(schemas).map(([name, [options, more]]) => modelOf(connection, name, options, more));
  return { models, close: () => connection.close() };
});
