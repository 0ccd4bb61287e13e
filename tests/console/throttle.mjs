// Who holds the permits of a `throttle` rule, and who waits for one.

import { MongoClient, assertQuiet, live, openConsole, row, shows } from "./harness.mjs";

export default async function (browser, { admin, uri }) {
  const { page, complaints } = await openConsole(browser, admin);
  await live(page);
  const flood = await MongoClient.connect(uri, { appName: "flood <b>", retryReads: false });
  const reports = flood.db("shop").collection("reports");
  const slow = (milliseconds) => reports.find({ $where: `sleep(${milliseconds}) || true` }).toArray();

  await row(page, "limited").locator(".rule-name").click();
  const permits = page.locator(".permits");
  // Also before its first command.
  await shows(permits, "0 commands hold a permit, 0 wait.");

  await reports.updateOne({ _id: 1 }, { $set: { n: 1 } }, { upsert: true });
  const running = [slow(15_000), slow(15_000), slow(15_000)];
  await shows(permits, "1 command holds a permit, 2 wait, the oldest for");
  const client = permits.locator("tbody tr", { hasText: "flood <b>" });
  await shows(client.locator('[data-label="permits"]'), "1");
  await shows(client.locator('[data-label="waiting"]'), "2");
  await Promise.allSettled(running);
  await shows(permits, "0 commands hold a permit, 0 wait.");
  await shows(permits, "2 waited, and 2 were rejected");

  // Shorter than the time that a command may wait.
  const last = slow(7_000);
  await new Promise((resolve) => setTimeout(resolve, 300));
  const waiting = reports.countDocuments({});
  await shows(permits, "1 command holds a permit, 1 waits");
  const [, count] = await Promise.all([last, waiting]);
  if (count !== 1) throw new Error(`the command that waited returned ${count}`);
  await shows(permits, "3 waited, and 2 were rejected");
  await flood.close();
  assertQuiet(complaints);
}
