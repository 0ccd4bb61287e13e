// With the token, the console records the commands of clients, shows the capture and ends it; the browser saves the file.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { asApp, assertQuiet, live, openConsole, shows } from "./harness.mjs";

export default async function (browser, { admin, token, uri }) {
  const { page, complaints } = await openConsole(browser, admin);
  await page.getByLabel("Token", { exact: true }).fill(token);
  await page.keyboard.press("Enter");
  await live(page);
  const write = (app) => asApp(uri, app, (client) => client.db("shop").collection("items").insertOne({ app }));
  const form = page.locator("#capture-form");
  const start = form.getByRole("button", { name: "Start" });

  await form.getByLabel("For").selectOption("10m");
  await form.getByLabel("Applications").fill("promo-*, other");
  await start.click();
  const state = page.locator("#capture-state");
  await shows(state, "Recording of promo-*, other until ");
  await form.waitFor({ state: "hidden" });
  await write("billing");
  await write("promo-web");
  await shows(state, /1 command, .* of 268 MB, 0 omitted\. Started by console\./);
  // Who opens the console elsewhere sees it too.
  const other = await openConsole(browser, admin, { viewport: { width: 390, height: 800 } });
  await other.page.getByLabel("Token", { exact: true }).fill(token);
  await other.page.keyboard.press("Enter");
  await shows(other.page.locator("#capture-state"), "Recording of promo-*, other until ");
  assert.ok(await other.page.evaluate(() => document.documentElement.scrollWidth) <= 390);
  const download = page.waitForEvent("download");
  await other.page.getByRole("button", { name: "End the capture" }).click();
  const file = await download;
  assert.match(file.suggestedFilename(), /^docward-.*\.bson$/);
  const content = await readFile(await file.path());
  assert.ok(content.includes("capture") && content.includes("promo-web") && !content.includes("billing"));
  await shows(state, /The last capture of promo-\*, other ended at .*, because it was ended: 1 command, /);
  await start.waitFor();

  // A page that is closed ends its capture.
  await form.getByLabel("Applications").fill("");
  await start.click();
  await shows(other.page.locator("#capture-state"), "Recording until ");
  await page.context().close();
  await shows(other.page.locator("#capture-state"), "because its reader went away");
  assertQuiet([...complaints, ...other.complaints], /status of 401/);
}
