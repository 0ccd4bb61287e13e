// The summary of a deployment: members and how far they are behind, background workers, the end of certificates.

import { assertQuiet, live, MongoClient, openConsole, shows } from "./harness.mjs";

export default async function (browser, { admin, primary, secondary, expiry }) {
  const { page, complaints } = await openConsole(browser, admin);
  await live(page);
  await certificate(page, expiry);
  const set = await MongoClient.connect(`mongodb://${primary}/?directConnection=true`);
  await worker(page, set);
  await lag(page, set, secondary);
  await set.close();
  assertQuiet(complaints);
}

/** `expiry`: the day, as YYYY-MM-DD. */
async function certificate(page, expiry) {
  const shown = page.locator("#certificates", { hasText: "certificate (listeners) until" });
  await shown.locator(`[datetime^="${expiry}"]`).waitFor();
}

/** The worker of a `copies` rule corrects a copy, which the console counts. */
async function worker(page, set) {
  const row = page.locator("#workers tr", { hasText: "names" });
  await shows(row, "works");
  const [users, posts] = ["users", "posts"].map((name) => set.db("shop").collection(name));
  await posts.insertOne({ user: 1, user_name: "Ann" });
  await users.insertOne({ _id: 1, name: "Ann" });
  await users.updateOne({ _id: 1 }, { $set: { name: "Anna" } });
  await page.waitForFunction(() => {
    const changes = document.querySelector("#workers [data-label=Changes]");
    return changes && Number(changes.textContent) > 0;
  });
  await shows(row, "copies");
}

/** A locked secondary applies nothing, so it falls behind while the primary writes. */
async function lag(page, set, secondary) {
  const row = page.locator("#members tr", { hasText: secondary });
  await shows(row, "secondary, up to date");
  const locked = await MongoClient.connect(`mongodb://${secondary}/?directConnection=true`);
  await locked.db("admin").command({ fsync: 1, lock: true });
  const writing = setInterval(() => set.db("shop").collection("ticks").insertOne({}), 200);
  try {
    await row.filter({ hasText: /secondary, .*s behind/ }).waitFor();
  } finally {
    clearInterval(writing);
    await locked.db("admin").command({ fsyncUnlock: 1 });
  }
  await shows(row, "secondary, up to date");
  await locked.close();
}
