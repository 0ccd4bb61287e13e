// Runs one scenario in a browser of its own; fails when it does.

import { launch } from "./harness.mjs";

const [scenario, docward] = process.argv.slice(2);
const { default: run } = await import(`./${scenario}.mjs`);
const browser = await launch();
try {
  await run(browser, JSON.parse(docward));
} finally {
  await browser.close();
}
