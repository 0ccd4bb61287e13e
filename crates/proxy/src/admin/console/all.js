// Overrides the modes of all rules, or ends all overrides. Shows first what that means. Requires the token.

import { confirmed } from "./confirm.js";
import { byId, element, setText, words } from "./dom.js";
import { OverrideForm, clients, problemOf } from "./mode.js";
import { changeMode, token } from "./api.js";
import { counted, visible } from "./text.js";

const problem = element("p", { class: "problem", role: "status" });

export function startAllRules() {
  const form = new OverrideForm("Override the modes of all rules", send);
  const end = element("button", { type: "button" }, "End all overrides");
  end.addEventListener("click", () => send({}));
  const [button, part] = [byId("all-rules"), byId("all-part")];
  part.append(element("div", { class: "override-part" }, form.element, end, problem));
  button.addEventListener("click", () => {
    part.hidden = !part.hidden;
    button.setAttribute("aria-expanded", String(!part.hidden));
  });
}

/** The button, if there is a token. */
export function showAllRules() {
  byId("all-rules").hidden = !token.get();
  byId("all-part").hidden ||= !token.get();
}

async function send(change) {
  setText(problem, "");
  const request = { all: true, by: "console", ...change };
  try {
    const { rules, ended } = await changeMode({ ...request, dry_run: true });
    const count = counted(rules.length, "rule", "rules");
    const question = change.mode ? `Override ${count}: ${change.mode}${clients(change)}, for ${change.for}?` : `End the overrides of ${count}?`;
    if (!(await confirmed(question, meaning(rules, ended), change.mode ? `Override ${count}` : "End them"))) return;
    const { note } = await changeMode(request);
    setText(problem, note ? `Only in this process, and until it restarts: ${visible(note)}.` : "");
  } catch (error) {
    setText(problem, problemOf(error));
  }
}

/** The rules by pattern, with what no longer holds, and the overrides that end. */
function meaning(rules, ended) {
  const byPattern = Map.groupBy(rules, ({ pattern }) => pattern ?? "not loaded here");
  const items = [...byPattern].map(([pattern, of]) => element("li", {},
    element("strong", {}, pattern), ": ", element("bdi", {}, of.map(({ rule }) => visible(rule)).join(", ")),
    element("p", { class: "muted" }, ...words(of[0].when_off ?? ""))));
  const texts = ended.map((text) => element("li", {}, element("bdi", {}, visible(text))));
  return [element("ul", {}, ...items), ...(texts.length ? [element("h3", {}, "These overrides end"), element("ul", {}, ...texts)] : [])];
}
