// Warnings of the router: what an operator should know, until it is acknowledged or eight hours old.
import { get, path, post } from "../api.js";
import { confirmed } from "../dialogs.js";
import { h } from "../dom.js";
import * as format from "../format.js";
import { card, head, kindOf, loader, options, trouble } from "../parts.js";
import { every } from "../polling.js";
import { table } from "../table.js";
import { attempt } from "../toast.js";

const SEVERITIES = ["CRITICAL", "ERROR", "WARN", "INFO"];

export function mount(main, { signal }) {
  const problem = trouble();
  const severity = h("select", { "aria-label": "Severity", onchange: () => load() });
  options(severity, [["", "all severities"], ...SEVERITIES.map((word) => [word, word])], "");
  const seen = h("select", { "aria-label": "Which", onchange: () => load() });
  options(seen, [["false", "not acknowledged"], ["", "all"]], "false");
  const all = h("button", { type: "button", onclick: () => acknowledgeAll() }, "Acknowledge all…");
  const listed = table({
    columns: [
      { name: "Severity", badge: (row) => [row.severity, kindOf(row.severity)] },
      { name: "Code", text: (row) => row.code, mono: true },
      { name: "About", text: (row) => row.source },
      { name: "What", text: (row) => row.message, class: "long" },
      { name: "Times", text: (row) => format.count(row.count), class: "number" },
      { name: "Last", text: (row) => format.ago(row.lastAtMs), class: "tight" },
      { name: "", make: (current) => h("button", { type: "button", class: "small", onclick: () => acknowledge(current()) }, "Acknowledge"), update: (button, row) => (button.hidden = row.acknowledged) },
    ],
    key: (row) => row.id,
    empty: "There is nothing to warn of.",
  });
  main.append(head("Warnings", "What the router wants somebody to know. The reference says what each code means and what to do.", severity, seen, all), problem.node, card("Warnings", "the newest first", listed.node));
  const load = loader(problem, () => get("/api/router/warnings", { severity: severity.value, acknowledged: seen.value }), (found) => {
    listed.update(found.warnings);
    all.disabled = Object.values(found.unacknowledged).every((count) => count === 0);
  });
  every(3000, load, signal);

  async function acknowledge(row) {
    await attempt(() => post(path`/api/router/warnings/${row.id}/acknowledge`), "Acknowledged.");
    await load();
  }

  async function acknowledgeAll() {
    const yes = await confirmed({ title: "Acknowledge all warnings?", about: "All of them, those that this filter hides too. A warning that comes again is shown again.", action: "Acknowledge all", danger: false });
    if (yes) await attempt(() => post("/api/router/warnings/acknowledge-all"), (done) => `${format.plural(done.count, "warning")} acknowledged.`);
    await load();
  }
}
