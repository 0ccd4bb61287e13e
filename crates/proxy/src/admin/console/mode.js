// Overrides the mode of a rule for a limited time. Requires the token.

import { element, setText } from "./dom.js";
import { timeElement } from "./pieces.js";
import { RequestError, changeMode, token } from "./api.js";
import { time, visible } from "./text.js";

const MODES = ["shadow", "enforce", "disabled"];
const LENGTHS = { "30m": "30 minutes", "1h": "1 hour", "2h": "2 hours", "8h": "8 hours", "1d": "1 day" };

/** The words about an override, beside the rule's name. */
export function overrideText({ written }) {
  const { override } = written;
  if (!override) return [];
  const mode = [`${override.mode}`, clients(override), " "];
  return [element("span", { class: "about overridden" }, ...mode, "until ", timeElement(override.until, time(override.until)), `; file: ${override.file_mode}`)];
}

/** " for apps promo-*, web; users admin.ada", or nothing for all clients. */
export function clients({ only }) {
  const lists = Object.entries(only).filter(([, names]) => names.length);
  return lists.length ? ` for ${lists.map(([who, names]) => `${who} ${names.map(visible).join(", ")}`).join("; ")}` : "";
}

/** The globs in a field: no name contains a comma. */
function globs(field) {
  return field.value.split(",").map((text) => text.trim()).filter(Boolean);
}

/** The fields of an override. Built once, so that they keep their input. */
export class OverrideForm {
  /** @param {(change: {mode: string, only: object, for: string, reason: string}) => void} submit */
  constructor(label, submit) {
    this.mode = select("Mode", Object.fromEntries(MODES.map((mode) => [mode, mode])));
    this.length = select("For", LENGTHS);
    this.apps = element("input", { size: "12", placeholder: "all", autocomplete: "off" });
    this.users = element("input", { size: "12", placeholder: "all", autocomplete: "off" });
    this.reason = element("input", { required: "", maxlength: "200", placeholder: "why", autocomplete: "off" });
    this.element = element("form", { class: "override-form", "aria-label": label },
      element("label", {}, "Mode ", this.mode), element("label", {}, "For ", this.length),
      element("label", { title: "Globs such as promo-*, separated by commas" }, "Only apps ", this.apps),
      element("label", { title: "Globs such as admin.ada, separated by commas" }, "Only users ", this.users),
      element("label", {}, "Reason ", this.reason), element("button", { type: "submit" }, "Override"));
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      const only = { apps: globs(this.apps), users: globs(this.users) };
      submit({ mode: this.mode.value, only, for: this.length.value, reason: this.reason.value });
    });
  }
}

/** The override of a rule, and the form to set one. */
export class ModeControl {
  constructor(rule) {
    this.name = rule.name;
    this.current = element("div", { class: "override", hidden: "" });
    this.problem = element("p", { class: "problem", role: "status" });
    this.form = new OverrideForm(`Override the mode of ${visible(rule.name)}`, (change) => this.send(change));
    this.element = element("div", { class: "override-part" }, this.current, this.form.element, this.problem);
  }

  show({ written }) {
    const { override } = written;
    const form = this.form.element;
    form.hidden = !token.get();
    const state = JSON.stringify([override, form.hidden]);
    if (state === this.shown) return;
    this.shown = state;
    this.current.hidden = !override;
    this.current.replaceChildren(...(override ? this.words(override) : []));
  }

  words(override) {
    const { mode, until, reason, by, file_mode: fileMode, shared } = override;
    const end = element("button", { type: "button" }, "End the override");
    end.addEventListener("click", () => this.send({}));
    const where = shared ? "in every docward process of the deployment" : "only in this process";
    return [
      element("p", {}, element("strong", {}, `Overridden: ${mode}${clients(override)} instead of ${fileMode}`), " until ",
        timeElement(until, time(until)), ` (${where}). `, element("bdi", {}, visible(by)), ": ", visible(reason)),
      ...(token.get() ? [end] : []),
    ];
  }

  async send(change) {
    setText(this.problem, "");
    try {
      const { note } = await changeMode({ rule: this.name, by: "console", ...change });
      setText(this.problem, note ? `Only in this process, and until it restarts: ${visible(note)}.` : "");
      this.form.reason.value = "";
    } catch (error) {
      setText(this.problem, problemOf(error));
    }
  }
}

/** Why a request failed. */
export function problemOf(error) {
  return error instanceof RequestError ? visible(error.message) : "docward does not reply";
}

function select(label, options) {
  const items = Object.entries(options).map(([value, text]) => element("option", { value }, text));
  return element("select", { "aria-label": label }, ...items);
}
