// A bounded number of decisions, as they happen, newest first.

import { byId, element, setText } from "./dom.js";
import { kindOf, outcomeElement, timeElement } from "./pieces.js";
import { RequestError, follow } from "./api.js";
import { counted, number, time, visible } from "./text.js";

/** The maximum of shown entries, and of waiting decisions. It is more than docward sends to a client that reconnects. */
const KEPT = 1300;
/** The minimum interval between announcements to screen readers. */
const ANNOUNCEMENT_INTERVAL = 10_000;

/** @type {Map<string, {decision: any, item: HTMLElement}>} shown, the oldest first */
const shown = new Map();
/** @type {Map<string, any>} not yet shown */
const waiting = new Map();
let paused = false;
let drawing = false;
let missed = 0;
let unannounced = 0;
let following = false;
let onDecision = () => {};

/** @param {() => void} listener called for every decision */
export function startTail(listener) {
  onDecision = listener;
  byId("tail-pause").addEventListener("click", () => setPaused(!paused));
  for (const id of ["tail-rule", "tail-outcome", "tail-app", "tail-text"]) byId(id).addEventListener("input", filter);
  setInterval(announce, ANNOUNCEMENT_INTERVAL);
  filter();
}

/** Receives until the connection ends. Does nothing if it is receiving already. */
export async function followDecisions() {
  if (following) return;
  following = true;
  try {
    await follow({ opened: () => setState("live"), event: take });
    setState("reconnecting …");
  } catch (error) {
    setState(error instanceof RequestError ? error.message : "no connection; retrying …");
  } finally {
    following = false;
  }
}

/** The names that the filter offers. */
export function offerRules(names) {
  offer("tail-rule", "all rules", names);
}

/** Shows only the decisions on statements of this application. */
export function showDecisionsOf(app) {
  offer("tail-app", "all applications", [...appsShown(), app]);
  /** @type {HTMLSelectElement} */ (byId("tail-app")).value = app;
  filter();
  byId("decisions").scrollIntoView();
}

/** The name of the application, as the counts of rules have it. */
function appOf({ app }) {
  return app ?? "(no appName)";
}

function appsShown() {
  return [...shown.values()].map(({ decision }) => appOf(decision));
}

function offer(id, everything, names) {
  const select = /** @type {HTMLSelectElement} */ (byId(id));
  const offered = [...new Set(names)].sort();
  if (select.dataset.names === JSON.stringify(offered)) return;
  select.dataset.names = JSON.stringify(offered);
  const chosen = select.value;
  select.replaceChildren(element("option", { value: "" }, everything),
    ...offered.map((name) => element("option", { value: name }, visible(name))));
  select.value = offered.includes(chosen) ? chosen : "";
  if (select.value !== chosen) filter();
}

function setState(text) {
  setText(byId("tail-state"), visible(text));
}

function take(name, data) {
  if (name === "missed") missed += data;
  if (name !== "decision") return;
  const key = `${data.at} ${data.number}`;
  if (shown.has(key) || waiting.has(key)) return;
  waiting.set(key, data);
  // One entry is for the note about suppressed decisions.
  if (waiting.size === KEPT) {
    waiting.delete(waiting.keys().next().value);
    missed += 1;
  }
  onDecision();
  showWaiting();
  drawSoon();
}

function setPaused(now) {
  paused = now;
  byId("tail-pause").setAttribute("aria-pressed", String(paused));
  showWaiting();
  if (!paused) drawSoon();
}

function showWaiting() {
  const count = waiting.size;
  setText(byId("tail-pause"), paused ? `Resume${count ? ` (${number(count)} waiting)` : ""}` : "Pause");
}

function drawSoon() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(draw);
}

function draw() {
  drawing = false;
  if (paused) return;
  const list = byId("tail");
  if (missed) list.prepend(missedItem());
  for (const [key, decision] of waiting) {
    const item = decisionItem(decision);
    item.dataset.key = key;
    shown.set(key, { decision, item });
    list.prepend(item);
  }
  unannounced += waiting.size;
  waiting.clear();
  while (list.childElementCount > KEPT) forget(list.lastElementChild);
  const chosen = /** @type {HTMLSelectElement} */ (byId("tail-app")).value;
  offer("tail-app", "all applications", chosen ? [...appsShown(), chosen] : appsShown());
  offer("tail-outcome", "all outcomes", [...shown.values()].map(({ decision }) => decision.outcome));
  filter();
}

function forget(item) {
  shown.delete(item.dataset.key);
  item.remove();
}

function missedItem() {
  const words = `${counted(missed, "decision was", "decisions were")} not shown here`;
  const item = element("li", { class: "muted missed" }, words);
  missed = 0;
  return item;
}

function filter() {
  const chosen = (id) => /** @type {HTMLSelectElement} */ (byId(id)).value;
  const [rule, outcome, app] = ["tail-rule", "tail-outcome", "tail-app"].map(chosen);
  const text = /** @type {HTMLInputElement} */ (byId("tail-text")).value.trim().toLowerCase();
  let found = 0;
  for (const { decision, item } of shown.values()) {
    item.hidden = Boolean((rule && decision.rule !== rule) || (outcome && decision.outcome !== outcome)
      || (app && appOf(decision) !== app) || (text && !searchText(decision).includes(text)));
    found += item.hidden ? 0 : 1;
  }
  const empty = byId("tail-empty");
  empty.hidden = found > 0;
  setText(empty, shown.size
    ? `None of the last ${counted(shown.size, "decision", "decisions")} has this rule, outcome, application and text.`
    : "No decisions yet. This list shows each statement that a rule rejects or rewrites, or would in shadow mode, when it "
      + "happens. It does not contain values of documents.");
}

function searchText({ outcome, namespace, shape, reason, app, users, client }) {
  return [outcome, namespace, shape, reason, app, users?.join(" "), client].join("\n").toLowerCase();
}

function decisionItem(decision) {
  const more = `${counted(decision.suppressed, "similar decision", "similar decisions")} suppressed before`;
  const many = decision.statements > 1 ? [` × ${number(decision.statements)}`] : [];
  return element("li", { class: `decision ${kindOf(decision.outcome)}` },
    element("p", { class: "line" },
      timeElement(decision.at, time(decision.at)), " ",
      outcomeElement(decision.outcome), " ",
      element("bdi", { class: "by" }, visible(decision.rule)), " on ",
      element("bdi", { class: "namespace" }, visible(decision.namespace)), ...many),
    element("p", {}, element("code", { class: "shape" }, visible(decision.shape))),
    element("p", { class: "muted sender" }, ...sender(decision)),
    ...(decision.reason ? [element("p", { class: "reason" }, visible(decision.reason))] : []),
    ...(decision.suppressed ? [element("p", { class: "muted" }, more)] : []));
}

function sender({ app, users, client, connection }) {
  const named = (label, text) => (text ? [`${label} `, element("bdi", {}, visible(text)), " · "] : []);
  const from = `${visible(client)} · connection ${number(connection)}`;
  return [...named("app", app), ...named("user", users?.join(", ")), from];
}

function announce() {
  if (!unannounced) return;
  const last = [...shown.values()].at(-1)?.decision;
  const words = last ? `; the last: ${last.outcome} by ${visible(last.rule)} on ${visible(last.namespace)}` : "";
  setText(byId("tail-news"), `${counted(unannounced, "new decision", "new decisions")}${words}`);
  unannounced = 0;
}
