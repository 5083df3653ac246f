// Create elements. Text is inserted as text, never as HTML: names and payloads are foreign input.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && ["value", "checked", "disabled", "hidden", "selected", "open"].includes(name)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Return an HTML element: h("a", {href: "#/jobs"}, "Jobs").
export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

// Return an SVG element.
export function s(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

// Set a text only if it differs, so as not to disturb a selection or a screen reader.
export function setText(node, text) {
  const wanted = String(text);
  if (node.textContent !== wanted) node.textContent = wanted;
}

export function setKind(node, kind) {
  if (kind) node.dataset.kind = kind;
  else delete node.dataset.kind;
}

export function badge(text, kind) {
  return h("span", { class: "badge", "data-kind": kind }, text);
}
