// Elements made without markup: what comes from outside only ever becomes text.

const SVG = "http://www.w3.org/2000/svg";

/** @param {string} id of an element that the page has */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found;
}

/**
 * @param {string} name
 * @param {Record<string, string>} [attributes] never from outside by their names
 * @param {...(Node | string)} children
 */
export function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same for drawings. */
export function drawn(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Words for people, in which what stands between back quotes is code. */
export function words(text) {
  return text.split("`").map((part, place) => (place % 2 ? element("code", {}, part) : part));
}

/** Touches the document only where it changes, so that selections and screen readers stay where they are. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * Puts nodes into this order, moving as few as need be.
 * @param {Element} parent
 * @param {Element[]} nodes all that `parent` shall have from `first` on
 * @param {Element | null} first where they begin
 */
export function arrange(parent, nodes, first = parent.firstElementChild) {
  let place = first;
  for (const node of nodes) {
    if (node === place) place = place.nextElementSibling;
    else parent.insertBefore(node, place);
  }
  while (place) {
    const surplus = place;
    place = place.nextElementSibling;
    surplus.remove();
  }
}
