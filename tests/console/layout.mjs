// On a narrow screen nothing is cut off, and accessibility checks pass, in light and dark mode.

import assert from "node:assert/strict";
import { asApp, assertQuiet, axe, explain, live, openConsole, replaceOrder, shows } from "./harness.mjs";

export default async function (browser, { admin, uri }) {
  const app = "an-application-with-a-long-name-".repeat(3);
  await replaceOrder(uri, app, { a: 1 });
  await asApp(uri, app, async (client) => {
    await client.db("shop").collection("items").updateOne({ _id: 1 }, { $set: { ["field".repeat(40)]: 1, a: 1 } });
  });
  for (const [width, colorScheme] of [[360, "dark"], [390, "light"], [1280, "light"]]) {
    const options = { viewport: { width, height: 740 }, colorScheme, reducedMotion: "reduce" };
    const { page, complaints } = await openConsole(browser, admin, options);
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
  const long = "a".repeat(300);
  await page.getByLabel("Database").fill("shop");
  const asked = [[`db.orders.find({${long}: 1, `, "R0026"], [`db.orders.replaceOne({_id: 1}, {${long}: 1})`, "reject"]];
  for (const [command, text] of asked) {
    await explain(page, command);
    await shows(page.locator("#reply"), text);
    await fits(page, page.viewportSize().width);
  }
}

/** Neither the page nor a list in it scrolls sideways. */
async function fits(page, width) {
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth) <= width);
  const wide = () => [...document.querySelectorAll(".scroll, .scroll-table")]
    .filter((list) => list.scrollWidth > list.clientWidth).map((list) => `${list.ariaLabel}: ${list.scrollWidth}`);
  assert.deepEqual(await page.evaluate(wide), []);
}

async function hasNoBarriers(page) {
  await page.evaluate(axe.source);
  const { violations, passes } = await page.evaluate(() => globalThis.axe.run());
  const words = (node) => `${node.target}: ${node.failureSummary}`;
  const barriers = violations.map(({ id, nodes }) => [id, ...nodes.map(words)]);
  assert.deepEqual(barriers, []);
  assert.ok(passes.some(({ id }) => id === "color-contrast"));
}
