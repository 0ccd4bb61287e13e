// Shows what the rules do to a command that the user types.

import { byId, element, words } from "./dom.js";
import { outcomeElement } from "./pieces.js";
import { RequestError, explain } from "./api.js";
import { number, visible, visibleLines } from "./text.js";

/** Characters shown before and after a mistake. */
const AROUND = 80;
const SENTENCES = {
  forward: "docward forwards it unchanged.",
  rewrite: "A rule changes it, or executes it in a transaction.",
  check: "docward executes it in a transaction, then compares the documents before and after.",
  reject: "A rule rejects it, or some of its statements.",
};

/** @type {AbortController | undefined} */
let asking;

export function startPlayground() {
  const form = /** @type {HTMLFormElement} */ (byId("question"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    reply();
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
}

/** A new question cancels the one before. */
async function reply() {
  asking?.abort();
  const abort = (asking = new AbortController());
  const place = byId("reply");
  place.setAttribute("aria-busy", "true");
  const shown = await shownReply(abort.signal);
  if (abort !== asking) return;
  place.removeAttribute("aria-busy");
  place.replaceChildren(...shown);
}

async function shownReply(signal) {
  const field = commandField();
  field.removeAttribute("aria-invalid");
  try {
    return explained(await explain(question(), signal));
  } catch (error) {
    if (error instanceof RequestError && Array.isArray(error.reply)) return mistakes(error.reply, field);
    const what = error instanceof RequestError ? error.message : "docward does not reply; try again.";
    return [element("p", { class: "error" }, visible(what))];
  }
}

function question() {
  const value = (id) => /** @type {HTMLInputElement} */ (byId(id)).value.trim() || undefined;
  return {
    command: commandField().value,
    database: value("question-database") ?? "test",
    app: value("question-app"),
    user: value("question-user"),
  };
}

function commandField() {
  return /** @type {HTMLTextAreaElement} */ (byId("question-command"));
}

function explained(reply) {
  return [
    element("p", { class: "line" }, outcomeElement(reply.verdict), ` ${SENTENCES[reply.verdict] ?? ""}`),
    ...part("Error for the client", reply.message && block(visibleLines(reply.message))),
    ...part("Matching rules", listed("ul", reply.rules.map(matchedRule))),
    ...part("Statements", listed("ol", reply.statements.map(statement))),
    ...part(reply.difference ? "What is sent instead" : "What is sent", sent(reply)),
    ...reply.notes.map((note) => element("p", { class: "muted" }, `Note: ${visibleLines(note)}`)),
  ];
}

function part(title, content) {
  return content ? [element("h3", {}, title), content] : [];
}

function listed(name, items) {
  return items.length && element(name, { class: "matches" }, ...items);
}

function block(text) {
  return element("pre", { tabindex: "0" }, text);
}

function matchedRule({ name, pattern, outcome, reason, hint }) {
  return element("li", {},
    outcomeElement(outcome), " ",
    element("bdi", { class: "by" }, visible(name)), ` (${pattern})`,
    ...(reason ? [element("p", {}, visibleLines(reason))] : []),
    ...(hint ? [element("p", {}, element("strong", {}, "What to do: "), visibleLines(hint))] : []));
}

function statement({ verdict, rules }) {
  const names = rules.map(({ name }) => visible(name)).join(", ");
  return element("li", {}, outcomeElement(verdict), names ? ` by ${names}` : " no rule matches");
}

function sent({ difference, shell }) {
  if (!difference) return shell && block(visibleLines(shell));
  return element("pre", { class: "difference", tabindex: "0" }, ...difference.trimEnd().split("\n").map(changedLine));
}

function changedLine(line) {
  const name = { "-": "del", "+": "ins" }[line[0]] ?? "span";
  return element(name, { class: "changed" }, `${visibleLines(line)}\n`);
}

/** Each with its place; the first is marked in the field, too. */
function mistakes(diagnostics, field) {
  field.setAttribute("aria-invalid", "true");
  const [first] = diagnostics;
  if (first?.line) {
    const at = offset(field.value, first);
    field.focus();
    field.setSelectionRange(at, at + 1);
  }
  return diagnostics.map((mistake) => element("div", { class: "mistake" },
    element("p", { class: "error" }, ...words(`${mistake.code}: ${visibleLines(mistake.message)}`)),
    ...(mistake.line ? [placed(mistake, field.value)] : []),
    ...(mistake.help ? [element("p", {}, ...words(visibleLines(mistake.help)))] : [])));
}

function placed({ line, column }, text) {
  const characters = Array.from(text.split("\n")[line - 1] ?? "");
  const at = column - 1;
  const start = Math.max(0, at - AROUND);
  return element("pre", { tabindex: "0", "aria-label": `Line ${line}, column ${column}` },
    element("span", { class: "muted" }, `line ${number(line)}, column ${number(column)}\n`),
    (start ? "…" : "") + visibleLines(characters.slice(start, at).join("")),
    element("mark", {}, visibleLines(characters[at] ?? " ")),
    visibleLines(characters.slice(at + 1, at + AROUND).join("")) + (characters.length > at + AROUND ? "…" : ""));
}

/** Columns count characters, fields count UTF-16 units. */
function offset(text, { line, column }) {
  const lines = text.split("\n");
  const before = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
  return before + Array.from(lines[line - 1] ?? "").slice(0, column - 1).join("").length;
}
