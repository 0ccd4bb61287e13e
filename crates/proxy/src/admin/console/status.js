// The summary at the top: state, rule set, connections, members and problems.

import { byId, element, setText } from "./dom.js";
import { timeElement } from "./pieces.js";
import { added, kindWords, minutesOf, plot, totals } from "./plot.js";
import { counted, duration, number, time, utc, visible, visibleLines } from "./text.js";

const PHASES = { starting: "Starting", draining: "Draining", handed_over: "Handed over" };

/** @param {any} status */
export function showStatus(status) {
  showState(status);
  setText(byId("process"), `up ${duration(status.now - status.started)} · version ${visible(status.version)}`);
  byId("process").title = `since ${utc(status.started)}`;
  showRuleSet(status);
  setText(byId("connections"), number(status.connections.open));
  setText(byId("query-listener"), status.query_listener ? `query listener ${visible(status.query_listener)}` : "");
  byId("certificates").replaceChildren(...certificates(status.certificates));
  byId("members").replaceChildren(...members(status.members, status.pools));
  byId("waiting-table").hidden = !status.waiting.length;
  byId("waiting").replaceChildren(...status.waiting.map(waiting));
  byId("workers-table").hidden = !status.workers.length;
  byId("workers").replaceChildren(...status.workers.map(worker));
}

/** The requests of an application that wait for a server connection. */
function waiting({ app, user, member, waiting, oldest_wait: oldest }) {
  const name = (text, none) => text ? element("bdi", {}, visible(text)) : element("span", { class: "muted" }, none);
  return element("tr", {},
    element("th", { scope: "row" }, name(app, "without a name")),
    element("td", { "data-label": "User" }, name(user, "not logged in")),
    element("td", { "data-label": "Member" }, visible(member)),
    element("td", { "data-label": "Waiting" }, `${number(waiting)}, the oldest for ${duration(oldest)}`));
}

/** The background work of one rule. */
function worker({ rule, pattern, changes, unknown, state, lag, error }) {
  return element("tr", {},
    element("th", { scope: "row" }, element("bdi", {}, visible(rule))),
    element("td", { "data-label": "Pattern" }, visible(pattern)),
    element("td", { "data-label": "Changes" }, number(changes), unknown ? `, ${number(unknown)} unknown` : ""),
    element("td", { "data-label": "State" }, ...workerState(state, lag, error)));
}

function workerState(state, lag, error) {
  if (state === "works") return [element("span", { class: "ok" }, "works"), lag < 2000 ? "" : `, ${duration(lag)} behind`];
  if (state === "fails") return [element("span", { class: "wrong" }, "does not work"), `: ${visible(error)}`];
  return [element("span", { class: "muted" }, "waits: another process works")];
}

/** docward's own certificates with the end of their validity. */
function certificates(list) {
  return list.map(({ side, expires_at: end }) => element("span", {}, `certificate (${side}) until `, timeElement(end, utc(end)), " "));
}

function showState({ phase, ready }) {
  const name = PHASES[phase] ?? (ready ? "Ready" : "Not ready");
  const kind = phase === "serving" && ready ? "good" : "bad";
  setState(phase === "serving" ? kind : "passing", name);
}

/** @param {"good" | "bad" | "passing"} kind */
export function setState(kind, name) {
  byId("state").dataset.kind = kind;
  setText(byId("state-name"), name);
  document.title = `${name} · docward`;
}

function showRuleSet({ set, reloads }) {
  setText(byId("rule-count"), number(set.rules));
  byId("rule-set").replaceChildren(
    "set ", element("code", {}, set.hash), " loaded ", timeElement(set.loaded_at, time(set.loaded_at)));
  const failed = reloads.failed ? `, ${number(reloads.failed)} failed` : "";
  setText(byId("reloads"), `${counted(reloads.loaded, "reload", "reloads")} since start${failed}`);
}

function members(members, pools) {
  if (!members.length) {
    const words = "No member is known yet. Check --upstream.";
    return [element("tr", {}, element("td", { colspan: "4", class: "muted" }, words))];
  }
  return members.map((member) => element("tr", {},
    element("th", { scope: "row" }, element("bdi", {}, visible(member.name)), dialed(member)),
    element("td", { "data-label": "Listener" }, listener(member)),
    element("td", { "data-label": "Connections" }, number(member.connections), shared(member, pools)),
    element("td", { "data-label": "State" }, ...memberState(member))));
}

/** The server connections that the clients of a member share. */
function shared({ address }, pools) {
  const pool = pools.find((pool) => pool.member === address);
  if (!pool) return "";
  const open = number(pool.active + pool.idle + pool.pinned);
  const waiting = pool.waiting ? `, ${counted(pool.waiting, "request waits", "requests wait")}` : "";
  return element("span", { class: "muted" }, ` share ${open}${waiting}`);
}

function dialed({ name, address }) {
  return name === address ? "" : element("span", { class: "muted" }, ` at ${visible(address)}`);
}

function listener({ listener, advertised }) {
  if (!listener) return element("span", { class: "muted" }, "none: clients do not see this member");
  return element("span", {}, visible(listener), advertised ? ` as ${visible(advertised)}` : "");
}

function memberState({ role, up, error, lag }) {
  if (up) return [element("span", { class: "ok" }, role ?? "replies"), behind(role, lag)];
  return [element("span", { class: "wrong" }, "does not reply"), error ? `: ${visible(error)}` : ""];
}

/** How far a secondary is behind the primary. */
function behind(role, lag) {
  if (role !== "secondary" || lag === null) return "";
  return lag < 1000 ? ", up to date" : `, ${duration(lag)} behind`;
}

/** The decisions of all rules, added up. */
export function showHour({ rules, now, minutes: span }) {
  const minutes = added(rules.map(minutesOf));
  const counts = totals(minutes).filter(({ count }) => count > 0);
  byId("hour").replaceChildren(...(counts.length ? counts.map(legend) : ["none"]));
  byId("hour-plot").replaceChildren(plot(minutes, { now, span, about: "All rules" }));
}

function legend({ kind, count }) {
  const swatch = element("span", { class: `swatch ${kind}`, "aria-hidden": "true" });
  return element("span", { class: "legend" }, swatch, `${number(count)} ${kindWords(kind)}`);
}

/** The current problems; announced once, until they change. */
export function showNotices({ reasons, reloads, set }) {
  const notices = reasons.map(({ code, message }) => ({ key: code, nodes: () => [element("p", {}, visible(message))] }));
  if (reloads.last_error) {
    const text = visibleLines(reloads.last_error);
    const nodes = () => [reloadWords(reloads, set), element("pre", { tabindex: "0" }, text)];
    notices.push({ key: `reload ${reloads.tried_at} ${reloads.last_error}`, nodes });
  }
  setNotices(notices);
}

function reloadWords(reloads, set) {
  return element("p", {},
    element("strong", {}, "The last reload failed"), " ",
    "at ", timeElement(reloads.tried_at, time(reloads.tried_at)),
    "; the rules loaded at ", timeElement(set.loaded_at, time(set.loaded_at)),
    " stay in force. Correct the file; docward then loads it by itself.");
}

/** @param {{key: string, nodes: () => Node[]}[]} notices */
export function setNotices(notices) {
  const place = byId("notices");
  const key = JSON.stringify(notices.map((notice) => notice.key));
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  place.replaceChildren(...notices.map((notice) => element("div", { class: "notice" }, ...notice.nodes())));
}
