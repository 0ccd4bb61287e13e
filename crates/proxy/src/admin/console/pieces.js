// Small parts that several sections show.

import { element } from "./dom.js";
import { number, utc } from "./text.js";

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

/** A zero is less visible. */
export function numberCell(count, label) {
  return element("td", { class: count ? "number" : "number zero", "data-label": label }, number(count));
}
