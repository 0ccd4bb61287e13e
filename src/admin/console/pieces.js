// Small parts that several sections show.

import { element } from "./dom.js";
import { number, utc } from "./text.js";

const KINDS = { reject: "rejected", rewrite: "rewritten", shadow: "shadow", except: "excepted", forward: "forwarded" };

/** @param {string} verdict "reject", "shadow-reject", as docward calls it */
export function verdictElement(verdict) {
  return element("span", { class: `verdict ${kindOf(verdict)}` }, verdict);
}

/** How a verdict is drawn; one of few words, whatever comes. */
export function kindOf(verdict) {
  return KINDS[verdict.split("-")[0]] ?? "warned";
}

/** @param {number} at milliseconds since 1970 UTC */
export function timeElement(at, text) {
  return element("time", { datetime: new Date(at).toISOString(), title: utc(at) }, text);
}

/** A zero is there, but does not draw the eye. */
export function numberCell(count, label) {
  return element("td", { class: count ? "number" : "number zero", "data-label": label }, number(count));
}
