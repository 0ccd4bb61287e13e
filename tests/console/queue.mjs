// Who waits for a server connection.

import { MongoClient, assertQuiet, live, openConsole, shows } from "./harness.mjs";

export default async function (browser, { admin, uri }) {
  const { page, complaints } = await openConsole(browser, admin);
  await live(page);
  const table = page.locator("#waiting-table");
  if (await table.isVisible()) throw new Error("the table is there although no request waits");
  const client = await MongoClient.connect(uri, { appName: "flood <b>", retryReads: false });
  const reports = client.db("shop").collection("reports");
  await reports.updateOne({ _id: 1 }, { $set: { n: 1 } }, { upsert: true });
  const running = [1, 2, 3, 4].map(() => reports.find({ _id: 1, $where: "sleep(3000) || true" }).toArray());
  const row = table.locator("tbody tr", { hasText: "flood <b>" });
  await shows(row.locator('[data-label="User"]'), "not logged in");
  await shows(row.locator('[data-label="Waiting"]'), ", the oldest for ");
  await Promise.all(running);
  await table.waitFor({ state: "hidden" });
  await client.close();
  assertQuiet(complaints);
}
