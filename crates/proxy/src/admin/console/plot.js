// A plot of the last hour, minute by minute, with a text description.

import { drawn } from "./dom.js";
import { counted, number, time } from "./text.js";

const MINUTE = 60_000;
/** In units of the SVG's viewBox. The style sheet sets the displayed size. */
const BAR = 4;
const GAP = 1;
const HEIGHT = 40;
const LEAST_HEIGHT = 3;

/** From the bottom to the top. */
const KINDS = ["rejected", "ineffective", "rewritten", "shadow", "excepted", "warned"];
/** The words for kinds whose class name is another one. */
const WORDS = { ineffective: "without effect" };
let drawings = 0;

/**
 * @typedef {{at: number} & Record<string, number>} Minute statements by kind, of the minute that begins at `at`
 */

/**
 * A rule's decisions by kind. Those that it made while it was in shadow mode are of the kind `shadow`.
 * @param {any} rule
 * @returns {Minute[]}
 */
export function minutesOf({ history }) {
  return history.map(({ at, reject, rewrite, check, conflict, no_match: noMatch, stale, warn, allow, except, shadow }) => ({
    at,
    rejected: reject - shadow.reject,
    ineffective: conflict + noMatch + stale,
    rewritten: rewrite + check - shadow.rewrite - shadow.check,
    shadow: shadow.reject + shadow.rewrite + shadow.check,
    excepted: except,
    warned: warn + allow,
  }));
}

/**
 * @param {Minute[][]} histories
 * @returns {Minute[]}
 */
export function added(histories) {
  const minutes = new Map();
  for (const minute of histories.flat()) {
    const sum = minutes.get(minute.at) ?? { at: minute.at };
    for (const kind of KINDS) sum[kind] = (sum[kind] ?? 0) + minute[kind];
    minutes.set(minute.at, sum);
  }
  return [...minutes.values()].sort((one, other) => one.at - other.at);
}

/** @param {Minute[]} minutes */
export function totals(minutes) {
  return KINDS.map((kind) => ({ kind, count: minutes.reduce((sum, minute) => sum + minute[kind], 0) }));
}

/** "without effect" */
export function kindWords(kind) {
  return WORDS[kind] ?? kind;
}

/** "12 rejected, 3 rewritten" */
export function inWords(minutes) {
  const counts = totals(minutes).filter(({ count }) => count > 0).map(({ kind, count }) => `${number(count)} ${kindWords(kind)}`);
  return counts.join(", ") || "none";
}

/**
 * @param {Minute[]} minutes
 * @param {{now: number, span: number, about: string}} frame the server's time, the number of minutes, the name of the rule
 */
export function plot(minutes, { now, span, about }) {
  const id = `plot-${(drawings += 1)}`;
  const highest = Math.max(1, ...minutes.map(total));
  const last = Math.floor(now / MINUTE);
  const column = ({ at }) => (span - 1 - (last - Math.floor(at / MINUTE))) * (BAR + GAP);
  const width = span * (BAR + GAP) - GAP;
  const paths = KINDS.map((kind) => drawn("path", { class: kind, d: bars(minutes, kind, column, highest) }));
  return drawn("svg", {
    class: "history", viewBox: `0 0 ${width} ${HEIGHT}`, preserveAspectRatio: "none",
    role: "img", "aria-labelledby": `${id}-title`, "aria-describedby": `${id}-desc`,
  },
  drawn("title", { id: `${id}-title` },
    `${about} in the last ${counted(span, "minute", "minutes")}: ${inWords(minutes)}`),
  drawn("desc", { id: `${id}-desc` }, described(minutes, highest)),
  drawn("path", { class: "base", d: `M0 ${HEIGHT - 0.5}H${width}` }),
  ...paths.filter((path) => path.getAttribute("d")));
}

function described(minutes, highest) {
  if (!minutes.length) return "No bar: no decisions.";
  const peak = minutes.find((minute) => total(minute) === highest) ?? minutes[0];
  return `The highest bar is ${counted(highest, "statement", "statements")}, at ${time(peak.at)}; `
    + `the first bar is at ${time(minutes[0].at)}, the last at ${time(minutes.at(-1).at)}.`;
}

function bars(minutes, kind, column, highest) {
  return minutes.filter((minute) => minute[kind] > 0).map((minute) => {
    const below = KINDS.slice(0, KINDS.indexOf(kind)).reduce((sum, other) => sum + minute[other], 0);
    const scale = Math.max(HEIGHT / highest, LEAST_HEIGHT / total(minute));
    const bottom = HEIGHT - below * scale;
    return `M${column(minute)} ${bottom.toFixed(2)}h${BAR}v${(-minute[kind] * scale).toFixed(2)}h${-BAR}z`;
  }).join("");
}

function total(minute) {
  return KINDS.reduce((sum, kind) => sum + minute[kind], 0);
}
