// One event and its jobs.
import { code } from "../components/code.js";
import { h } from "../components/dom.js";
import * as format from "../components/format.js";
import { card, head, kindOf, loader, trouble } from "../components/parts.js";
import { table } from "../components/table.js";
import { get, getAll, path, PORTAL } from "../data/api.js";
import { every } from "../data/poll.js";
import { nameOf, subscriptions } from "../data/subscriptions.js";

export function mount(main, { signal, detail: id }) {
  const problem = trouble();
  const text = h("div");
  const jobs = table({
    columns: [
      { name: "Job", link: (row) => [row.id, `#/jobs/${encodeURIComponent(row.id)}`], mono: true },
      { name: "Subscription", text: (row) => nameOf(row.subscriptionId) },
      { name: "Status", badge: (row) => [row.status, kindOf(row.status)] },
      { name: "Deliveries", text: (row) => format.count(row.deliveries), class: "number" },
      { name: "Last error", text: (row) => row.lastError ?? "", class: "text" },
    ],
    key: (row) => row.id,
    empty: "No subscription matched this event.",
  });
  main.append(head("Event", id), problem.node, card("Jobs", "one per matching subscription", jobs.node), card("Content", null, text));
  get(path`/api/v1/events/${id}`)
    .then((found) => text.replaceChildren(code(JSON.stringify(found.event))))
    .catch((error) => problem.show(error));
  const load = loader(trouble(), async () => {
    const known = await subscriptions();
    if (!PORTAL) return getAll("/api/v1/jobs", "jobs", { eventId: id });
    const found = await Promise.all(known.map((each) => getAll("/api/v1/jobs", "jobs", { eventId: id, subscriptionId: each.id })));
    return found.flat();
  }, (found) => jobs.update(found));
  every(3000, load, signal);
}
