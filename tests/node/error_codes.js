// Prints what an application sees of each code: [[code, operation, text, seconds], ...]. The server fails the commands.
"use strict";
const { MongoClient } = require("mongodb");

async function main([uri, codes]) {
  const client = await MongoClient.connect(uri);
  const things = client.db("error_codes").collection("things");
  const operations = {
    insert: () => things.insertOne({ a: 1 }),
    bulk: () => things.bulkWrite([{ insertOne: { document: { a: 1 } } }]),
    timeoutMS: () => things.insertOne({ a: 1 }, { timeoutMS: 60000 }),
    find: () => things.findOne({}),
    findAndModify: () => things.findOneAndUpdate({ _id: 1 }, { $set: { a: 1 } }),
  };
  const fail = (mode, data = {}) => client.db("admin").command({ configureFailPoint: "failCommand", mode, data });
  const shown = [];
  for (const errorCode of JSON.parse(codes)) {
    const failCommands = ["insert", "find", "findAndModify"];
    await fail("alwaysOn", { failCommands, errorCode, appName: "error-codes" });
    for (const [name, operation] of Object.entries(operations)) {
      const began = Date.now();
      const text = await operation().then(() => "no error", (error) => error.message);
      shown.push([errorCode, name, text, (Date.now() - began) / 1000]);
    }
  }
  await fail("off");
  console.log(JSON.stringify(shown));
  await client.close();
}

main(process.argv.slice(2));
