// The page keeps a bounded number of decisions, and shows a repeated one once.

import assert from "node:assert/strict";
import { assertQuiet, live, openConsole, shows } from "./harness.mjs";

const EVENTS = 2000;
const KEPT = 1300;
const REPEATED = 50;

const decision = (number) => ({
  number, at: 1_700_000_000_000 + number, rule: `rule-${number % 7}`, pattern: "deny", namespace: "d.c",
  outcome: "reject", statements: 1, shape: "insertOne({a})", reason: "no", hint: "", app: null, users: null,
  client: "127.0.0.1:1", connection: 1, suppressed: 0,
});
const event = (number) => `event: decision\nid: ${number}\ndata: ${JSON.stringify(decision(number))}\n\n`;

export default async function (browser, { admin }) {
  const { page, complaints } = await openConsole(browser, admin);
  await live(page);
  const events = (from, to) => Array.from({ length: to - from }, (_, number) => event(from + number));
  let answers = 0;
  // The server sends no more until the page shows the first decisions.
  let goOn;
  const seen = new Promise((resolve) => { goOn = resolve; });
  await page.route("**/api/decisions", async (route) => {
    answers += 1;
    if (answers > 1) await seen;
    // Like docward: a reconnecting client gets the last decisions again.
    const leftOut = "event: missed\ndata: 5\n\n";
    const again = () => [...events(EVENTS - REPEATED, EVENTS), leftOut, ...events(EVENTS, EVENTS + 100)];
    const sent = answers === 1 ? events(0, EVENTS) : again();
    return route.fulfill({ status: 200, contentType: "text/event-stream", body: sent.join("") });
  });
  await page.reload();
  await shows(page.locator("#tail .decision").first(), `rule-${(EVENTS - 1) % 7}`);
  await shows(page.locator("#tail-state"), "reconnecting");
  goOn();
  await shows(page.locator("#tail .decision").first(), `rule-${(EVENTS + 99) % 7}`);
  assert.ok(await page.locator("#tail li").count() <= KEPT);
  const times = await page.locator("#tail .decision time").evaluateAll((all) => all.map((time) => time.dateTime));
  assert.equal(new Set(times).size, times.length);
  await shows(page.locator("#tail .missed").first(), "5 decisions were not shown here");
  assertQuiet(complaints);
}
