// Small parts that several sections show.

import { element } from "./dom.js";
import { number, utc } from "./text.js";

const KINDS = {
  reject: "rejected", rewrite: "rewritten", shadow: "shadow", except: "excepted", forward: "forwarded",
  conflict: "ineffective", no_match: "ineffective", stale: "ineffective",
};

/** @param {string} verdict as in the API: "reject", "shadow-reject" */
export function verdictElement(verdict) {
  return element("span", { class: `verdict ${kindOf(verdict)}` }, verdict);
}

/** The CSS class of a verdict. */
export function kindOf(verdict) {
  return KINDS[verdict.split("-")[0]] ?? "warned";
}

/** @param {number} at milliseconds since 1970 UTC */
export function timeElement(at, text) {
  return element("time", { datetime: new Date(at).toISOString(), title: utc(at) }, text);
}

/** A zero is less visible. */
export function numberCell(count, label) {
  return element("td", { class: count ? "number" : "number zero", "data-label": label }, number(count));
}
