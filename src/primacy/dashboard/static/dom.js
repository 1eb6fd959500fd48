// Elements are made here and nowhere else. Text is set as text: nothing from outside ever becomes markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.setAttribute("class", value);
    else if (name === "data") for (const [key, text] of Object.entries(value)) element.dataset[key] = text;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.append(typeof child === "object" ? child : document.createTextNode(String(child)));
  }
  return element;
}

export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function s(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

// Only what differs is touched: a redraw that changes nothing costs nothing.
export function text(element, said) {
  const wanted = said === null || said === undefined ? "" : String(said);
  if (element.textContent !== wanted) element.textContent = wanted;
}

export function attr(element, name, value) {
  const wanted = value === null || value === undefined || value === false ? null : value === true ? "" : String(value);
  if (element.getAttribute(name) === wanted) return;
  if (wanted === null) element.removeAttribute(name);
  else element.setAttribute(name, wanted);
}

export function show(element, visible) {
  if (element.hidden === visible) element.hidden = !visible;
}

export function replace(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
}

// Keeps one element per key, in order: made once, updated after, removed when its key is gone.
export function keyed(parent, keys, make, update) {
  const known = parent.known || (parent.known = new Map());
  for (const [key, item] of known) {
    if (!keys.includes(key)) { item.root.remove(); known.delete(key); }
  }
  let at = parent.firstElementChild;
  for (const key of keys) {
    let item = known.get(key);
    if (!item) { item = make(key); known.set(key, item); }
    if (item.root === at) at = at.nextElementSibling;
    else parent.insertBefore(item.root, at);
    update(item, key);
  }
}

const ICONS = {
  overview: "M3 10.5 10 4l7 6.5M5 9v7h10V9",
  network: "M10 5v4M10 9l-4.5 5M10 9l4.5 5M10 5a1.6 1.6 0 1 0 0-.01M5 16a1.6 1.6 0 1 0 0-.01M15 16a1.6 1.6 0 1 0 0-.01",
  nodes: "M4 5h12v4H4zM4 11h12v4H4zM6.5 7h.01M6.5 13h.01",
  timeline: "M3 5h7M7 10h9M3 15h5M12.5 3v14",
  events: "M5 5h10M5 10h10M5 15h6",
  elections: "M4 4h5v5H4zM11 4h5v5h-5zM4 11h5v5H4zM11 11h5v5h-5z",
  leases: "M5 9h10v8H5zM7 9V6.5a3 3 0 0 1 6 0V9M10 12v2",
  cache: "M4 5.5c0-3 12-3 12 0v9c0 3-12 3-12 0zM4 5.5c0 3 12 3 12 0M4 10c0 3 12 3 12 0",
  slots: "M4 4h12v3.5H4zM4 8.5h12V12H4zM4 13h12v3.5H4zM6 5.8h3M6 10.3h5M6 14.8h2",
  audit: "M6 3h8l2 2v12H4V3zM7 8h6M7 11h6M7 14h3",
  drills: "M4 16l4-4M11 4l-2 5h4l-3 7M14 4h2v2",
  key: "M8 12a3 3 0 1 1 2.4-4.8L16 7l1 1.5-1.5 1.5-1-1-1.5 1.5L12 9.6A3 3 0 0 1 8 12z",
  sun: "M10 6.5a3.5 3.5 0 1 0 .01 0M10 2.5v1.6M10 15.9v1.6M2.5 10h1.6M15.9 10h1.6M4.7 4.7l1.1 1.1M14.2 14.2l1.1 1.1M15.3 4.7l-1.1 1.1M5.8 14.2l-1.1 1.1",
  moon: "M15.5 12.2A6.2 6.2 0 0 1 7.8 4.5a6.2 6.2 0 1 0 7.7 7.7z",
};

export function icon(name) {
  return s("svg", { viewBox: "0 0 20 20", class: "icon", "aria-hidden": "true" }, s("path", { d: ICONS[name] || "" }));
}
