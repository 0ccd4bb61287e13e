// The table of rules. Its order changes only when the user does something: a row must not move away under the eyes.

import { arrange, byId, element, setText, words } from "./dom.js";
import { numberCell, timeElement } from "./pieces.js";
import { ModeControl, clients, overrideText } from "./mode.js";
import { minutesOf, plot } from "./plot.js";
import { decisionsPart, definitionPart } from "./rule.js";
import { ago, counted, number, time, visible } from "./text.js";

/** Rows shown until the user asks for all. */
const ROWS = 100;
const COLUMNS = 11;

/** The outcomes that each column counts. */
const COLUMNS_OF = {
  Rejected: ["reject"],
  "No effect": ["conflict", "no_match", "stale"],
  Rewritten: ["rewrite", "check"],
  Shadow: ["shadow-reject", "shadow-rewrite", "shadow-check"],
  Excepted: ["except-reject", "except-rewrite", "except-check"],
  Warned: ["warn", "allow"],
};

const descending = (column) => (one, other) => countOf(other, column) - countOf(one, column);
/** The orders that can be chosen; after them, by name. */
const ORDERS = {
  rejected: (one, other) => descending("Rejected")(one, other) || descending("Shadow")(one, other),
  last: (one, other) => (other.last ?? 0) - (one.last ?? 0),
  name: () => 0,
};

/** @type {Map<string, Row>} by rule */
const rows = new Map();
/** @type {Map<string, number>} by rule, since the user last did something */
const places = new Map();
let report = { rules: [], now: 0, minutes: 60 };
let all = false;
/** Rules that are no longer loaded are shown. */
let removed = false;
let opened = 0;

/** @param {any} reply of `api/rules` */
export function showRules(reply) {
  report = reply;
  const keys = new Set(reply.rules.map(keyOf));
  for (const key of rows.keys()) if (!keys.has(key)) rows.delete(key);
  draw();
}

export function startRules() {
  byId("rules-filter").addEventListener("input", drawInOrder);
  byId("rules-order").addEventListener("input", drawInOrder);
  byId("rules-more").addEventListener("click", () => {
    all = true;
    drawInOrder();
  });
  byId("rules-removed").addEventListener("click", () => {
    removed = !removed;
    drawInOrder();
  });
}

function drawInOrder() {
  places.clear();
  draw();
}

function draw() {
  const every = report.rules.filter(matches);
  const gone = every.filter((rule) => !rule.loaded);
  const found = removed ? every : every.filter((rule) => rule.loaded);
  const shown = inOrder(found).slice(0, all ? Infinity : ROWS);
  for (const rule of shown) rowOf(rule).show(rule, report);
  const table = byId("rules-table");
  arrange(table, shown.map((rule) => rowOf(rule).body), table.querySelector("tbody"));
  table.hidden = !shown.length;
  showEmpty(found.length);
  const more = byId("rules-more");
  more.hidden = shown.length === found.length;
  setText(more, `Show all ${number(found.length)} rules`);
  const fold = byId("rules-removed");
  fold.hidden = !gone.length;
  fold.setAttribute("aria-expanded", String(removed));
  const rules = counted(gone.length, "rule that is", "rules that are");
  setText(fold, `${removed ? "Hide" : "Show"} ${rules} no longer loaded`);
}

/** New rules come last. */
function inOrder(found) {
  const chosen = ORDERS[/** @type {HTMLSelectElement} */ (byId("rules-order")).value];
  const place = (rule) => places.get(keyOf(rule)) ?? places.size;
  const sorted = found.toSorted((one, other) => place(one) - place(other) || Number(other.loaded) - Number(one.loaded)
    || chosen(one, other) || one.name.localeCompare(other.name));
  for (const rule of sorted) if (!places.has(keyOf(rule))) places.set(keyOf(rule), places.size);
  return sorted;
}

/** A rule that is no longer loaded is shown if it has decisions. */
function matches(rule) {
  if (!rule.loaded && rule.last === null) return false;
  const wanted = /** @type {HTMLInputElement} */ (byId("rules-filter")).value.trim().toLowerCase();
  const { pattern, namespaces, mode, override } = rule.written;
  const overridden = override ? `override ${override.mode}${clients(override)}` : "";
  const texts = [rule.name, pattern, mode, overridden, ...namespaces, ...Object.keys(rule.outcomes)];
  return texts.some((text) => text.toLowerCase().includes(wanted));
}

/** The number in a column. Of commands that a `throttle` rule would have rejected there are no decisions. */
function countOf({ outcomes, permits }, column) {
  const decided = COLUMNS_OF[column].reduce((sum, outcome) => sum + (outcomes[outcome] ?? 0), 0);
  return decided + (column === "Shadow" ? permits?.rejected.shadow ?? 0 : 0);
}

function showEmpty(found) {
  const { rules } = report;
  const loaded = rules.filter((rule) => rule.loaded).length;
  const empty = byId("rules-empty");
  empty.hidden = found > 0 && rules.some((rule) => rule.last !== null);
  setText(byId("rules-shown"), `${number(Math.min(found, loaded))} of ${counted(loaded, "rule", "rules")}`);
  if (!empty.hidden) empty.replaceChildren(...words(emptyWords(loaded, found)));
}

function emptyWords(loaded, found) {
  if (!loaded && !found) {
    return "No rules are loaded. docward forwards everything unchanged. Set `rules:` in `docward.yaml` or `--rules PATH`. "
      + "`docward suggest` proposes rules from recorded traffic.";
  }
  if (!found) return "No rule contains this text in its name, namespace, pattern, mode, override or outcomes.";
  return "No rule has matched yet: no client has sent a statement that a rule matches. The playground below shows what the "
    + "rules do to a command.";
}

function rowOf(rule) {
  const key = keyOf(rule);
  const known = rows.get(key) ?? new Row(key, rule);
  rows.set(key, known);
  return known;
}

/** A changed rule is another rule: its counts start at 0. */
function keyOf(rule) {
  return `${rule.name} ${rule.fingerprint}`;
}

/** docward does not count the options that `defaults` adds. */
function noDecisions({ pattern, mode }) {
  return pattern === "defaults" && mode === "enforce" ? "not counted" : "never";
}

/** A rule's row, and below it, when it is open, its details. */
class Row {
  constructor(key, rule) {
    this.shownState = "";
    const id = `rule-${(opened += 1)}`;
    const control = { type: "button", class: "rule-name", "aria-expanded": "false", "aria-controls": id };
    this.button = element("button", control, element("bdi", {}, visible(rule.name)));
    this.head = element("tr", { class: "rule" });
    this.details = element("tr", { id, class: "details", hidden: "" });
    this.body = element("tbody", {}, this.head, this.details);
    this.body.dataset.key = key;
    this.head.addEventListener("click", () => this.toggle());
  }

  get isOpen() {
    return !this.details.hidden;
  }

  toggle() {
    this.details.hidden = this.isOpen;
    this.button.setAttribute("aria-expanded", String(this.isOpen));
    if (this.isOpen) this.showDetails();
  }

  show(rule, report) {
    const state = JSON.stringify(rule);
    const changed = state !== this.shownState;
    [this.rule, this.report, this.shownState] = [rule, report, state];
    // The plot moves with every minute.
    const minute = Math.floor(report.now / 60_000);
    if (changed || minute !== this.minute) {
      this.minute = minute;
      this.head.classList.toggle("unmatched", rule.last === null);
      this.head.replaceChildren(this.nameCell(), ...this.cells());
      if (this.isOpen) this.showDetails();
    }
    if (rule.last !== null) setText(this.last, ago(rule.last));
  }

  showDetails() {
    if (!this.contents) {
      this.control = new ModeControl(this.rule);
      this.contents = element("div", { class: "contents" },
        element("div", {}, definitionPart(this.rule), this.control.element), "");
      this.details.append(element("td", { colspan: String(COLUMNS) }, this.contents));
    }
    this.control.show(this.rule);
    this.contents.lastChild.replaceWith(decisionsPart(this.rule, this.report));
  }

  /** Built once, so that its button keeps the focus. */
  nameCell() {
    const { written, loaded } = this.rule;
    this.name ??= element("th", { scope: "row" }, this.button);
    while (this.name.lastChild !== this.button) this.name.lastChild.remove();
    const [first, ...others] = written.namespaces;
    this.name.append(
      element("span", { class: "about" }, `${written.pattern} · `, element("bdi", {}, visible(first ?? "")),
        others.length ? ` and ${number(others.length)} more` : ""),
      ...overrideText(this.rule),
      ...(loaded ? [] : [element("span", { class: "unloaded" }, "no longer loaded")]));
    return this.name;
  }

  cells() {
    const { written, last, since } = this.rule;
    const { now, minutes: span } = this.report;
    const counts = Object.keys(COLUMNS_OF).map((column) => numberCell(countOf(this.rule, column), column));
    this.last = last === null ? element("span", { class: "muted" }, noDecisions(written)) : timeElement(last, ago(last));
    return [
      element("td", { "data-label": "Mode" }, element("span", { class: `mode ${written.mode}` }, written.mode)),
      ...counts,
      element("td", { class: "plot", "data-label": "Last hour" },
        plot(minutesOf(this.rule), { now, span, about: visible(this.rule.name) })),
      element("td", { class: "when", "data-label": "Last decision" }, this.last),
      element("td", { class: "when", "data-label": "Since" }, timeElement(since, time(since))),
    ];
  }
}
