// Warnings of the router, shown until they are acknowledged or eight hours old.
import { confirmed } from "../components/dialogs.js";
import { h } from "../components/dom.js";
import * as format from "../components/format.js";
import { card, head, kindOf, loader, options, trouble } from "../components/parts.js";
import { table } from "../components/table.js";
import { attempt } from "../components/toast.js";
import { get, path, post } from "../data/api.js";
import { every } from "../data/poll.js";

const SEVERITIES = ["CRITICAL", "ERROR", "WARN", "INFO"];

export function mount(main, { signal }) {
  const problem = trouble();
  const severity = h("select", { "aria-label": "Severity", onchange: () => load() });
  options(severity, [["", "all severities"], ...SEVERITIES.map((word) => [word, word])], "");
  const seen = h("select", { "aria-label": "State", onchange: () => load() });
  options(seen, [["false", "not acknowledged"], ["", "all"]], "false");
  const all = h("button", { type: "button", class: "changes", onclick: () => acknowledgeAll() }, "Acknowledge all…");
  const listed = table({
    columns: [
      { name: "Severity", badge: (row) => [row.severity, kindOf(row.severity)] },
      { name: "Code", text: (row) => row.code, mono: true },
      { name: "Source", text: (row) => row.source },
      { name: "Message", text: (row) => row.message, class: "long" },
      { name: "Count", text: (row) => format.count(row.count), class: "number" },
      { name: "Last", text: (row) => format.ago(row.lastAtMs), class: "tight" },
      { name: "", make: (current) => h("button", { type: "button", class: "small changes", onclick: () => acknowledge(current()) }, "Acknowledge"), update: (button, row) => (button.hidden = row.acknowledged) },
    ],
    key: (row) => row.id,
    empty: "No warnings.",
  });
  main.append(head("Warnings", "Problems that the router noticed. The reference explains each code.", severity, seen, all), problem.node, card("Warnings", "newest first", listed.node));
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
    const yes = await confirmed({ title: "Acknowledge all warnings?", about: "This includes warnings that the filter hides. A warning that occurs again is shown again.", action: "Acknowledge all", danger: false });
    if (yes) await attempt(() => post("/api/router/warnings/acknowledge-all"), (done) => `${format.plural(done.count, "warning")} acknowledged.`);
    await load();
  }
}
