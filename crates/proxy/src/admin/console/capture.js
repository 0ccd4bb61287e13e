// Records the commands of clients for a limited time, into a file that the browser saves. Requires the token.

import { byId, element, setText } from "./dom.js";
import { timeElement } from "./pieces.js";
import { RequestError, endCapture, startCapture as requestCapture, token } from "./api.js";
import { bytes, counted, number, time, visible } from "./text.js";

const REASONS = {
  time: "its time was over", size: "it reached its largest size", operator: "it was ended", client: "its reader went away",
};

export function startCapture() {
  byId("capture-form").addEventListener("submit", (event) => {
    event.preventDefault();
    record();
  });
  byId("capture-end").addEventListener("click", end);
}

/** @param {any} reply of `api/capture` */
export function showCapture({ capture }) {
  const runs = capture !== null && capture.ended === null;
  byId("capture-form").hidden = runs || !token.get();
  byId("capture-locked").hidden = Boolean(token.get());
  byId("capture-end").hidden = !runs || !token.get();
  byId("capture").classList.toggle("running", runs);
  byId("capture-state").replaceChildren(...(capture ? state(capture, runs) : []));
}

function state({ by, apps, until, bytes: size, size: limit, commands, omitted, ended, ended_at: at }, runs) {
  const of = apps.length ? [" of ", element("bdi", {}, visible(apps.join(", ")))] : [];
  const counts = `${counted(commands, "command", "commands")}, ${bytes(size)} of ${bytes(limit)}, ${number(omitted)} omitted. Started by `;
  const who = element("bdi", {}, visible(by ?? "somebody"));
  if (runs) return [element("strong", {}, "Recording"), ...of, " until ", timeElement(until, time(until)), ` at the latest: ${counts}`, who, "."];
  return ["The last capture", ...of, " ended at ", timeElement(at, time(at)), `, because ${REASONS[ended]}: ${counts}`, who, "."];
}

async function record() {
  const field = (id) => /** @type {HTMLInputElement} */ (byId(id)).value.trim();
  const apps = field("capture-apps").split(/[\s,]+/).filter(Boolean);
  setText(byId("capture-problem"), "");
  /** @type {BlobPart[]} */
  const parts = [];
  try {
    const stream = await requestCapture({ for: field("capture-for"), size: field("capture-size"), apps, by: "console" });
    byId("capture-form").hidden = true;
    const reader = stream.getReader();
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) parts.push(piece.value);
  } catch (error) {
    report(error, parts.length ? "The capture ended early" : "Nothing is recorded");
  }
  if (parts.length) save(new Blob(parts, { type: "application/octet-stream" }));
}

function save(blob) {
  const url = URL.createObjectURL(blob);
  const name = `docward-${new Date().toISOString().slice(0, 19).replaceAll(":", "")}.bson`;
  element("a", { href: url, download: name }).click();
  // The browser has begun to save by then.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

async function end() {
  try {
    await endCapture();
  } catch (error) {
    report(error, "The capture goes on");
  }
}

function report(error, what) {
  const why = error instanceof RequestError ? visible(error.message) : "docward does not reply";
  setText(byId("capture-problem"), `${what}: ${why}`);
}
