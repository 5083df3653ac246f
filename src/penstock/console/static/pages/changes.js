// Changes: who changed what through the API or this page.
import { h } from "../components/dom.js";
import * as format from "../components/format.js";
import { card, head, loader, trouble } from "../components/parts.js";
import { table } from "../components/table.js";
import { get } from "../data/api.js";
import { every } from "../data/poll.js";

const PAGE = 100;

export function mount(main, { signal }) {
  const problem = trouble();
  const listed = table({
    columns: [
      { name: "When", text: (row) => format.moment(row.at), class: "tight" },
      { name: "Who", text: (row) => row.who },
      { name: "Role", text: (row) => row.role },
      { name: "What", text: (row) => row.summary, class: "long" },
      { name: "Details", text: (row) => row.detail, class: "text" },
    ],
    key: (row) => row.id,
    empty: "No changes yet.",
  });
  const more = h("button", { type: "button", hidden: true, onclick: () => showOlder() }, "Show older");
  main.append(head("Changes", "Who changed what. Secrets are masked."), problem.node, card("Changes", "newest first", listed.node, more));
  let rows = [];
  let cursor = null;
  let further = false;

  function show(page, before) {
    rows = [...before, ...page.changes];
    cursor = page.cursor;
    listed.update(rows);
    more.hidden = cursor === null;
  }

  const showOlder = loader(problem, () => get("/api/v1/changes", { limit: PAGE, cursor }), (page) => {
    further = true;
    show(page, rows);
  });
  const refresh = loader(problem, () => get("/api/v1/changes", { limit: PAGE }), (page) => {
    // Do not replace older rows that the user has loaded.
    if (!further) show(page, []);
  });
  every(5000, refresh, signal);
}
