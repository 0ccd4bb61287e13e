// Creates elements without markup: external input only becomes text.

const SVG = "http://www.w3.org/2000/svg";

/** @param {string} id of an existing element */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found;
}

/**
 * @param {string} name
 * @param {Record<string, string>} [attributes] their names never come from external input
 * @param {...(Node | string)} children
 */
export function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same for SVG elements. */
export function drawn(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** The nodes of a text in which parts between backquotes are code. */
export function words(text) {
  return text.split("`").map((part, place) => (place % 2 ? element("code", {}, part) : part));
}

/** Changes the document only if the text differs, so that selections and screen readers keep their place. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * Puts nodes into this order and moves as few as possible.
 * @param {Element} parent
 * @param {Element[]} nodes the children of `parent` from `first` on
 * @param {Element | null} first the first of these children
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
