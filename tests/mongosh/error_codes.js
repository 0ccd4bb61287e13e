// Prints what a person sees of each of `codes`: [[code, operation, text, seconds], ...]. The server fails the commands.
const things = db.getSiblingDB("error_codes").things;
const operations = {
  insert: () => things.insertOne({ a: 1 }),
  bulk: () => things.bulkWrite([{ insertOne: { document: { a: 1 } } }]),
  find: () => things.findOne({}),
  findAndModify: () => things.findOneAndUpdate({ _id: 1 }, { $set: { a: 1 } }),
};
const shown = [];
for (const errorCode of codes) {
  const data = { failCommands: ["insert", "find", "findAndModify"], errorCode, appName: "error-codes" };
  db.adminCommand({ configureFailPoint: "failCommand", mode: "alwaysOn", data });
  for (const [name, operation] of Object.entries(operations)) {
    const began = Date.now();
    let text = "no error";
    try {
      operation();
    } catch (error) {
      text = error.message;
    }
    shown.push([errorCode, name, text, (Date.now() - began) / 1000]);
  }
}
db.adminCommand({ configureFailPoint: "failCommand", mode: "off" });
print(JSON.stringify(shown));
