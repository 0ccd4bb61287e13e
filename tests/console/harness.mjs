// Fixtures of every scenario: a page with the console, and all errors in it.
//
//     node run.mjs SCENARIO '{"admin": "127.0.0.1:9216", "uri": "mongodb://…", …}'

import assert from "node:assert/strict";
import { createRequire } from "node:module";

// NODE_PATH has these packages; `import` does not use it.
const require = createRequire(import.meta.url);
const { chromium } = require("playwright-core");
export const { MongoClient } = require("mongodb");
export const axe = require("axe-core");

/** Long enough for a loaded machine. */
const TIMEOUT = 60_000;
/** Without a sandbox, because containers run tests as root; and without requests to other hosts. */
const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];

export function launch() {
  return chromium.launch({ executablePath: process.env.CHROMIUM, args: FLAGS });
}

/** A page of the console; `complaints` are the browser's errors since the page was opened. */
export async function openConsole(browser, admin, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, locale: "en-GB", ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(TIMEOUT);
  const complaints = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("request", (request) => {
    if (new URL(request.url()).host !== admin) complaints.push(`asks elsewhere: ${request.url()}`);
  });
  await page.exposeFunction("violated", (what) => complaints.push(what));
  await page.addInitScript(() => addEventListener("securitypolicyviolation",
    (event) => window.violated(`violates ${event.effectiveDirective} by ${event.blockedURI}`)));
  await page.goto(`http://${admin}/`);
  return { page, complaints };
}

/** Waits until the console is loaded and receives decisions. */
export async function live(page) {
  await page.locator("#tail-state", { hasText: "live" }).waitFor();
}

/** The row of a rule. */
export function row(page, name) {
  return page.locator("#rules-table tr.rule", { has: page.getByRole("button", { name, exact: true }) });
}

/** Waits until the element's text contains this. */
export async function shows(locator, text) {
  await locator.filter({ hasText: text }).first().waitFor({ timeout: TIMEOUT });
}

/** The complaints that the scenario does not expect. */
export function assertQuiet(complaints, ...expected) {
  assert.deepEqual(complaints.filter((one) => !expected.some((pattern) => pattern.test(one))), []);
}

/** Runs with a client of this application name. */
export async function asApp(uri, appName, run) {
  const client = new MongoClient(uri, { appName });
  try {
    return await run(await client.connect());
  } finally {
    await client.close();
  }
}

/** A write that a rule rejects. */
export async function rejected(promise) {
  await assert.rejects(promise, { code: 121 });
}

/** An application of this name tries to replace an order as a whole, which the rule `whole` rejects. */
export function replaceOrder(uri, appName, order) {
  return asApp(uri, appName, async (client) => {
    const orders = client.db("shop").collection("orders");
    await orders.updateOne({ _id: 7 }, { $set: { stored: true } }, { upsert: true });
    await rejected(orders.replaceOne({ _id: 7 }, order));
  });
}

/** Types a command into the playground and has it explained. */
export async function explain(page, command) {
  await page.getByLabel("Command", { exact: false }).fill(command);
  await page.getByRole("button", { name: "Explain" }).click();
}
