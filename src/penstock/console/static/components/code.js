// Texts to read and copy: JSON in colour, and a button that copies.
import { h } from "./dom.js";
import { pretty } from "./format.js";
import { toast } from "./toast.js";

const TOKEN = /("(?:\\.|[^"\\])*")(\s*:)?|\b(?:true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const MOST_COLOURED = 100_000;

// Return a block with a text, coloured if it is JSON, and a button that copies it.
export function code(text) {
  const shown = pretty(text);
  const pre = h("pre", { class: "code", tabindex: "0" }, ...(isJson(text) && shown.length < MOST_COLOURED ? coloured(shown) : [shown]));
  return h("div", { class: "code-box" }, pre, copyButton(() => shown, "Copy"));
}

// Return a text with a small button that copies it.
export function copyable(text, node = h("span", { class: "mono" }, text)) {
  return h("span", { class: "copyable" }, node, copyButton(() => text, `Copy ${text}`));
}

export function copyButton(read, label) {
  return h("button", { type: "button", class: "copy small quiet", "aria-label": label, title: label, onclick: () => copy(read()) }, "⧉");
}

async function copy(text) {
  try {
    // Only pages of https and of this machine may write to the clipboard.
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else copyBySelection(text);
    toast("Copied.");
  } catch {
    toast("The browser did not allow copying. Select the text instead.", "bad");
  }
}

function copyBySelection(text) {
  const area = h("textarea", { class: "off-screen", value: text });
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (!done) throw new Error("refused");
}

function isJson(text) {
  try {
    return typeof JSON.parse(text) === "object";
  } catch {
    return false;
  }
}

function coloured(text) {
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(TOKEN)) {
    const [whole, string, colon] = found;
    parts.push(text.slice(at, found.index));
    if (string) parts.push(h("span", { class: colon ? "json-name" : "json-text" }, string), colon ?? "");
    else parts.push(h("span", { class: /^[tfn]/.test(whole) ? "json-word" : "json-number" }, whole));
    at = found.index + whole.length;
  }
  return [...parts, text.slice(at)];
}
