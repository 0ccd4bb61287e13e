// The console: polls docward every few seconds and shows its state.

import { showAllRules, startAllRules } from "./all.js";
import { showApplications, startApplication } from "./application.js";
import { showCapture, startCapture } from "./capture.js";
import { showConnections, startConnections } from "./connections.js";
import { byId, element, setText } from "./dom.js";
import { timeElement } from "./pieces.js";
import { startPlayground } from "./playground.js";
import { showRules, startRules } from "./rules.js";
import { RequestError, ask, token } from "./api.js";
import { showSlowest } from "./slowest.js";
import { setNotices, setState, showHour, showNotices, showStatus } from "./status.js";
import { followDecisions, offerRules, startTail } from "./tail.js";
import { setClock, time, visible } from "./text.js";

const INTERVAL = 3000;
/** The delay of the next poll after a decision. */
const SOON = 500;

/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
let due = 0;
let asking = false;
let lastSeen = 0;

function start() {
  startRules();
  startAllRules();
  startConnections();
  startCapture();
  startApplication();
  startPlayground();
  startTail(() => refreshIn(SOON));
  byId("token-form").addEventListener("submit", open);
  byId("forget").addEventListener("click", forget);
  document.addEventListener("visibilitychange", () => refreshIn(0));
  addEventListener("online", () => refreshIn(0));
  refresh();
}

/** Does nothing if an earlier poll is scheduled. A hidden page does not poll. */
function refreshIn(milliseconds) {
  const at = Date.now() + milliseconds;
  if (asking || (timer !== undefined && due <= at)) return;
  clearTimeout(timer);
  timer = undefined;
  if (document.hidden) return;
  due = at;
  timer = setTimeout(refresh, milliseconds);
}

async function refresh() {
  timer = undefined;
  asking = true;
  try {
    const paths = ["api/status", "api/rules", "api/connections", "api/slowest", "api/capture"];
    const [status, rules, open, slowest, capture] = await Promise.all(paths.map(ask));
    show(status, rules, open, slowest);
    showCapture(capture);
    followDecisions();
  } catch (error) {
    fail(error);
  } finally {
    asking = false;
    if (byId("token").hidden) refreshIn(INTERVAL);
  }
}

function show(status, rules, open, slowest) {
  setClock(status.now);
  lastSeen = status.now;
  document.body.classList.remove("stale");
  byId("token").hidden = true;
  for (const id of ["content", "sections"]) byId(id).hidden = false;
  byId("forget").hidden = !token.get();
  showStatus(status);
  showNotices(status);
  showHour(rules);
  showRules(rules);
  showAllRules();
  showConnections(open);
  showSlowest(slowest);
  showApplications(rules);
  offerRules(rules.rules.map((rule) => rule.name));
}

function fail(error) {
  if (error instanceof RequestError && error.status === 401) {
    askForToken();
    return;
  }
  // The page keeps the last known values.
  document.body.classList.add("stale");
  setState("bad", "No connection");
  const what = error instanceof RequestError ? visible(error.message) : "docward does not reply";
  setNotices([{ key: `lost ${what}`, nodes: () => [connectionLost(what)] }]);
  if (!(error instanceof RequestError || error instanceof TypeError || error instanceof DOMException)) console.error(error);
}

function connectionLost(what) {
  const since = lastSeen ? ["; the values on this page are from ", timeElement(lastSeen, time(lastSeen))] : [];
  return element("p", {}, what, ...since, ". The console retries every few seconds.");
}

function askForToken() {
  const wrong = token.get() !== null;
  token.forget();
  for (const id of ["content", "sections"]) byId(id).hidden = true;
  setNotices([]);
  setState("passing", "Locked");
  setText(byId("process"), "");
  setText(byId("token-error"), wrong ? "This token is wrong." : "");
  byId("token").hidden = false;
  byId("token-text").focus();
}

function open(event) {
  event.preventDefault();
  const field = /** @type {HTMLInputElement} */ (byId("token-text"));
  token.set(field.value.trim());
  field.value = "";
  refresh();
}

function forget() {
  token.forget();
  location.reload();
}

start();
