// A driver's rejected write appears in the list of decisions, the counters and the plot, and its rule can be opened.

import assert from "node:assert/strict";
import { asApp, assertQuiet, live, openConsole, replaceOrder, row, shows } from "./harness.mjs";

export default async function (browser, { admin, uri }) {
  const { page, complaints } = await openConsole(browser, admin);
  await live(page);
  await shows(page.locator("#tail-empty"), "No decisions yet");
  await shows(page.locator("#rules-empty"), "No rule has matched yet");
  await shows(page.locator("#state"), "Ready");
  const plain = row(page, "whole");
  assert.equal(await plain.locator("path.rejected").count(), 0);

  await replaceOrder(uri, "checkout", { secret: 1 });
  const first = page.locator("#tail .decision").first();
  await shows(first, "whole");
  for (const text of ["reject", "shop.orders", "replaceOne({_id}, {secret})", "app checkout"]) await shows(first, text);
  assert.match(await first.locator("time").getAttribute("title"), / UTC$/);
  await shows(plain.locator('[data-label="Rejected"]'), "1");
  await plain.locator("path.rejected").waitFor({ state: "attached" });
  await shows(page.locator("#hour"), "1 rejected");
  assert.ok(await page.locator("#rules-empty").isHidden());
  await plotMoves(page, uri);
  await ruleOpens(page);
  await shadowIsCountedApart(page, uri);
  await tailIsFiltered(page);
  await tailPauses(page, uri);
  assertQuiet(complaints);
}

async function plotMoves(page, uri) {
  await replaceOrder(uri, "warehouse", { a: 1 });
  const title = row(page, "whole").locator("svg title", { hasText: "whole in the last 60 minutes: 2 rejected" });
  await title.waitFor({ state: "attached" });
}

async function ruleOpens(page) {
  const button = page.getByRole("button", { name: "whole", exact: true });
  await button.focus();
  await page.keyboard.press("Enter");
  assert.equal(await button.getAttribute("aria-expanded"), "true");
  const details = page.locator(`#${await button.getAttribute("aria-controls")}`);
  const texts = ["A save of a whole order", "replacement: { policy: reject }", "checkout", "warehouse", "reject × 2"];
  for (const text of texts) await shows(details, text);
  // The next rule's text is not shown.
  assert.equal(await details.getByText("The next rule").count(), 0);
  await page.keyboard.press("Enter");
  assert.ok(await details.isHidden());
}

async function shadowIsCountedApart(page, uri) {
  const update = [{ _id: 1 }, { $set: { a: 1 } }];
  await asApp(uri, "storefront", (client) => client.db("shop").collection("items").updateOne(...update));
  const tried = row(page, "tried");
  await shows(tried.locator('[data-label="Shadow"]'), "1");
  await shows(tried.locator('[data-label="Rejected"]'), "0");
  await rulesAreOrderedAndFound(page);
}

async function rulesAreOrderedAndFound(page) {
  const names = () => page.locator("#rules-table .rule-name").allTextContents();
  // As when the page was opened, although rules have had decisions since.
  assert.deepEqual(await names(), ["kept", "merged", "tried", "whole"]);
  for (const [order, expected] of [
    ["last decision", ["tried", "whole", "kept", "merged"]],
    ["most rejected", ["whole", "tried", "kept", "merged"]],
    ["name", ["kept", "merged", "tried", "whole"]],
  ]) {
    await page.locator("#rules-order").selectOption(order);
    assert.deepEqual(await names(), expected);
  }
  const find = page.locator("#rules-filter");
  for (const [text, expected] of [["shadow", ["tried"]], ["reject", ["tried", "whole"]], ["override", []]]) {
    await find.fill(text);
    assert.deepEqual(await names(), expected, text);
  }
  await find.fill("");
}

async function tailIsFiltered(page) {
  const seen = () => page.locator("#tail .decision:visible").count();
  assert.equal(await seen(), 3);
  await page.locator("#tail-text").fill("WAREHOUSE");
  assert.equal(await seen(), 1);
  await page.locator("#tail-text").fill("unknown");
  await shows(page.locator("#tail-empty"), "None of the last 3 decisions");
  await page.locator("#tail-text").fill("");
  await page.locator("#tail-rule").selectOption("tried");
  assert.equal(await seen(), 1);
  await page.locator("#tail-rule").selectOption("");
}

async function tailPauses(page, uri) {
  await page.getByRole("button", { name: "Pause" }).click();
  await replaceOrder(uri, "checkout", { late: 1 });
  const resume = page.getByRole("button", { name: "Resume (1 waiting)" });
  await resume.waitFor();
  assert.equal(await page.locator("#tail .decision").count(), 3);
  await resume.click();
  await shows(page.locator("#tail .decision").first(), "replaceOne({_id}, {late})");
}
