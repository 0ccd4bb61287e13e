// The screenshots of docs/console.md. tests/python/screenshots.py runs it.

import { explain, live, openConsole, row, shows } from "./harness.mjs";

const WIDE = { viewport: { width: 1200, height: 1330 }, colorScheme: "light" };
const NARROW = { viewport: { width: 360, height: 1100 }, colorScheme: "dark" };

export default async function (browser, { admin, folder }) {
  const wide = await opened(browser, admin, WIDE);
  await row(wide, "orders-no-blind-replace").locator(".rule-name").click();
  await shows(wide.locator("#rules-table"), "Two services save whole orders");
  await wide.evaluate(() => scrollTo(0, 0));
  await wide.screenshot({ path: `${folder}/rules.png` });

  await row(wide, "orders-no-blind-replace").locator(".rule-name").click();
  await row(wide, "books-checkout-record").locator(".rule-name").click();
  await shows(wide.locator(".override"), "incident 12");
  await wide.locator("#rules-table > tbody", { has: wide.locator(".override:visible") }).screenshot({ path: `${folder}/override.png` });

  await shows(wide.locator("#connections-rows"), "find for");
  await together(wide, ["#open-connections", "#slowest"], `${folder}/connections.png`);

  await wide.getByLabel("Database").fill("shop");
  await explain(wide, 'db.customers.replaceOne({_id: 1}, {name: "Ada"})');
  await shows(wide.locator("#reply"), "updateOne");
  await wide.locator("#playground").screenshot({ path: `${folder}/playground.png` });

  const narrow = await opened(browser, admin, NARROW);
  await narrow.screenshot({ path: `${folder}/narrow.png` });
}

/** One image of sections that follow each other. */
async function together(page, sections, path) {
  await page.evaluate(() => scrollTo(0, 0));
  const boxes = await Promise.all(sections.map((section) => page.locator(section).boundingBox()));
  const [first, last] = [boxes[0], boxes.at(-1)];
  const clip = { x: first.x, y: first.y, width: first.width, height: last.y + last.height - first.y };
  await page.screenshot({ path, clip, fullPage: true });
}

async function opened(browser, admin, options) {
  const { page } = await openConsole(browser, admin, { ...options, reducedMotion: "reduce" });
  await live(page);
  await page.locator("#tail .decision").nth(1).waitFor();
  return page;
}
