// The statements that took longest in the last hour.

import { byId, element } from "./dom.js";
import { timeElement } from "./pieces.js";
import { ago, statementTime, visible } from "./text.js";

/** @param {any} listed of `api/slowest` */
export function showSlowest({ statements }) {
  byId("slowest-empty").hidden = statements.length > 0;
  byId("slowest-table").hidden = !statements.length;
  byId("slowest-rows").replaceChildren(...statements.map(row));
}

function row({ at, milliseconds, upstream, shape, namespace, app, users, client }) {
  const user = users?.length ? element("bdi", {}, visible(users.join(", "))) : element("span", { class: "muted" }, users ? "none" : "not asked");
  return element("tr", {},
    element("th", { scope: "row" }, element("code", {}, visible(shape)), " ", element("bdi", { class: "muted" }, visible(namespace))),
    element("td", { class: "number", "data-label": "Took" }, statementTime(milliseconds)),
    element("td", { class: "number", "data-label": "Upstream time" }, statementTime(upstream)),
    element("td", { "data-label": "Application" }, element("bdi", {}, visible(app ?? "(no appName)"))),
    element("td", { "data-label": "User" }, user),
    element("td", { "data-label": "Client" }, visible(client)),
    element("td", { "data-label": "When" }, timeElement(at, ago(at))));
}
