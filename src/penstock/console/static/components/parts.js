// Components that several pages use.
import { h, setKind, setText } from "./dom.js";

export function head(title, about, ...tools) {
  return h("div", { class: "page-head" }, h("div", {}, h("h1", {}, title), h("p", { class: "about" }, about)), h("div", { class: "buttons" }, ...tools));
}

export function card(title, about, ...content) {
  const caption = h("div", { class: "card-head" }, h("h2", {}, title), about ? h("span", { class: "about" }, about) : null);
  return h("section", { class: "card", "aria-label": title }, caption, ...content);
}

export function wide(span, node) {
  node.classList.add(`span-${span}`);
  return node;
}

// A figure with a name, e.g. "Delivered per second".
export function tile(name, { href, id } = {}) {
  const value = h("div", { class: "value" }, "–");
  const note = h("div", { class: "note" });
  const node = h(href ? "a" : "div", { class: "tile", href, id }, h("div", { class: "name" }, name), value, note);
  return {
    node,
    set(text, about = "", kind = "") {
      setText(value, text);
      setText(note, about);
      setKind(node, kind);
    },
  };
}

// A notice with an error, hidden when there is none.
export function trouble() {
  const node = h("div", { class: "notice", "data-kind": "bad", role: "alert", hidden: true });
  return {
    node,
    clear() {
      node.hidden = true;
    },
    show(error) {
      setText(node, error.message);
      node.hidden = false;
    },
  };
}

// Return a function that loads and shows data; an error is shown in `problem`, and old data stays.
export function loader(problem, load, show) {
  return async () => {
    try {
      const value = await load();
      problem.clear();
      show(value);
    } catch (error) {
      problem.show(error);
    }
  };
}

const KINDS = {
  COMPLETED: "good",
  DELIVERED: "good",
  HEALTHY: "good",
  CLOSED: "good",
  ERROR: "bad",
  FAILED: "bad",
  REFUSED: "bad",
  DEGRADED: "bad",
  OPEN: "bad",
  CRITICAL: "bad",
  PROCESSING: "info",
  QUEUED: "info",
  INFO: "info",
  WARNING: "warn",
  WARN: "warn",
  HALF_OPEN: "warn",
  DEFERRED: "warn",
  EXPIRED: "warn",
};

export const kindOf = (word) => KINDS[word] ?? "";

export function facts(rows) {
  return h("dl", { class: "facts" }, ...rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

export function options(select, rows, chosen) {
  select.replaceChildren(...rows.map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
}

// Return a sentence with its commands, which stand in backticks, as code.
export function withCode(text) {
  return text.split("`").map((part, index) => (index % 2 ? h("code", {}, part) : part));
}
