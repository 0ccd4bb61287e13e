// The report of a replay: on a phone nothing is cut off or scrolls sideways, and it is dark where the console is.

import assert from "node:assert/strict";

export default async function (browser, { report }) {
  for (const [width, colorScheme] of [[390, "dark"], [390, "light"], [1280, "dark"]]) {
    const context = await browser.newContext({ viewport: { width, height: 844 }, colorScheme });
    const page = await context.newPage();
    await page.goto(`file://${report}`);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth) <= width, `it is wider than ${width}`);
    assert.deepEqual(await page.evaluate(clipped), []);
    if (width > 1000) assert.deepEqual(await page.evaluate(broken), []);
    const dark = await page.evaluate(isDark);
    assert.deepEqual(dark, Array(dark.length).fill(colorScheme === "dark"));
    await context.close();
  }
}

/** The texts that are not within their chart. */
function clipped() {
  const within = (box, around) => box.left >= around.left && box.right <= around.right && box.bottom <= around.bottom;
  const texts = [...document.querySelectorAll("svg text")];
  if (!texts.length) return ["there is no chart"];
  const outside = (text) => !within(text.getBoundingClientRect(), text.closest("svg").getBoundingClientRect());
  return texts.filter(outside).map((text) => text.textContent);
}

/** The titles of columns, names of commands and namespaces that have more than one line. */
function broken() {
  const words = [...document.querySelectorAll("th, td")].filter((cell) => /^[\w.]{1,16}$/.test(cell.textContent));
  const lines = (cell) => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    return range.getClientRects().length;
  };
  return words.filter((cell) => lines(cell) > 1).map((cell) => cell.textContent);
}

/** Whether each of these colours is that of a dark page: the ground, that of a chart, and (reversed) the texts. */
function isDark() {
  const light = (colour) => colour.match(/\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) > 3 * 128;
  const style = (selector) => getComputedStyle(document.querySelector(selector));
  return [!light(style("body").backgroundColor), !light(style("svg .ground").fill), light(style("body").color), light(style("svg text").fill)];
}
