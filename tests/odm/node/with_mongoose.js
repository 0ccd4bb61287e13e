// Mongoose's save().

const mongoose = require("mongoose");

const { run } = require("./scenario.js");

const FIELDS = { _id: mongoose.Schema.Types.Mixed, name: String, qty: Number, note: String };

const schemas = {
  plain: {},
  optimistic: { optimisticConcurrency: true },
  timestamps: { timestamps: true },
};

function modelOf(connection, name, options) {
  const collection = `mongoose_${name}`;
  const Entity = connection.model(name, new mongoose.Schema(FIELDS, { collection, autoCreate: false, autoIndex: false, ...options }));
  const make = (key = new mongoose.Types.ObjectId(), fields) => new Entity({ _id: key, ...fields });
  return {
    name,
    collection,
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
  const models = Object.entries(schemas).map(([name, options]) => modelOf(connection, name, options));
  return { models, close: () => connection.close() };
});
