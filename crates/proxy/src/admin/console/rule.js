// The details of one rule: why, text, outcomes, applications, examples.

import { element } from "./dom.js";
import { countsTable, kindOf, numberCell, outcomeWords, timeElement } from "./pieces.js";
import { inWords, minutesOf, plot } from "./plot.js";
import { counted, number, time, visible, visibleLines } from "./text.js";

/** The part that does not change while the rule is the same. */
export function definitionPart(rule) {
  const { written } = rule;
  const why = written.why ? [element("p", {}, element("strong", {}, "Why: "), visibleLines(written.why))] : [];
  return element("div", { class: "written" },
    ...why,
    element("p", { class: "muted" }, element("bdi", {}, `${visible(written.file)}:${written.line}`),
      written.namespaces.length > 1 ? ` · ${written.namespaces.map(visible).join(", ")}` : ""),
    element("pre", { class: "source", tabindex: "0", "aria-label": `Text of the rule ${visible(rule.name)}` },
      visibleLines(dedented(written.source))));
}

/** The rule's text without the indentation of the list it is in. */
function dedented(text) {
  const indentation = /^ */.exec(text)?.[0].length ?? 0;
  return text.split("\n").map((line) => line.slice(Math.min(indentation, line.search(/[^ ]|$/)))).join("\n");
}

/** The rule's decisions until now. */
export function decisionsPart(rule, { now, minutes: span }) {
  const minutes = minutesOf(rule);
  return element("div", { class: "decisions" },
    element("h3", {}, "Last hour"),
    element("div", { class: "plot large" }, plot(minutes, { now, span, about: visible(rule.name) })),
    axis(`${counted(span, "minute", "minutes")} ago`, inWords(minutes), "now"),
    outcomes(rule),
    permits(rule),
    applications(rule),
    examples(rule));
}

/** Hidden from screen readers: the SVG has the same text. */
function axis(...texts) {
  return element("p", { class: "axis", "aria-hidden": "true" }, ...texts.map((text) => element("span", {}, text)));
}

function outcomes({ outcomes, since }) {
  const counts = Object.entries(outcomes).map(([outcome, count]) => `${outcome} × ${number(count)}`).join(", ");
  return element("p", {}, "Since ", timeElement(since, time(since)), `: ${counts || "no decisions"}.`);
}

/** What a `throttle` rule does now. */
function permits({ permits, written }) {
  if (!permits) return "";
  const { held, waiting, oldest_wait: oldest, waited, rejected, clients, more_clients: more } = permits;
  const mode = written.mode === "shadow" ? "shadow" : "enforce";
  const [waits, waitedSince, were] = mode === "shadow"
    ? ["would wait", "would have waited", "would have been"] : [waiting === 1 ? "waits" : "wait", "waited", rejected[mode] === 1 ? "was" : "were"];
  const now = `${counted(held, "command holds", "commands hold")} a permit, ${number(waiting)} ${waits}`
    + `${waiting ? `, the oldest for ${inSeconds(oldest)}` : ""}.`;
  const since = ` Since the start of docward ${number(waited[mode])} ${waitedSince}, and ${number(rejected[mode])} ${were} rejected.`;
  const parts = [element("h3", {}, "Permits"), element("p", {}, now, since)];
  if (clients.length) parts.push(permitsByClient(clients, more));
  return element("div", { class: "permits" }, ...parts);
}

function permitsByClient(clients, more) {
  const rows = clients.map(({ name, held, waiting, oldest_wait: oldest }) => element("tr", {},
    element("th", { scope: "row" }, name ? element("bdi", {}, visible(name)) : element("span", { class: "muted" }, "without a name")),
    numberCell(held, "permits"), numberCell(waiting, "waiting"),
    element("td", { class: "number", "data-label": "oldest wait" }, waiting ? inSeconds(oldest) : "")));
  const head = { app: "Application", user: "User", client: "Host" }[clients[0].per];
  const heads = ["permits", "waiting", "oldest wait"].map((name) => element("th", { scope: "col", class: "number" }, name));
  return element("table", { class: "plain-table" },
    element("caption", {}, `Clients that hold permits or wait${more ? `; ${number(more)} more are not listed` : ""}`),
    element("thead", {}, element("tr", {}, element("th", { scope: "col" }, head), ...heads)),
    element("tbody", {}, ...rows));
}

/** "1.2 s" */
function inSeconds(milliseconds) {
  return `${(milliseconds / 1000).toFixed(1)} s`;
}

function applications({ apps, more_apps: more }) {
  if (!apps.length) return "";
  return countsTable(`Applications${more ? `; ${number(more)} more are not listed` : ""}`, "Application",
    apps.map((app) => ({ name: [element("bdi", {}, visible(app.app))], counts: app })));
}

function examples({ examples }) {
  const isShadow = ({ outcome }) => kindOf(outcome) === "shadow";
  return element("div", {},
    ...examplesPart("Statements it stopped or warned about", examples.filter((one) => !isShadow(one))),
    ...examplesPart("Statements it would have rejected or rewritten", examples.filter(isShadow)));
}

function examplesPart(title, examples) {
  if (!examples.length) return [];
  const items = examples.map((example) => element("li", {},
    element("span", { class: `outcome ${kindOf(example.outcome)}` }, outcomeWords(example.outcome)), " ",
    `${number(example.statements)} × `, element("bdi", {}, visible(example.namespace)), " ",
    element("code", { class: "shape" }, visible(example.shape)),
    element("p", { class: "muted" },
      [example.reason, `first by ${example.app}${example.users ? ` as ${example.users}` : ""}`].filter(Boolean).map(visible).join(" · "),
      ...(example.last ? [" · last at ", timeElement(example.last, time(example.last))] : []))));
  return [element("h3", {}, title), element("ul", { class: "examples" }, ...items)];
}
