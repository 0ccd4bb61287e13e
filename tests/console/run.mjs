// Runs one scenario in a separate browser; fails if the scenario does.

import { launch } from "./harness.mjs";

const [scenario, docward] = process.argv.slice(2);
const { default: run } = await import(`./${scenario}.mjs`);
const browser = await launch();
try {
  await run(browser, JSON.parse(docward));
} finally {
  await browser.close();
}
