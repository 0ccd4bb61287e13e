// The open client connections, and a button to close one. Closing requires the token.

import { arrange, byId, element, setText } from "./dom.js";
import { timeElement } from "./pieces.js";
import { closeConnection, token } from "./api.js";
import { confirmed } from "./confirm.js";
import { problemOf } from "./mode.js";
import { bytes, counted, duration, number, visible } from "./text.js";

/** The maximum of shown rows. */
const ROWS = 200;

/** @type {Map<number, {row: HTMLElement, last: HTMLElement, button: HTMLButtonElement}>} by the connection's number */
const rows = new Map();
let reply = { connections: [], total: 0, now: 0 };

export function startConnections() {
  byId("connections-text").addEventListener("input", draw);
}

/** @param {any} listed of `api/connections` */
export function showConnections(listed) {
  reply = listed;
  const open = new Set(listed.connections.map((one) => one.connection));
  for (const key of rows.keys()) if (!open.has(key)) rows.delete(key);
  draw();
}

/** The open connections of an application. */
export function connectionsOf(app) {
  return reply.connections.filter((one) => appOf(one) === app);
}

function appOf({ app }) {
  return app ?? "(no appName)";
}

function draw() {
  const wanted = /** @type {HTMLInputElement} */ (byId("connections-text")).value.trim().toLowerCase();
  const found = reply.connections.filter((one) => searchText(one).includes(wanted));
  const shown = found.slice(0, ROWS);
  arrange(byId("connections-rows"), shown.map(rowOf));
  const more = reply.total > reply.connections.length ? `; ${number(reply.connections.length)} are listed` : "";
  setText(byId("connections-shown"),
    `${number(shown.length)} of ${counted(reply.total, "connection", "connections")}${more}`);
}

function searchText({ connection, client, app, users, command, member }) {
  return [connection, client, app, users?.join(" "), command, member].join("\n").toLowerCase();
}

/** A row keeps its button, so that the button keeps the focus. */
function rowOf(one) {
  const known = rows.get(one.connection) ?? newRow(one);
  rows.set(one.connection, known);
  known.row.replaceChildren(...cells(one), known.last);
  known.button.hidden = !token.get();
  return known.row;
}

function newRow({ connection }) {
  const button = element("button", { type: "button", "aria-label": `Close connection ${connection}` }, "Close");
  button.addEventListener("click", () => ask(connection, button));
  return { row: element("tr"), last: element("td", {}, button), button };
}

function cells(one) {
  const { connection, client, member, since, users, bytes: read, command, pending } = one;
  const user = users === null ? element("span", { class: "muted", title: "docward has not asked the server" }, "not asked")
    : users.length ? element("bdi", {}, visible(users.join(", "))) : element("span", { class: "muted" }, "none");
  const waits = command === null ? element("span", { class: "muted" }, "idle") : `${command} for ${duration(pending)}`;
  return [
    element("th", { scope: "row" }, `${number(connection)} `, element("span", { class: "muted" }, visible(client))),
    element("td", { "data-label": "Application" }, element("bdi", {}, visible(appOf(one)))),
    element("td", { "data-label": "User" }, user),
    element("td", { "data-label": "Member" }, element("bdi", {}, visible(member))),
    element("td", { "data-label": "Open for" }, timeElement(since, duration(reply.now - since))),
    element("td", { class: "number", "data-label": "From client" }, bytes(read.client)),
    element("td", { class: "number", "data-label": "From upstream" }, bytes(read.upstream)),
    element("td", { "data-label": "Waits for" }, waits),
  ];
}

/** The row may have moved under the pointer, so the question names the connection. */
async function ask(connection, button) {
  const one = reply.connections.find((one) => one.connection === connection);
  if (!one) return;
  const about = [`${appOf(one)}, ${one.users?.join(", ") || "no known user"}, from ${one.client}. `
    + `It ${one.command === null ? "is idle" : `waits for ${one.command}`}. Its driver connects again.`];
  if (await confirmed(`Close connection ${number(connection)}?`, about.map(visible), "Close it")) await close(connection, button);
}

async function close(connection, button) {
  button.disabled = true;
  setText(byId("connections-problem"), "");
  try {
    await closeConnection(connection);
  } catch (error) {
    button.disabled = false;
    setText(byId("connections-problem"), `Connection ${number(connection)} is not closed: ${problemOf(error)}`);
  }
}
