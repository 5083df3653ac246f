// One queue: its partitions, messages and operations.
import { columns } from "../charts/columns.js";
import { lines } from "../charts/lines.js";
import { confirmed } from "../components/dialogs.js";
import { h, setText } from "../components/dom.js";
import * as format from "../components/format.js";
import { card, facts, head, loader, tile, trouble, wide } from "../components/parts.js";
import { table } from "../components/table.js";
import { attempt } from "../components/toast.js";
import { get, path, post } from "../data/api.js";
import { TICK_MS } from "../data/live.js";
import { every } from "../data/poll.js";
import { groupName, subscriptions } from "../data/subscriptions.js";
import { oldestAge } from "./queues.js";

const KEPT = 300;
const PAGE = 20;
const DEPTH = [
  { name: "waiting", cls: "s-1" },
  { name: "in flight", cls: "s-3" },
  { name: "delayed", cls: "s-2" },
];

export function mount(main, { signal, detail: name }) {
  const problem = trouble();
  const purge = h("button", { type: "button", class: "danger-quiet changes", onclick: () => askToPurge() }, "Purge…");
  const redrive = h("button", { type: "button", class: "changes", hidden: true, onclick: () => askToRedrive() }, "Redrive dead letters…");
  const tiles = { visible: tile("Waiting", { id: "visible" }), leased: tile("In flight"), delayed: tile("Delayed"), oldest: tile("Oldest", { id: "oldest" }), skew: tile("Partition skew") };
  const depth = lines({ label: "Depth over time", series: DEPTH, show: format.count, least: 4, empty: "Collecting data. The chart starts in a few seconds.", quiet: "The queue is empty." });
  const partitions = columns({ label: "Messages per partition", show: format.count, empty: "All partitions are empty." });
  const about = h("div");
  const throttles = table({
    columns: [
      { name: "Action", text: (row) => row[0] },
      { name: "Tokens left", text: (row) => format.count(row[1]), class: "number" },
    ],
    key: (row) => row[0],
    empty: "This queue has no throttle. Administrators set one with the queue's attributes.",
  });
  const messages = table({
    columns: [
      { name: "Message", text: (row) => row.message_id, mono: true, class: "tight" },
      { name: "Group", text: (row) => (row.group ? groupName(row.group) : format.NONE), class: "text" },
      { name: "State", badge: (row) => [row.state, row.state === "visible" ? "info" : ""] },
      { name: "Sent", text: (row) => format.ago(row.sent_ms), class: "tight" },
      { name: "Received", text: (row) => `${row.receive_count} ×`, class: "number" },
      { name: "Partition", text: (row) => String(row.partition), class: "number" },
      { name: "Body", text: (row) => row.body, class: "clip" },
    ],
    key: (row) => row.message_id,
    empty: "The queue is empty.",
  });
  const more = h("button", { type: "button", hidden: true, onclick: () => loadMessages(true) }, "Show more");
  const refresh = h("button", { type: "button", onclick: () => loadMessages(false) }, "Refresh");
  main.append(
    head(name, "", redrive, purge),
    problem.node,
    h("div", { class: "tiles" }, ...Object.values(tiles).map((each) => each.node)),
    h(
      "div",
      { class: "grid" },
      wide(6, card("Depth", null, depth.node)),
      wide(6, card("Partitions", "messages in each", partitions.node)),
      wide(12, card("Messages", "shown without receiving them", h("div", { class: "buttons" }, refresh), messages.node, more)),
      wide(6, card("Attributes", null, about)),
      wide(6, card("Throttle tokens", null, throttles.node)),
    ),
  );
  let description = null;
  let history = [];
  let shown = [];
  let cursor = null;

  function show(found) {
    description = found;
    history = [...history, [Date.now(), [found.visible, found.not_visible, found.delayed]]].slice(-KEPT);
    depth.update(history.map(([ms]) => ms), history.map(([, row]) => row));
    partitions.update(found.partition_messages);
    tiles.visible.set(format.count(found.visible));
    tiles.leased.set(format.count(found.not_visible));
    tiles.delayed.set(format.count(found.delayed));
    if (isEmpty(found)) tiles.oldest.set(format.NONE);
    const total = found.partition_messages.reduce((sum, value) => sum + value, 0);
    const skew = total ? (Math.max(...found.partition_messages) * found.partitions) / total : null;
    tiles.skew.set(skew === null || found.partitions === 1 ? format.NONE : `${skew.toFixed(1)} ×`, found.partitions === 1 ? "one partition" : "fullest / mean", skew > 3 ? "warn" : "");
    setText(main.querySelector(".page-head .about"), `${found.fifo ? "FIFO" : "Standard"} queue, ${format.plural(found.partitions, "partition")}. ${found.arn}`);
    redrive.hidden = found.dead_letter_sources.length === 0;
    about.replaceChildren(facts(Object.entries(found.attributes)));
    throttles.update(Object.entries(found.throttle_tokens));
  }

  async function loadMessages(further) {
    await attempt(async () => {
      const page = await get(path`/api/queues/${name}/messages`, { limit: PAGE, cursor: further ? cursor : null });
      shown = further ? [...shown, ...page.messages] : page.messages;
      cursor = page.cursor;
      messages.update(shown);
      more.hidden = cursor === null || page.messages.length < PAGE;
    });
  }

  async function askToPurge() {
    const held = description ? description.visible + description.not_visible + description.delayed : 0;
    const yes = await confirmed({
      title: `Purge ${name}?`,
      about: [`All ${format.plural(held, "message")} of this queue are deleted, including those in flight. This cannot be undone.`],
      action: `Delete ${format.plural(held, "message")}`,
    });
    if (yes && (await attempt(() => post(path`/api/queues/${name}/purge`), `${name} was purged.`))) {
      await load();
      await loadMessages(false);
    }
  }

  async function askToRedrive() {
    const held = description.visible + description.not_visible + description.delayed;
    const others = description.dead_letter_source_count - description.dead_letter_sources.length;
    const sources = [...description.dead_letter_sources, ...(others ? [format.plural(others, "other queue")] : [])];
    const yes = await confirmed({
      title: `Redrive ${name}?`,
      about: `${format.plural(held, "dead letter")} move back to their source queues: ${sources.join(", ")}. They are delivered again.`,
      action: `Move ${format.plural(held, "message")}`,
      danger: false,
    });
    if (yes) await attempt(() => post(path`/api/queues/${name}/redrive`, {}), "The dead letters are being moved.");
  }

  const load = loader(problem, () => get(path`/api/queues/${name}`), show);
  every(TICK_MS, load, signal);
  every(10_000, async () => {
    if (!description) await load();
    if (description && !isEmpty(description)) tiles.oldest.set(await oldestAge(name, description.partitions).catch(() => format.NONE));
  }, signal);
  subscriptions().catch(() => null).then(() => loadMessages(false));
}

function isEmpty(queue) {
  return queue.visible + queue.not_visible + queue.delayed === 0;
}
