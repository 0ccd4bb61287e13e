// Formats names, numbers and times.

/** Invisible characters, and characters that change the direction of text. */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/gu;
const UNSEEN_IN_LINES = /[^\P{C}\n\t]|[\p{Zl}\p{Zp}]/gu;
/** Characters shown of a name. */
const NAME_LENGTH = 200;

const numbers = new Intl.NumberFormat();
const clockTime = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const dayAndTime = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const distance = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "short" });

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

let ahead = 0;

/** @param {number} now the server's clock in milliseconds since 1970 UTC; all times are from this clock */
export function setClock(now) {
  ahead = now - Date.now();
}

/** The server's time. */
export function now() {
  return Date.now() + ahead;
}

const escaped = (character) => `\\u{${character.codePointAt(0).toString(16)}}`;

/** The name with invisible and direction-changing characters escaped, and with a maximum length. */
export function visible(text) {
  const shown = Array.from(text.slice(0, 2 * NAME_LENGTH)).slice(0, NAME_LENGTH).join("");
  const rest = text.length - shown.length;
  return shown.replace(UNSEEN, escaped) + (rest > 0 ? ` … (${number(rest)} more characters)` : "");
}

/** The same for a text of several lines, without a maximum length. */
export function visibleLines(text) {
  return text.replace(UNSEEN_IN_LINES, escaped);
}

export function number(value) {
  return numbers.format(value);
}

/** "3 rules" */
export function counted(value, one, many) {
  return `${number(value)} ${value === 1 ? one : many}`;
}

/** @param {number} at milliseconds since 1970 UTC; local, with the day unless it is today */
export function time(at) {
  const today = new Date(now()).toDateString() === new Date(at).toDateString();
  return (today ? clockTime : dayAndTime).format(at);
}

export function utc(at) {
  return new Date(at).toISOString().replace("T", " ").replace("Z", " UTC");
}

/** "5 min. ago" */
export function ago(at) {
  const passed = at - now();
  const [unit, length] = unitOf(-passed);
  return distance.format(Math.min(0, Math.round(passed / length)), unit);
}

/** "5 h": a duration. */
export function duration(milliseconds) {
  const [unit, length] = unitOf(milliseconds);
  const value = Math.max(0, Math.floor(milliseconds / length));
  return new Intl.NumberFormat(undefined, { style: "unit", unit, unitDisplay: "short" }).format(value);
}

/** "85 ms", "1.2 secs": a duration of a statement. */
export function statementTime(milliseconds) {
  const [unit, length] = milliseconds < SECOND ? ["millisecond", 1] : ["second", SECOND];
  const format = { style: "unit", unit, unitDisplay: "short", maximumSignificantDigits: 3 };
  return new Intl.NumberFormat(undefined, format).format(milliseconds / length);
}

const BYTE_UNITS = ["byte", "kilobyte", "megabyte", "gigabyte", "terabyte"];

/** "5 kB" */
export function bytes(count) {
  const power = Math.min(BYTE_UNITS.length - 1, count < 1000 ? 0 : Math.floor(Math.log10(count) / 3));
  const format = { style: "unit", unit: BYTE_UNITS[power], unitDisplay: "short", maximumSignificantDigits: 3 };
  return new Intl.NumberFormat(undefined, format).format(count / 1000 ** power);
}

/** @returns {[Intl.RelativeTimeFormatUnit, number]} */
function unitOf(milliseconds) {
  if (milliseconds < MINUTE) return ["second", SECOND];
  if (milliseconds < HOUR) return ["minute", MINUTE];
  return milliseconds < DAY ? ["hour", HOUR] : ["day", DAY];
}
