// With the token, the mode of a rule can be overridden and the override ended; every process shows it.

import assert from "node:assert/strict";
import { MongoClient, assertQuiet, live, openConsole, row, shows } from "./harness.mjs";

export default async function (browser, { admin, token, uri }) {
  const { page, complaints } = await openConsole(browser, admin);
  await page.getByLabel("Token", { exact: true }).fill(token);
  await page.keyboard.press("Enter");
  await live(page);
  const client = await MongoClient.connect(uri);
  const orders = client.db("shop").collection("orders");
  await orders.updateOne({ _id: 1 }, { $set: { n: 0 } }, { upsert: true });
  const replace = () => orders.replaceOne({ _id: 1 }, { n: 1 });
  await assert.rejects(replace, /whole/);

  await row(page, "whole").locator(".rule-name").click();
  const form = page.getByRole("form", { name: "Override the mode of whole" });
  await form.getByLabel("Mode").selectOption("shadow");
  await form.getByLabel("For", { exact: true }).selectOption("1h");
  // What is typed stays while the page is refreshed.
  await form.getByLabel("Reason").fill("<b>incident</b> 12");
  await page.waitForTimeout(4000);
  assert.equal(await form.getByLabel("Reason").inputValue(), "<b>incident</b> 12");
  await form.getByRole("button", { name: "Override" }).click();
  await shows(page.locator(".override"), "Overridden: shadow instead of enforce");
  await shows(page.locator(".override"), "console: <b>incident</b> 12");
  await shows(page.locator(".problem"), "Only in this process");
  await shows(row(page, "whole"), "file: enforce");
  await replace();
  // What it rejected before stays rejected.
  for (const text of ["1 rejected", "1 shadow"]) await shows(page.locator("#hour"), text);

  await page.getByRole("button", { name: "End the override" }).click();
  await page.locator(".override").waitFor({ state: "hidden" });
  await assert.rejects(replace, /whole/);

  // For one application only; the others keep the mode of the file.
  await form.getByLabel("Only apps").fill("promo-*, web");
  await form.getByLabel("Reason").fill("incident 13");
  await form.getByRole("button", { name: "Override" }).click();
  await shows(page.locator(".override"), "Overridden: shadow for apps promo-*, web instead of enforce");
  await shows(row(page, "whole"), "shadow for apps promo-*, web until");
  await assert.rejects(replace, /whole/);
  const promo = await MongoClient.connect(uri, { appName: "promo-1" });
  await promo.db("shop").collection("orders").replaceOne({ _id: 1 }, { n: 1 });
  await promo.close();
  await isShownWhereItApplies(page);
  await page.getByRole("button", { name: "End the override" }).click();
  await page.locator(".override").waitFor({ state: "hidden" });

  await overridesAll(page, replace);
  await client.close();
  assertQuiet(complaints, /status of 401/);
}

/** What one application did in shadow mode is not mixed with what the rule did to the others. */
async function isShownWhereItApplies(page) {
  await page.locator("#application").selectOption("promo-1");
  const line = page.locator("#application-page tbody tr", { hasText: "whole" });
  await shows(line, "shadow for apps promo-*, web until");
  await shows(line.locator('[data-label="shadow reject"]'), "1");
  const details = page.locator("#rules-table .decisions");
  const examples = (title) => details.locator(`h3:text-is("${title}") + .examples`);
  await shows(examples("Statements it would have rejected or rewritten"), "shadow reject");
  assert.equal(await examples("Statements it stopped or warned about").getByText("shadow").count(), 0);
  await page.locator("#rules-filter").fill("override shadow");
  assert.deepEqual(await page.locator("#rules-table .rule-name").allTextContents(), ["whole"]);
  await page.locator("#rules-filter").fill("");
  // On a phone, too, without opening the rule.
  const { width, height } = page.viewportSize();
  await page.setViewportSize({ width: 390, height });
  await row(page, "whole").getByText("shadow for apps promo-*, web until").waitFor();
  await page.setViewportSize({ width, height });
}

/** The question has what it means. */
async function overridesAll(page, replace) {
  await page.getByRole("button", { name: "All rules …" }).click();
  const form = page.getByRole("form", { name: "Override the modes of all rules" });
  await form.getByLabel("Reason").fill("incident 14");
  const dialog = page.getByRole("dialog");
  await form.getByRole("button", { name: "Override" }).click();
  await shows(dialog, "Override 3 rules: shadow, for 30m?");
  await shows(dialog, "replacement: whole, mergedSaves of whole documents overwrite what others changed");
  await shows(dialog, "deny: keptDenied operations are executed.");
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await dialog.waitFor({ state: "detached" });
  await assert.rejects(replace, /whole/);
  await form.getByRole("button", { name: "Override" }).click();
  await dialog.getByRole("button", { name: "Override 3 rules" }).click();
  await shows(row(page, "kept"), "file: enforce");
  await replace();
  await page.getByRole("button", { name: "End all overrides" }).click();
  await shows(dialog, "rule 'kept' has mode shadow instead of enforce until");
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "End all overrides" }).click();
  await dialog.getByRole("button", { name: "End them" }).click();
  await page.locator(".override").waitFor({ state: "hidden" });
  await assert.rejects(replace, /whole/);
}
