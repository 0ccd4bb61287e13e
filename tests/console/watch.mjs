// What rules stopped, by rule, application and outcome; the page of an application; connections, and closing one; slow
// statements; rules that are no longer loaded.

import assert from "node:assert/strict";
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { MongoClient, assertQuiet, live, openConsole, row, shows } from "./harness.mjs";

export default async function (browser, { admin, token, uri, rules }) {
  const { page, complaints } = await openConsole(browser, admin);
  await page.getByLabel("Token", { exact: true }).fill(token);
  await page.keyboard.press("Enter");
  await live(page);
  const shop = await MongoClient.connect(uri, { appName: "shop", maxPoolSize: 1 });
  const desk = await MongoClient.connect(uri, { appName: "desk <b>", maxPoolSize: 1 });
  await sellOut(page, shop, desk);
  await filters(page);
  await applicationPage(page);
  await closes(page, shop);
  await slowest(page, desk);
  await removedRulesAreFolded(page, rules);
  await Promise.all([shop.close(), desk.close()]);
  assertQuiet(complaints, /status of 401/);
}

/** Three checkouts of one book, and a save of an old version. */
async function sellOut(page, shop, desk) {
  const books = shop.db("shop").collection("books");
  await books.updateOne({ _id: 1 }, { $set: { n: 1, v: 7 } }, { upsert: true });
  const checkout = (client) =>
    client.db("shop").collection("books").updateOne({ _id: 1 }, { $inc: { n: -1 } });
  const matched = [await checkout(shop), await checkout(shop), await checkout(desk)].map((one) => one.matchedCount);
  assert.deepEqual(matched, [1, 0, 0]);
  await assert.rejects(books.replaceOne({ _id: 1 }, { _id: 1, v: 3 }), { code: 112 });
  await shows(row(page, "stock").locator('[data-label="No effect"]'), "2");
  await shows(row(page, "saves").locator('[data-label="No effect"]'), "1");
  await shows(page.locator("#hour"), "3 without effect");
  await row(page, "saves").locator(".rule-name").click();
  await shows(page.locator(".examples"), "the stored document has 'v'");
  await shows(page.locator(".examples"), "first by shop");
}

async function filters(page) {
  const seen = () => page.locator("#tail .decision:visible").count();
  await page.locator("#tail-outcome").selectOption("no_match");
  await page.locator("#tail .decision:visible", { hasText: "stock" }).first().waitFor();
  assert.equal(await seen(), 2);
  await page.locator("#tail-app").selectOption("desk <b>");
  assert.equal(await seen(), 1);
  await page.locator("#tail-outcome").selectOption("conflict");
  await shows(page.locator("#tail-empty"), "has this rule, outcome, application and text");
  await page.locator("#tail-outcome").selectOption("");
  await page.locator("#tail-app").selectOption("");
}

async function applicationPage(page) {
  await page.locator("#application").selectOption("shop");
  const table = page.locator("#application-page table");
  for (const text of ["stock", "saves"]) await shows(table, text);
  await shows(table.locator("tr", { hasText: "stock" }).locator('[data-label="no match"]'), "1");
  await shows(table.locator("tr", { hasText: "saves" }).locator('[data-label="conflict"]'), "1");
  assert.ok(page.url().endsWith("#application=shop"));
  await page.getByRole("button", { name: "Its decisions" }).click();
  assert.equal(await page.locator("#tail-app").inputValue(), "shop");
  await page.locator("#tail-app").selectOption("");
  // The address opens the page again.
  await page.reload();
  await live(page);
  await shows(page.locator("#application-page"), "open connection");
  assert.equal(await page.locator("#application").inputValue(), "shop");
}

async function slowest(page, desk) {
  const books = desk.db("shop").collection("books");
  await books.find({ title: "Dune", $where: "sleep(40) || true" }).toArray();
  await books.find({ n: { $gte: 0 }, $where: "sleep(300) || true" }).toArray();
  const found = page.locator("#slowest-rows tr", { hasText: "find({n: {$gte}, $where})" });
  await found.waitFor();
  assert.match(await found.locator('[data-label="Took"]').textContent(), /^([3-9]\d\d\sms|[1-9])/);
  const text = await found.textContent();
  assert.ok(text.includes("shop.books") && text.includes("desk <b>") && text.includes("127.0.0.1:"), text);
}

async function closes(page, shop) {
  await page.locator("#connections-text").fill("shop");
  const waiting = shop.db("shop").collection("books").find({ $where: "sleep(60000) || true" }).toArray();
  const failed = assert.rejects(waiting, (error) => error.name.includes("Network") || /closed/.test(error.message));
  const busy = page.locator("#connections-rows tr", { hasText: "find for" });
  await busy.waitFor();
  const text = await busy.textContent();
  assert.ok(text.includes("127.0.0.1:") && text.includes("shop"), text);
  const button = busy.getByRole("button", { name: /Close connection/ });
  const number = (await button.getAttribute("aria-label")).match(/\d+/)[0];
  await button.click();
  // The question names the connection, because rows move.
  const dialog = page.getByRole("dialog", { name: `Close connection ${number}?` });
  await shows(dialog, "It waits for find.");
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await dialog.waitFor({ state: "detached" });
  assert.equal(await busy.count(), 1);
  await button.click();
  await dialog.getByRole("button", { name: "Close it" }).click();
  await page.getByRole("button", { name: `Close connection ${number}`, exact: true }).waitFor({ state: "detached" });
  // The driver retries the read once, on another connection.
  await busy.waitFor();
  await busy.getByRole("button").click();
  await page.getByRole("dialog").getByRole("button", { name: "Close it" }).click();
  await failed;
  await page.locator("#connections-text").fill("");
}

async function removedRulesAreFolded(page, rules) {
  const text = readFileSync(rules, "utf8");
  writeFileSync(`${rules}.new`, text.slice(0, text.indexOf("  - name: saves")));
  renameSync(`${rules}.new`, rules);
  const fold = page.getByRole("button", { name: "Show 1 rule that is no longer loaded" });
  await fold.waitFor();
  assert.equal(await row(page, "saves").count(), 0);
  await fold.click();
  await shows(row(page, "saves"), "no longer loaded");
  await page.getByRole("button", { name: "Hide 1 rule" }).click();
  await row(page, "saves").waitFor({ state: "detached" });
}
