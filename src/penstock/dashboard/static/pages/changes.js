// Changes: who changed what, by the API or this page.
import { get } from "../api.js";

import * as format from "../format.js";
import { card, head, loader, trouble } from "../parts.js";
import { every } from "../polling.js";
import { table } from "../table.js";

export function mount(main, { signal }) {
  const problem = trouble();
  const listed = table({
    columns: [
      { name: "When", text: (row) => format.moment(row.at), class: "tight" },
      { name: "Who", text: (row) => row.who },
      { name: "Role", text: (row) => row.role },
      { name: "Action", text: (row) => row.action, mono: true },
      { name: "To", text: (row) => Object.values(row.target).join(", "), class: "text" },
      { name: "With", text: (row) => row.detail, class: "text" },
    ],
    key: (row) => row.id,
    empty: "Nobody has changed anything yet.",
  });
  main.append(head("Changes", "Who changed what. Secrets are masked."), problem.node, card("Changes", "the newest first", listed.node));
  const load = loader(problem, () => get("/api/v1/changes", { limit: 100 }), (found) => listed.update(found.changes));
  every(5000, load, signal);
}
