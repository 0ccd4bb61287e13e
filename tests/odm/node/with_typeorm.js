// TypeORM's save().

const { createHash } = require("node:crypto");

require("reflect-metadata");
const { ObjectId } = require("mongodb");
const { DataSource, EntitySchema } = require("typeorm");

const { run } = require("./scenario.js");

const FIELDS = { name: { type: String }, qty: { type: Number }, note: { type: String, nullable: true } };

const schema = (name, more) =>
  new EntitySchema({ name, tableName: `typeorm_${name}`, columns: { _id: { type: String, primary: true, objectId: true, generated: true }, ...FIELDS, ...more } });

// TypeORM leaves both to the database, but MongoDB has neither: it sends the version that the entity has.
const entities = [
  schema("plain"),
  schema("version_column", { version: { type: Number, version: true } }),
  schema("versioned", { version: { type: Number } }),
];

function modelOf(source, name, initial) {
  const repository = source.getMongoRepository(name);
  const make = (_id, fields) => repository.create({ ...(_id && { _id }), ...initial, ...fields });
  return {
    name,
    collection: `typeorm_${name}`,
    key: "_id",
    // It does not find keys other than an ObjectId, and inserts the document again.
    keyOf: (step) => new ObjectId(createHash("sha256").update(step).digest().subarray(0, 12)),
    make,
    create: (key, fields) => repository.save(make(key, fields)),
    read: (key) => repository.findOneBy({ _id: key }),
    save: (entity) => repository.save(entity),
    remove: (entity) => repository.remove(entity),
  };
}

run(async (uri, database) => {
  // It ignores a database name given separately from a connection string.
  const source = await new DataSource({ type: "mongodb", url: uri.replace("/?", `/${database}?`), entities }).initialize();
  return { models: [modelOf(source, "plain"), modelOf(source, "version_column"), modelOf(source, "versioned", { version: 1 })], close: () => source.destroy() };
});
