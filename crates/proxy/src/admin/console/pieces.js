// Small parts that several sections show.

import { element } from "./dom.js";
import { number, utc } from "./text.js";

/** The outcomes that are counted by application, in the order of display. */
const COUNTED = ["reject", "conflict", "no_match", "stale", "rewrite", "check", "except", "warn", "allow"];

const KINDS = {
  reject: "rejected", rewrite: "rewritten", check: "rewritten", shadow: "shadow", except: "excepted", forward: "forwarded",
  conflict: "ineffective", no_match: "ineffective", stale: "ineffective",
};

/** @param {string} outcome as in the API: "reject", "shadow-reject" */
export function outcomeElement(outcome) {
  return element("span", { class: `outcome ${kindOf(outcome)}` }, outcome);
}

/** The CSS class of an outcome. */
export function kindOf(outcome) {
  return KINDS[outcome.split("-")[0]] ?? "warned";
}

/** @param {number} at milliseconds since 1970 UTC */
export function timeElement(at, text) {
  return element("time", { datetime: new Date(at).toISOString(), title: utc(at) }, text);
}

/** "no match" */
export function outcomeWords(outcome) {
  return outcome.replaceAll(/[_-]/g, " ");
}

/** Counts by outcome, those of shadow mode apart: "shadow-reject". */
function byOutcome({ shadow, ...all }) {
  const done = COUNTED.map((outcome) => [outcome, all[outcome] - (shadow[outcome] ?? 0)]);
  return Object.fromEntries([...done, ...Object.entries(shadow).map(([outcome, count]) => [`shadow-${outcome}`, count])]);
}

/**
 * A table with a column for each outcome that has a count.
 * @param {string} first the title of the first column
 * @param {{name: Node[], counts: any}[]} rows
 */
export function countsTable(caption, first, rows) {
  const counted = rows.map(({ name, counts }) => ({ name, counts: byOutcome(counts) }));
  const shown = Object.keys(counted[0]?.counts ?? {}).filter((outcome) => counted.some(({ counts }) => counts[outcome] > 0));
  const head = (outcome) => element("th", { scope: "col", class: "number" }, outcomeWords(outcome));
  return element("table", { class: "plain-table" },
    element("caption", {}, caption),
    element("thead", {}, element("tr", {}, element("th", { scope: "col" }, first), ...shown.map(head))),
    element("tbody", {}, ...counted.map(({ name, counts }) => element("tr", {},
      element("th", { scope: "row" }, ...name),
      ...shown.map((outcome) => numberCell(counts[outcome], outcomeWords(outcome)))))));
}

/** A zero is less visible. */
export function numberCell(count, label) {
  return element("td", { class: count ? "number" : "number zero", "data-label": label }, number(count));
}
