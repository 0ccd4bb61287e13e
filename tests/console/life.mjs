// The console reports failures: a file that does not load, a lost connection, a drain.

import assert from "node:assert/strict";
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { MongoClient, assertQuiet, live, openConsole, replaceOrder, shows } from "./harness.mjs";

export default async function (browser, docward) {
  const way = await startWay(docward.admin);
  const { page, complaints } = await openConsole(browser, way.address);
  await live(page);
  await shows(page.locator("#state"), "Ready");
  await shows(page.locator("#members"), "primary");
  await membersConnections(page, docward);
  await badReload(page, docward);
  await lostConnection(page, way, docward);
  await drain(page, docward);
  way.close();
  assertQuiet(complaints, /Failed to load resource: net::ERR_/);
}

/** Clients are counted at their listener. */
async function membersConnections(page, { uri }) {
  const connections = page.locator("#members [data-label=Connections]");
  await shows(connections, "0");
  const client = await new MongoClient(uri).connect();
  await client.db("d").command({ ping: 1 });
  await page.waitForFunction(() => Number(document.querySelector("#members [data-label=Connections]").textContent) > 0);
  await client.close();
  await shows(connections, "0");
}

async function badReload(page, { rules }) {
  const good = readFileSync(rules, "utf8");
  replace(rules, good.replace("policy: reject", "policy: rejekt"));
  const notice = page.locator("#notices .notice");
  // The complete message, as `docward check` prints it.
  for (const text of ["reload failed", "stay in force", "rules.yaml:", "did you mean `reject`?"]) await shows(notice, text);
  assert.match(await notice.locator("pre").textContent(), /\n *\|\n\d+ \|.*rejekt.*\n.*\^/);
  replace(rules, good);
  await notice.waitFor({ state: "detached" });
  await shows(page.locator("#reloads"), "1 failed");
}

/** Replaces a file atomically. */
function replace(file, text) {
  writeFileSync(`${file}.new`, text);
  renameSync(`${file}.new`, file);
}

/** A network between browser and docward that can be broken. */
async function startWay(admin) {
  const [host, port] = admin.split(":");
  const open = new Set();
  let broken = false;
  const server = createServer((socket) => {
    const further = connect(Number(port), host);
    for (const end of [socket, further]) {
      open.add(end);
      end.on("error", () => {});
      end.on("close", () => [socket, further].forEach((each) => open.delete(each.destroy())));
    }
    if (broken) socket.destroy();
    else socket.pipe(further).pipe(socket);
  });
  const cut = () => open.forEach((socket) => socket.destroy());
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  return {
    address: `127.0.0.1:${server.address().port}`,
    break: () => { broken = true; cut(); },
    repair: () => { broken = false; },
    close: () => { server.close(); cut(); },
  };
}

async function lostConnection(page, way, { uri }) {
  way.break();
  await shows(page.locator("#state"), "No connection");
  await shows(page.locator("#notices"), "the values on this page are from");
  await replaceOrder(uri, "meanwhile", { a: 1 });
  assert.equal(await page.locator("#tail .decision").count(), 0);
  way.repair();
  await shows(page.locator("#state"), "Ready");
  await page.locator("#notices .notice").waitFor({ state: "detached" });
  await shows(page.locator("#tail .decision"), "meanwhile");
  await live(page);
  assert.equal(await page.locator("#tail .decision").count(), 1);
}

/** A command in progress delays the end of docward. */
async function drain(page, { uri, pid }) {
  const client = await new MongoClient(uri).connect();
  const collection = client.db("drained").collection("c");
  await collection.insertOne({ a: 1 });
  const slow = collection.find({ $where: "sleep(4000) || true" }).toArray();
  // It has reached the server.
  await new Promise((passed) => setTimeout(passed, 500));
  process.kill(pid, "SIGTERM");
  await shows(page.locator("#state"), "Draining");
  await shows(page.locator("#notices"), "shutting down");
  assert.equal((await slow).length, 1);
  await client.close();
  await shows(page.locator("#state"), "No connection");
}
