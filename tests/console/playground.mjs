// The playground shows the result of `docward explain`, and marks the position of an error.

import assert from "node:assert/strict";
import { assertQuiet, explain, openConsole, shows } from "./harness.mjs";

export default async function (browser, { admin }) {
  const { page, complaints } = await openConsole(browser, admin);
  const reply = page.locator("#reply");
  await page.getByLabel("Database").fill("shop");

  await explain(page, 'db.orders.replaceOne({_id: 1}, {status: "paid"})');
  for (const text of ["reject", "whole", "A save of a whole order", "Use updateOne"]) await shows(reply, text);

  await explain(page, 'db.customers.replaceOne({_id: 1}, {name: "Ada"})');
  await shows(reply.locator("del").first(), "- db.customers.replaceOne(");
  await shows(reply.locator("ins").first(), "+ db.customers.updateOne(");
  await shows(reply, "{$set: {name: \"Ada\"}}");

  await page.locator("#question-app").fill("migrator-1");
  await explain(page, 'db.orders.deleteOne({_id: 1})');
  await shows(reply, "except-reject");

  await mistake(page, reply);
  // The keyboard shortcut works too, and a correct command removes the error mark.
  await page.getByLabel("Command", { exact: false }).fill("db.other.find({})");
  await page.keyboard.press("Control+Enter");
  await shows(reply, "docward forwards it unchanged.");
  assert.equal(await page.getByLabel("Command", { exact: false }).getAttribute("aria-invalid"), null);
  assertQuiet(complaints, /status of 422/);
}

/** An error on the second line, after a character of two UTF-16 units. */
async function mistake(page, reply) {
  const command = 'db.orders.updateOne({_id: "🐘"},\n  {$set: {a: "🐘"}}, {upsrt: true})';
  const field = page.getByLabel("Command", { exact: false });
  await explain(page, command);
  await shows(reply, "updateOne has no option upsrt");
  await shows(reply, "did you mean upsert?");
  assert.equal(await reply.locator("mark").textContent(), "u");
  assert.equal(await field.getAttribute("aria-invalid"), "true");
  const selected = await field.evaluate((area) => area.value.slice(area.selectionStart, area.selectionStart + 5));
  assert.equal(selected, "upsrt");
}
