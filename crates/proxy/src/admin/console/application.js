// The page of one application: what each rule did to its statements, and its open connections.

import { byId, element, setText } from "./dom.js";
import { connectionsOf } from "./connections.js";
import { overrideText } from "./mode.js";
import { countsTable } from "./pieces.js";
import { showDecisionsOf } from "./tail.js";
import { counted, duration, visible } from "./text.js";

/** The address of the page of an application: `#application=NAME`. */
const HASH = "#application=";

let report = { rules: [], now: 0 };
let drawn = "";

export function startApplication() {
  select().addEventListener("input", () => {
    const name = select().value;
    history.replaceState(null, "", name ? `${HASH}${encodeURIComponent(name)}` : location.pathname);
    draw();
  });
  byId("application-decisions").addEventListener("click", () => showDecisionsOf(select().value));
  addEventListener("hashchange", follow);
}

/** @param {any} reply of `api/rules` */
export function showApplications(reply) {
  const first = !report.rules.length;
  report = reply;
  offer();
  if (first) follow();
  draw();
}

function select() {
  return /** @type {HTMLSelectElement} */ (byId("application"));
}

/** Opens the page that the address names. */
function follow() {
  if (!location.hash.startsWith(HASH)) return;
  const wanted = decodeURIComponent(location.hash.slice(HASH.length));
  select().value = wanted;
  draw();
  if (select().value === wanted) byId("applications").scrollIntoView();
}

function offer() {
  const names = [...new Set(report.rules.flatMap((rule) => rule.apps.map(({ app }) => app)))].sort();
  const key = JSON.stringify(names);
  byId("application-empty").hidden = names.length > 0;
  if (select().dataset.names === key) return;
  select().dataset.names = key;
  const chosen = select().value;
  select().replaceChildren(element("option", { value: "" }, "choose"),
    ...names.map((name) => element("option", { value: name }, visible(name))));
  select().value = names.includes(chosen) ? chosen : "";
}

function draw() {
  const name = select().value;
  byId("application-decisions").hidden = !name;
  const found = report.rules.flatMap((rule) =>
    rule.apps.filter(({ app }) => app === name).map((counts) => ({ rule, counts })));
  const open = name ? connectionsOf(name) : [];
  const state = JSON.stringify([name, found.map(({ rule, counts }) => [rule.name, rule.fingerprint, rule.loaded, rule.written, counts]), open]);
  if (state === drawn) return;
  drawn = state;
  byId("application-page").replaceChildren(...(name ? [rulesTable(found), connections(open)] : []));
}

function rulesTable(found) {
  const name = (rule) => [element("bdi", {}, visible(rule.name)),
    element("span", { class: "muted" }, ` ${rule.written.mode}${rule.loaded ? "" : ", no longer loaded"}`), ...overrideText(rule)];
  return countsTable("What the rules did to its statements, or would have done in shadow mode", "Rule",
    found.map(({ rule, counts }) => ({ name: name(rule), counts })));
}

function connections(open) {
  const users = [...new Set(open.flatMap((one) => one.users ?? []))].sort();
  const busy = open.filter((one) => one.command !== null);
  const longest = Math.max(0, ...busy.map((one) => one.pending));
  const text = [
    `${counted(open.length, "open connection", "open connections")}`,
    busy.length ? `${counted(busy.length, "waits", "wait")} for a reply, the longest for ${duration(longest)}` : "",
    users.length ? `users ${users.map(visible).join(", ")}` : "",
  ];
  const line = element("p", { class: "muted" });
  setText(line, text.filter(Boolean).join(" · "));
  return line;
}
