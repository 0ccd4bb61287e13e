// The rules of four patterns with what they did: refused versions, the worker of a history, full arrays, waits for permits.

import assert from "node:assert/strict";
import { MongoClient, assertQuiet, live, openConsole, rejected, row, shows } from "./harness.mjs";

export default async function (browser, { admin, uri }) {
  const { page, complaints } = await openConsole(browser, admin);
  await live(page);
  const client = await MongoClient.connect(uri, { appName: "crm", retryReads: false });
  const shop = client.db("shop");
  await versions(page, shop.collection("customers"));
  await history(page, shop);
  await limits(page, shop.collection("devices"));
  await throttle(page, shop.collection("reports"));
  await client.close();
  assertQuiet(complaints);
}

async function versions(page, customers) {
  await customers.updateOne({ _id: 1 }, { $set: { v: 3, first: "Ada" } }, { upsert: true });
  await rejected(customers.insertOne({ name: "Ada" }));
  await rejected(customers.updateOne({ _id: 1 }, { $set: { name: "Ada" } }));
  await details(page, "versions", ["insertOne({name, _id})", "it stores a document without 'v'", "first by crm"]);
}

/** Only docward writes into the collection of the history. */
async function history(page, shop) {
  await shop.collection("orders").updateOne({ _id: 1 }, { $set: { total: 12 } }, { upsert: true });
  await rejected(shop.collection("orders_history").deleteMany({}));
  await shows(row(page, "history").locator('[data-label="Rejected"]'), "1");
  await details(page, "history", ["deleteMany({})", "shop.orders_history"]);
  const worker = page.locator("#workers tr", { hasText: "history" });
  await shows(worker, "works");
  await worker.locator("[data-label=Changes]", { hasText: /[1-9]/ }).waitFor();
}

async function limits(page, devices) {
  await devices.updateOne({ _id: 1 }, { $set: { events: [1, 2] } }, { upsert: true });
  await rejected(devices.updateOne({ _id: 1 }, { $push: { events: 3 } }));
  await rejected(devices.updateOne({ _id: 1 }, { $set: { "events.5": 1 } }));
  await shows(row(page, "small").locator('[data-label="Rejected"]'), "2");
  await details(page, "small", [
    "updateOne({_id}, {$push: {events}})", "'events' has 2 elements and the statement adds 1; the limit is 2",
    "updateOne({_id}, {$set: {events.5}})",
  ]);
}

/** A command waits too long for the permit of another. */
async function throttle(page, reports) {
  await reports.updateOne({ _id: 1 }, { $set: { n: 1 } }, { upsert: true });
  const sleep = (time) => reports.find({ $where: `sleep(${time}) || true` }).toArray();
  const running = sleep(8000);
  await details(page, "turns", ["1 command holds a permit, 0 wait."]);
  await assert.rejects(reports.findOne({ _id: 1 }), { code: 462 });
  await running;
  await shows(row(page, "turns").locator('[data-label="Rejected"]'), "1");
  await details(page, "turns", ["reject × 1", "0 commands hold a permit, 0 wait.", "1 waited, and 1 was rejected"]);
}

/** Opens the rule, if it is closed. */
async function details(page, name, texts) {
  const button = row(page, name).locator(".rule-name");
  if (await button.getAttribute("aria-expanded") === "false") await button.click();
  const opened = page.locator(`#${await button.getAttribute("aria-controls")}`);
  for (const text of texts) await shows(opened, text);
}
