// MikroORM's flush().

const { EntitySchema, MikroORM, ObjectId } = require("@mikro-orm/mongodb");

const { run } = require("./scenario.js");

class Plain {}
class Versioned {}

const FIELDS = { name: { type: "string" }, qty: { type: "number" }, note: { type: "string", nullable: true } };

const schema = (entity, name, more) =>
  new EntitySchema({ class: entity, collection: `mikro_orm_${name}`, properties: { _id: { type: "unknown", primary: true }, ...FIELDS, ...more } });

const models = { plain: Plain, versioned: Versioned };

const entities = [schema(Plain, "plain"), schema(Versioned, "versioned", { version: { type: "number", version: true } })];

function modelOf(orm, name) {
  const Entity = models[name];
  const managers = new WeakMap();
  const made = (em, entity) => {
    managers.set(entity, em);
    return entity;
  };
  const make = (key = new ObjectId(), fields) => {
    const em = orm.em.fork();
    return made(em, em.create(Entity, { _id: key, ...fields }));
  };
  const flush = async (entity) => {
    await managers.get(entity).flush();
    return entity;
  };
  async function save_of_two_entities(model, collection, key) {
    await model.create(key, { name: "first", qty: 1, note: "n" });
    await model.create(`${key}_more`, { name: "first", qty: 1, note: "n" });
    const em = orm.em.fork();
    for (const entity of await em.find(Entity, [key, `${key}_more`])) entity.qty = 2;
    await em.flush();
  }

  return {
    name,
    collection: `mikro_orm_${name}`,
    more: { save_of_two_entities },
    key: "_id",
    make,
    create: (key, fields) => flush(make(key, fields)),
    async read(key) {
      const em = orm.em.fork();
      return made(em, await em.findOneOrFail(Entity, key));
    },
    save: flush,
    remove: (entity) => managers.get(entity).remove(entity).flush(),
  };
}

run(async (clientUrl, dbName) => {
  const orm = await MikroORM.init({ clientUrl, dbName, entities, ensureIndexes: false, implicitTransactions: false });
  return { models: Object.keys(models).map((name) => modelOf(orm, name)), close: () => orm.close() };
});
