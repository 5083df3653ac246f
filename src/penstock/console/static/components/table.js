// A table that keeps its rows when values change, so that focus and selection survive.
import { h, setKind, setText } from "./dom.js";

// A column has a `name` and one of: `text(row)`, `badge(row)` → [text, kind], `link(row)` → [text, address],
// or `make(current)` → a node that is created once per row; `current()` is the row's latest value.
export function table({ columns, key, empty, onopen }) {
  const head = h("tr", {}, columns.map((column) => h("th", { class: column.class, scope: "col" }, column.name)));
  const body = h("tbody");
  const box = h("div", { class: "table-box" }, h("table", {}, h("thead", {}, head), body));
  const nothing = h("p", { class: "empty" }, empty);
  const node = h("div", {}, box, nothing);
  let known = new Map();

  function newRow(row) {
    const entry = { row, cells: [] };
    const line = h("tr", { class: onopen ? "clickable" : null });
    if (onopen) {
      line.addEventListener("click", (event) => {
        if (!event.target.closest("a, button, input")) onopen(entry.row);
      });
    }
    for (const column of columns) {
      const content = column.make ? column.make(() => entry.row) : cellFor(column);
      entry.cells.push(content);
      line.append(h("td", { class: column.class }, content));
    }
    entry.line = line;
    return entry;
  }

  function update(rows) {
    const next = new Map();
    rows.forEach((row, index) => {
      const entry = known.get(key(row)) ?? newRow(row);
      entry.row = row;
      columns.forEach((column, place) => write(column, entry.cells[place], row));
      next.set(key(row), entry);
      if (body.children[index] !== entry.line) body.insertBefore(entry.line, body.children[index] ?? null);
    });
    for (const [name, entry] of known) if (!next.has(name)) entry.line.remove();
    known = next;
    box.hidden = rows.length === 0;
    nothing.hidden = rows.length > 0;
  }

  return { node, update, setEmpty: (text) => setText(nothing, text) };
}

function cellFor(column) {
  if (column.badge) return h("span", { class: "badge" });
  if (column.link) return h("a", { class: column.mono ? "mono" : null });
  return h("span", { class: column.mono ? "mono" : null });
}

function write(column, cell, row) {
  if (column.badge) {
    const [text, kind] = column.badge(row);
    setText(cell, text);
    setKind(cell, kind);
  } else if (column.link) {
    const [text, address] = column.link(row);
    setText(cell, text);
    if (cell.getAttribute("href") !== address) cell.setAttribute("href", address);
  } else if (column.text) {
    const text = column.text(row);
    setText(cell, text);
    if (cell.title !== text && column.class?.includes("text")) cell.title = text;
  } else if (column.update) {
    column.update(cell, row);
  }
}
