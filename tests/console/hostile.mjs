// Names and texts with markup stay text: none runs a script, hides content, or reverses its neighbours' text.

import assert from "node:assert/strict";
import { asApp, assertQuiet, explain, live, openConsole, rejected, shows } from "./harness.mjs";

const IMAGE = "<img src=x onerror=hacked=1>";
const SCRIPT = '"><script>hacked=1</script>';
const TURNED = "\u202egnp.exe\u2066";
const LONG = "n".repeat(10_000);

export default async function (browser, { admin, uri }) {
  const { page, complaints } = await openConsole(browser, admin);
  await live(page);
  for (const app of [IMAGE, SCRIPT, TURNED]) {
    await asApp(uri, app, async (client) => {
      for (const name of [IMAGE, SCRIPT, TURNED, LONG]) {
        const document = { [`<b>${name.slice(0, 50)}`]: 1 };
        await rejected(client.db("hostile").collection(name).insertOne(document));
      }
    });
  }
  await page.locator("#tail .decision").nth(9).waitFor();
  const tail = page.locator("#tail");
  for (const text of [IMAGE, SCRIPT, "\\u{202e}gnp.exe\\u{2066}", "more characters"]) await shows(tail, text);

  for (const button of await page.locator(".rule-name").all()) await button.click();
  const rules = page.locator("#rules-table");
  for (const text of [IMAGE, SCRIPT, "\\u{202e}gnp.exe"]) await shows(rules, text);

  const [collection, value] = [IMAGE + SCRIPT + TURNED, TURNED].map((text) => JSON.stringify(text));
  const command = `db.getCollection(${collection}).insertOne({a: ${value}})`;
  await page.getByLabel("Database").fill("hostile");
  await explain(page, command);
  await shows(page.locator("#reply"), "reject");
  await page.getByLabel("Database").fill("other");
  await explain(page, command);
  await shows(page.locator("#reply pre"), IMAGE);
  await stayedText(page);
  assertQuiet(complaints);
}

async function stayedText(page) {
  const found = await page.evaluate(() => ({
    hacked: "hacked" in window,
    markup: document.querySelectorAll("img, iframe, main script, main b, [onerror]").length,
    turning: /[\u202a-\u202e\u2066-\u2069\u200b-\u200f]/.test(document.body.innerText),
    longest: Math.max(...[...document.querySelectorAll("bdi")].map((name) => name.textContent.length)),
    wide: document.documentElement.scrollWidth > innerWidth,
  }));
  const { longest, ...others } = found;
  assert.deepEqual(others, { hacked: false, markup: 0, turning: false, wide: false });
  assert.ok(longest < 1000);
}
