// Queues: the SQS server's, and those that the router consumes.
import * as format from "../components/format.js";
import { card, head, loader, trouble } from "../components/parts.js";
import { table } from "../components/table.js";
import { get, getAll, path } from "../data/api.js";
import { TICK_MS } from "../data/live.js";
import { every } from "../data/poll.js";

const MOST_AGES = 20;

export function mount(main, { signal }) {
  const problem = trouble();
  const ages = new Map();
  const listed = table({
    columns: [
      { name: "Queue", link: (row) => [row.name, `#/queues/${encodeURIComponent(row.name)}`] },
      { name: "Kind", text: (row) => (row.fifo ? "FIFO" : "standard") },
      { name: "Waiting", text: (row) => format.count(row.visible), class: "number" },
      { name: "In flight", text: (row) => format.count(row.not_visible), class: "number" },
      { name: "Delayed", text: (row) => format.count(row.delayed), class: "number" },
      { name: "Oldest", text: (row) => (row.visible + row.not_visible ? (ages.get(row.name) ?? "…") : format.NONE), class: "number" },
      { name: "Partitions", text: (row) => String(row.partitions), class: "number" },
      { name: "Receivers waiting", text: (row) => format.count(row.waiting_receivers), class: "number" },
    ],
    key: (row) => row.name,
    empty: "No queues. Create one with penstock up, penstock queue create or any AWS SDK.",
    onopen: (row) => {
      location.hash = `#/queues/${encodeURIComponent(row.name)}`;
    },
  });
  const consumers = table({
    columns: [
      { name: "Consumed queue", text: (row) => row.name },
      { name: "State", badge: (row) => (row.healthy ? [row.paused ? "paused: pools are full" : "polling", row.paused ? "warn" : "good"] : ["not polling", "bad"]) },
      { name: "Received", text: (row) => format.count(row.received), class: "number" },
      { name: "Acknowledged", text: (row) => format.count(row.acked), class: "number" },
      { name: "Returned", text: (row) => format.count(row.nacked), class: "number" },
      { name: "Malformed", text: (row) => format.count(row.malformed), class: "number" },
      { name: "In flight", text: (row) => format.count(row.inFlight), class: "number" },
    ],
    key: (row) => row.name,
    empty: "The router consumes no queues.",
  });
  main.append(
    head("Queues", "Queues of the SQS server, and queues that the router consumes."),
    problem.node,
    card("SQS server", null, listed.node),
    card("Consumed by the router", null, consumers.node),
  );
  let rows = [];
  const load = loader(problem, () => getAll("/api/queues", "queues"), (found) => {
    rows = found;
    listed.update(rows);
  });
  every(TICK_MS, load, signal);
  every(TICK_MS, async () => {
    try {
      consumers.update(await getAll("/api/router/monitoring/queues", "queues"));
    } catch (error) {
      consumers.setEmpty(error.message);
      consumers.update([]);
    }
  }, signal);
  every(10_000, async () => {
    await load();
    for (const row of rows.filter((each) => each.visible + each.not_visible > 0).slice(0, MOST_AGES)) {
      ages.set(row.name, await oldestAge(row.name, row.partitions).catch(() => format.NONE));
    }
    listed.update(rows);
  }, signal);
}

// Return the age of a queue's oldest message, from the first message of each partition.
export async function oldestAge(name, partitions) {
  const firsts = await Promise.all(
    Array.from({ length: partitions }, (_, index) => get(path`/api/queues/${name}/messages`, { limit: 1, cursor: `${index}.0` })),
  );
  const sent = firsts.flatMap((page) => page.messages.map((message) => message.sent_ms));
  return sent.length ? format.span((Date.now() - Math.min(...sent)) / 1000) : format.NONE;
}
