// On a narrow screen nothing is cut off, and nothing bars the way of people who do not see or point: light and dark.

import assert from "node:assert/strict";
import { asApp, assertQuiet, axe, live, openConsole, rejected, shows } from "./harness.mjs";

export default async function (browser, { admin, uri }) {
  await asApp(uri, "an-application-with-a-long-name-".repeat(3), async (client) => {
    await rejected(client.db("shop").collection("orders").replaceOne({ _id: 7 }, { a: 1 }));
    await client.db("shop").collection("items").updateOne({ _id: 1 }, { $set: { ["field".repeat(40)]: 1, a: 1 } });
  });
  for (const [width, colorScheme] of [[360, "dark"], [1280, "light"]]) {
    const { page, complaints } = await openConsole(browser, admin, { viewport: { width, height: 740 }, colorScheme, reducedMotion: "reduce" });
    await live(page);
    await page.locator("#tail .decision").nth(1).waitFor();
    await fits(page, width);
    await openAll(page);
    await fits(page, width);
    await hasNoBarriers(page);
    assertQuiet(complaints, /status of 422/);
    await page.context().close();
  }
}

async function openAll(page) {
  for (const button of await page.locator(".rule-name").all()) await button.click();
  const answer = page.locator("#answer");
  for (const [command, text] of [[`db.orders.find({${"a".repeat(300)}: 1, `, "R0026"], [`db.orders.replaceOne({_id: 1}, {${"a".repeat(300)}: 1})`, "reject"]]) {
    await page.getByLabel("Command", { exact: false }).fill(command);
    await page.getByLabel("Database").fill("shop");
    await page.getByRole("button", { name: "Explain" }).click();
    await shows(answer, text);
    await fits(page, page.viewportSize().width);
  }
}

async function fits(page, width) {
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth) <= width);
}

async function hasNoBarriers(page) {
  await page.evaluate(axe.source);
  const { violations, passes } = await page.evaluate(() => globalThis.axe.run());
  assert.deepEqual(violations.map(({ id, nodes }) => [id, nodes.map((node) => `${node.target}: ${node.failureSummary}`)]), []);
  assert.ok(passes.some(({ id }) => id === "color-contrast"));
}
