// Asks before a change.

import { element } from "./dom.js";

/**
 * @param {string} question
 * @param {(Node | string)[]} about what the change means
 * @param {string} action the name of the button that confirms
 * @returns {Promise<boolean>} whether the user confirms
 */
export function confirmed(question, about, action) {
  const title = element("h2", { id: "confirm-title" }, question);
  const buttons = element("p", { class: "buttons" },
    element("button", { value: "yes", class: "primary" }, action), element("button", { value: "", autofocus: "" }, "Cancel"));
  const dialog = element("dialog", { "aria-labelledby": title.id },
    element("form", { method: "dialog" }, title, element("div", { class: "about-change" }, ...about), buttons));
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
  });
}
