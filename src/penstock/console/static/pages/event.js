// One event, and the jobs that it caused.
import { get, getAll, path } from "../api.js";
import { nameOf, subscriptions } from "../directory.js";
import { h } from "../dom.js";
import * as format from "../format.js";
import { card, head, kindOf, loader, trouble } from "../parts.js";
import { every } from "../polling.js";
import { table } from "../table.js";

export function mount(main, { signal, detail: id }) {
  const problem = trouble();
  const text = h("pre", { class: "code", tabindex: "0" });
  const jobs = table({
    columns: [
      { name: "Job", link: (row) => [row.id, `#/jobs/${encodeURIComponent(row.id)}`], mono: true },
      { name: "Subscription", text: (row) => nameOf(row.subscriptionId) },
      { name: "Status", badge: (row) => [row.status, kindOf(row.status)] },
      { name: "Deliveries", text: (row) => format.count(row.deliveries), class: "number" },
      { name: "Last error", text: (row) => row.lastError ?? "", class: "text" },
    ],
    key: (row) => row.id,
    empty: "No subscription wanted this event when it came.",
  });
  main.append(head("Event", id), problem.node, card("Jobs", "one for each subscription that wanted it", jobs.node), card("As subscribers get it", null, text));
  get(path`/api/v1/events/${id}`)
    .then((found) => (text.textContent = JSON.stringify(found.event, null, 2)))
    .catch((error) => problem.tell(error));
  const load = loader(trouble(), async () => {
    await subscriptions();
    return getAll("/api/v1/jobs", "jobs", { eventId: id });
  }, (found) => jobs.update(found));
  every(3000, load, signal);
}
