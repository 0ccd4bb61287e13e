// The common part of the ODM programs: the same steps for each model, with one line of Extended JSON per step.
//
// A model has `name`, `keyOf(step)` if its keys cannot be arbitrary text, `collection`, `key` (the entity's field
// with the document's `_id`), `create(key, fields)`, `make(key, fields)`, `read(key)`, `save(entity)` and
// `remove(entity)`, and optional `more` steps. `increments` is false if no other application may increment `qty`.
// `create` stores a new entity, `make` only creates the object; without a key the ODM generates one. The other
// application in the steps is the driver itself, on the same connection string. The arguments are the connection
// string, the database's name, and `race` for the steps whose output differs from run to run.

const { BSON, MongoClient, ObjectId } = require("mongodb");

async function run(connect) {
  const [uri, database, ...also] = process.argv.slice(2);
    const client = await MongoClient.connect(uri);
  const odm = await connect(uri, database);
  for (const model of odm.models) {
    const collection = client.db(database).collection(model.collection);
    const mayRace = also.includes("race") && model.increments !== false;
    for (const [name, step] of Object.entries({ ...steps, ...(mayRace && { race }), ...model.more })) {
      await client.db(database).collection("steps").findOne({ _id: `${model.name} ${name}` }); // for the profiler
      const own = model.keyOf ? model.keyOf(name) : name;
      const made = { key: own };
      let outcome = { error: null };
      try {
        await step(model, collection, own, made);
      } catch (error) {
        outcome = { error: error.name, text: error.message };
      }
      const stored = await collection.findOne({ _id: sameInThisDriver(made.key) });
      console.log(BSON.EJSON.stringify({ step: `${model.name} ${name}`, ...outcome, stored }, { relaxed: true }));
    }
  }
  await odm.close();
  await client.close();
}

// An ODM with its own driver also has its own ObjectId class, which this driver rejects.
const sameInThisDriver = (key) => (typeof key === "string" ? key : new ObjectId(key.toHexString()));

const FIELDS = { name: "first", qty: 1, note: "n" };

const othersSet = (collection, key) => collection.updateOne({ _id: key }, { $set: { note: "another application's" } });

const INCREMENTS = 50;

// Reads and saves, ignoring errors, until another application has finished its increments, and once more.
async function race(model, collection, key) {
  await model.create(key, FIELDS);
  let done = false;
  const increments = async () => {
    for (let i = 0; i < INCREMENTS; i++) await collection.updateOne({ _id: key }, { $inc: { qty: 1 } });
    done = true;
  };
  const other = increments();
  let last = false;
  while (!last) {
    last = done;
    try {
      const entity = await model.read(key);
      entity.note = last ? "last" : entity.note + "n";
      await model.save(entity);
    } catch (error) {
      if (last) throw error;
    }
  }
  await other;
}

const steps = {
  async first_save_with_generated_key(model, collection, key, made) {
    made.key = (await model.create(undefined, { name: "first", qty: 1 }))[model.key];
  },

  async first_save_with_own_key(model, collection, key) {
    await model.create(key, { name: "first", qty: 1 });
  },

  async save(model, collection, key) {
    await model.create(key, FIELDS);
    const entity = await model.read(key);
    entity.qty = 2;
    await model.save(entity);
  },

  async save_twice(model, collection, key) {
    await model.create(key, FIELDS);
    const entity = await model.read(key);
    for (const qty of [2, 3]) {
      entity.qty = qty;
      await model.save(entity);
    }
  },

  async save_after_another_applications_set(model, collection, key) {
    await model.create(key, FIELDS);
    const entity = await model.read(key);
    await othersSet(collection, key);
    entity.qty = 2;
    await model.save(entity);
  },

  async stale_save(model, collection, key) {
    await model.create(key, FIELDS);
    const first = await model.read(key);
    const second = await model.read(key);
    first.qty = 2;
    await model.save(first);
    second.note = "second";
    await model.save(second);
  },

  async save_after_delete(model, collection, key) {
    await model.create(key, FIELDS);
    const entity = await model.read(key);
    await collection.deleteOne({ _id: key });
    entity.qty = 2;
    await model.save(entity);
  },

  async save_of_what_was_never_there(model, collection, key) {
    await model.save(await model.make(key, { name: "first", qty: 1 }));
  },

  async save_without_a_field(model, collection, key) {
    await model.create(key, FIELDS);
    const entity = await model.read(key);
    entity.note = undefined;
    await model.save(entity);
  },

  async save_with_a_field_it_does_not_know(model, collection, key) {
    await model.create(key, FIELDS);
    await collection.updateOne({ _id: key }, { $set: { added: 1 } });
    const entity = await model.read(key);
    entity.qty = 2;
    await model.save(entity);
  },

  async delete_after_another_applications_set(model, collection, key) {
    await model.create(key, FIELDS);
    const entity = await model.read(key);
    await othersSet(collection, key);
    await model.remove(entity);
  },
};

module.exports = { run };
