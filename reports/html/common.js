"use strict";
const DATA = JSON.parse(document.getElementById("profkit-data").textContent);
const byId = (id) => document.getElementById(id);

/** An element with text; text from files only ever becomes a text node. */
function make(tag, text, attributes) {
  const element = document.createElement(tag);
  if (text !== null && text !== undefined) element.textContent = text;
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  return element;
}

function fixed(value, digits) { return value.toFixed(digits).replace("-", "\u2212"); }

/** Nanoseconds for a person: ns, us or ms. */
function span(ns) {
  if (ns >= 1e6) return fixed(ns / 1e6, 3) + " ms";
  if (ns >= 1e3) return fixed(ns / 1e3, 1) + " us";
  return Math.round(ns) + " ns";
}

(function theme() {
  const root = document.documentElement;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  byId("theme").addEventListener("click", () => {
    const now = root.dataset.theme || (dark.matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    document.dispatchEvent(new Event("themechange"));
  });
  dark.addEventListener("change", () => document.dispatchEvent(new Event("themechange")));
})();
