// Without the token the page shows no data; with it, the page shows everything until the tab is closed or the token
// removed.

import assert from "node:assert/strict";
import { assertQuiet, live, openConsole, shows } from "./harness.mjs";

export default async function (browser, { admin, token }) {
  const { page, complaints } = await openConsole(browser, admin);
  const field = page.getByLabel("Token", { exact: true });
  await shows(page.locator("#state"), "Locked");
  const nothing = async () => {
    assert.ok(await page.locator("#content").isHidden());
    assert.ok(!(await page.content()).includes("whole"));
  };
  await field.waitFor();
  await nothing();
  for (const wrong of ["0123456789abcde", "nö – ☃"]) {
    await field.fill(wrong);
    await page.getByRole("button", { name: "Open" }).click();
    await shows(page.getByRole("alert"), "This token is wrong");
    await nothing();
    await field.waitFor();
  }
  await field.fill(token);
  await page.keyboard.press("Enter");
  await live(page);
  await shows(page.locator("#rules-table"), "whole");
  assert.ok(!page.url().includes(token) && !(await page.content()).includes(token));
  // Another page in the same tab has the token, another tab does not.
  await page.reload();
  await live(page);
  await page.getByRole("button", { name: "Forget token" }).click();
  await field.waitFor();
  await nothing();
  assertQuiet(complaints, /status of 401/);
}
