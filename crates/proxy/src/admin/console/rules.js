// The table of rules, the one with the newest decision first.

import { arrange, byId, element, setText, words } from "./dom.js";
import { numberCell, timeElement } from "./pieces.js";
import { ModeControl, overrideText } from "./mode.js";
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

/** @type {Map<string, Row>} by rule */
const rows = new Map();
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
  byId("rules-filter").addEventListener("input", draw);
  byId("rules-more").addEventListener("click", () => {
    all = true;
    draw();
  });
  byId("rules-removed").addEventListener("click", () => {
    removed = !removed;
    draw();
  });
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

/** Rows keep their order while the pointer is over the table or the focus is in it. */
function inOrder(found) {
  const table = byId("rules-table");
  const held = table.matches(":hover") || table.contains(document.activeElement);
  const places = new Map([...table.tBodies].map((body, place) => [body.dataset.key, place]));
  const place = (rule) => places.get(keyOf(rule)) ?? Infinity;
  const recent = (one, other) => (other.last ?? 0) - (one.last ?? 0) || Number(other.loaded) - Number(one.loaded);
  const byPlace = (one, other) => (place(one) === place(other) ? recent(one, other) : place(one) - place(other));
  return found.toSorted(held ? byPlace : recent);
}

/** A rule that is no longer loaded is shown if it has decisions. */
function matches(rule) {
  if (!rule.loaded && rule.last === null) return false;
  const wanted = /** @type {HTMLInputElement} */ (byId("rules-filter")).value.trim().toLowerCase();
  const { pattern, namespaces, mode } = rule.written;
  return [rule.name, pattern, mode, ...namespaces].some((text) => text.toLowerCase().includes(wanted));
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
  if (!found) return "No rule contains this text in its name, namespace, pattern or mode.";
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
      ...(loaded ? [] : [element("span", { class: "unloaded" }, "no longer loaded")]));
    return this.name;
  }

  cells() {
    const { outcomes, written, last, since } = this.rule;
    const { now, minutes: span } = this.report;
    const counts = Object.entries(COLUMNS_OF).map(([label, kinds]) =>
      numberCell(kinds.reduce((sum, outcome) => sum + (outcomes[outcome] ?? 0), 0), label));
    this.last = last === null ? element("span", { class: "muted" }, noDecisions(written)) : timeElement(last, ago(last));
    return [
      element("td", { "data-label": "Mode" }, element("span", { class: `mode ${written.mode}` }, written.mode), ...overrideText(this.rule)),
      ...counts,
      element("td", { class: "plot", "data-label": "Last hour" },
        plot(minutesOf(this.rule), { now, span, about: visible(this.rule.name) })),
      element("td", { class: "when", "data-label": "Last decision" }, this.last),
      element("td", { class: "when", "data-label": "Since" }, timeElement(since, time(since))),
    ];
  }
}
