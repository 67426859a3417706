// Small tools: elements, numbers in words, colours. Text only ever enters the page as text, never as markup.

const DATA = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";

// Okabe and Ito's colours, told apart by every eye; dashes help where methods are more than colours, and in print.
const PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f"];
const DASHES = ["", "8 4", "2 3", "10 3 2 3"];

/** An element: h("a", {href: "#x", onclick: f}, "text", child, ...). */
function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** An SVG element. */
function s(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...present(children));
  return element;
}

/** Replace what an element holds. */
function fill(element, ...children) {
  element.replaceChildren(...present(children));
}

function present(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined);
}

/** A number as people read it; what is not known is a dash. */
function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en-GB").replace("-", "−");
  const size = Math.abs(value);
  if (size > 0 && size < 1e-300) return "0+"; // proved to be above 0, and no more
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(digits - 1).replaceAll("-", "−");
  if (size >= 1000) return Math.round(value).toLocaleString("en-GB").replace("-", "−");
  const places = clamp(digits - 1 - Math.floor(Math.log10(size || 1)), 0, digits); // so many significant digits
  return value.toFixed(places).replace("-", "−");
}

const seconds = (value) => (value === null || value === undefined ? "–" : `${number(value)} s`);
const plural = (count, word, many = `${word}s`) => `${number(count)} ${count === 1 ? word : many}`;
const sum = (values) => values.reduce((a, b) => a + b, 0);
const mean = (values) => (values.length ? sum(values) / values.length : null);
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

function median(values) {
  if (!values.length) return null;
  const sorted = [...values].sort((a, b) => a - b),
    middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** A file's name without its folder and usual endings. */
function stem(path) {
  return path
    .replace(/^.*[\\/]/, "")
    .replace(/\.gz$/, "")
    .replace(/\.(vnnlib|onnx)$/, "");
}

/** A colour of the style sheet, which knows light and dark; asked for once, since asking takes time. */
function ink(name) {
  if (!inks.has(name)) inks.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  return inks.get(name);
}
const inks = new Map();
const darkness = matchMedia("(prefers-color-scheme: dark)");
darkness.addEventListener("change", () => inks.clear());

/** From 0 to 1 along viridis, which keeps its order in grey and for every eye. */
function viridis(share) {
  const stops = [
    [68, 1, 84],
    [59, 82, 139],
    [33, 145, 140],
    [94, 201, 98],
    [253, 231, 37],
  ];
  const at = clamp(share, 0, 1) * (stops.length - 1),
    k = Math.min(stops.length - 2, Math.floor(at));
  return `rgb(${stops[k].map((from, c) => Math.round(from + (at - k) * (stops[k + 1][c] - from))).join(",")})`;
}

// The one tooltip

const tip = {
  show(event, ...lines) {
    const box = document.getElementById("tip");
    box.replaceChildren(...lines.map((line, k) => h(k ? "div" : "strong", {}, line)));
    box.hidden = false;
    const left = clamp(event.clientX + 14, 4, innerWidth - box.offsetWidth - 8);
    const below = event.clientY + 16 + box.offsetHeight < innerHeight;
    box.style.left = `${left}px`;
    box.style.top = `${below ? event.clientY + 16 : Math.max(4, event.clientY - box.offsetHeight - 12)}px`;
  },
  hide() {
    document.getElementById("tip").hidden = true;
  },
};

/** A labelled choice; options are strings, or [value, text] pairs. */
function choice(label, options, value, onchange, id = null) {
  const pairs = options.map((option) => (Array.isArray(option) ? option : [option, option]));
  const select = h(
    "select",
    { id, onchange: () => onchange(select.value) },
    pairs.map(([key, text]) => h("option", { value: key, selected: key === value }, text)),
  );
  return h("label", { class: "choice" }, h("span", {}, label), select);
}
