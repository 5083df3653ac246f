// Groups: the busiest ones, the blocked ones with their reasons, and decisions to unblock them.
import { area } from "../charts/area.js";
import { bars } from "../charts/bars.js";
import { heatMap } from "../charts/heat_map.js";
import { lines } from "../charts/lines.js";
import { allowed, decide, LABELS } from "../components/decisions.js";
import { confirmed } from "../components/dialogs.js";
import { badge, h } from "../components/dom.js";
import * as format from "../components/format.js";
import { card, head, kindOf, loader, trouble, wide } from "../components/parts.js";
import { table } from "../components/table.js";
import { attempt } from "../components/toast.js";
import { get, getAll, post } from "../data/api.js";
import { finishedWithin } from "../data/deliveries.js";
import { live, watch } from "../data/live.js";
import { every } from "../data/poll.js";
import { groupName, subscriptions } from "../data/subscriptions.js";

const COLOURS = ["s-1", "s-2", "s-3", "s-4", "s-5", "s-7", "s-8"];
const FIRST_HELD = 8;
const FIRST_JOBS = 5;
const MOST_HELD = 2000;
const COLUMN_MS = 10_000;
const COLUMNS = 30;
const HEAT_STEPS_S = [0.01, 0.05, 0.25, 1];
const COLLECTING = "Collecting data. The chart starts in a few seconds.";
const QUIET = "No groups. A group appears while it has messages in the router.";

export function mount(main, { signal, query }) {
  const problem = trouble();
  const input = h("input", { type: "search", name: "key", placeholder: "order-17", value: query.get("key") ?? "", "aria-label": "Key or group" });
  const found = h("div", { id: "lanes" });
  const finder = h(
    "form",
    {
      class: "inline-form",
      onsubmit: (event) => {
        event.preventDefault();
        location.hash = `#/groups?key=${encodeURIComponent(input.value.trim())}`;
      },
    },
    h("label", { class: "field" }, "Key of a group, such as an order number", input),
    h("button", { type: "submit", class: "primary" }, "Find"),
  );
  const held = table({
    columns: [
      { name: "Group", link: (row) => [groupName(row.groupKey), `#/groups?key=${encodeURIComponent(row.groupKey)}`], class: "long" },
      { name: "Blocked by", badge: (row) => (row.errors ? [format.plural(row.errors, "error"), "bad"] : ["a pending retry", "warn"]) },
      { name: "Waiting behind", text: (row) => format.count(row.waiting), class: "number" },
      { name: "Since", text: (row) => format.ago(row.since), class: "tight" },
      { name: "", make: (current) => h("button", { type: "button", class: "small changes", onclick: () => retryGroup(current()) }, "Retry errors…"), update: (button, row) => (button.disabled = row.errors === 0) },
    ],
    key: (row) => row.groupKey,
    empty: "No blocked groups.",
  });
  let allHeld = false;
  const showAll = () => {
    allHeld = true;
    loadHeld();
  };
  const heldMore = h("button", { type: "button", class: "small", hidden: true, onclick: showAll }, "Show all, by key");
  const queued = bars({ rows: 8, label: "Messages per group", show: format.count, empty: QUIET });
  const heat = heatMap({ rows: 8, label: "Processing latency by group and time", show: format.span, steps: HEAT_STEPS_S, empty: "No deliveries in the last five minutes." });
  const used = area({ label: "Workers used by group", series: [], show: (value) => format.rate(value), least: 1, empty: COLLECTING, quiet: QUIET });
  const depth = lines({ label: "Queue depth by group", series: [], show: format.count, least: 4, empty: COLLECTING, quiet: QUIET });
  main.append(
    head("Groups", "Messages of one key stay in order. Each subscription has its own lane per key."),
    problem.node,
    card("Find a group", "see its lanes, and unblock them", finder, found),
    card("Blocked", "groups that wait for a failed job", held.node, heldMore),
    h(
      "div",
      { class: "grid" },
      wide(6, card("Messages per group", "waiting in the router now", queued.node)),
      wide(6, card("Processing latency", "mean time of deliveries, by group", heat.node)),
      wide(6, card("Utilisation", "workers busy with each group", used.node)),
      wide(6, card("Depth over time", "messages waiting in the router", depth.node)),
    ),
  );

  const loadHeld = loader(problem, async () => {
    await subscriptions();
    if (allHeld) return getAll("/api/v1/groups/held", "groups", {}, MOST_HELD);
    return (await get("/api/v1/groups/held", { order: "urgent", limit: FIRST_HELD + 1 })).groups;
  }, (groups) => {
    held.update(allHeld ? groups : groups.slice(0, FIRST_HELD));
    heldMore.hidden = allHeld || groups.length <= FIRST_HELD;
  });
  every(3000, loadHeld, signal);
  every(COLUMN_MS / 2, async () => {
    const lately = await finishedWithin(COLUMNS * COLUMN_MS).catch(() => null);
    showHeat(heat, lately ?? [], live.ticks, Date.now());
  }, signal);
  watch(({ ticks }) => showLive({ queued, used, depth }, ticks), signal);

  const key = query.get("key");
  const loadLanes = loader(problem, async () => {
    await subscriptions();
    return getAll("/api/v1/groups/lanes", "lanes", { key, limit: null });
  }, (lanes) => showLanes(found, key, lanes, loadAll));
  if (key) every(4000, loadLanes, signal);

  async function loadAll() {
    await loadHeld();
    if (key) await loadLanes();
  }

  async function retryGroup(group) {
    const yes = await confirmed({
      title: "Retry the errors of this group?",
      about: `${format.plural(group.errors, "job")} in ERROR of ${groupName(group.groupKey)} are retried in order. The rest of the group follows.`,
      action: "Retry",
      danger: false,
    });
    if (!yes) return;
    await attempt(() => post("/api/v1/jobs/retry-group", { groupKey: group.groupKey }), (done) => `${format.plural(done.ids.length, "job")} retried.`);
    await loadAll();
  }
}

function showLive({ queued, used, depth }, ticks) {
  const newest = ticks.at(-1)?.groups ?? new Map();
  const deepest = [...newest].filter(([, group]) => group.queued > 0).sort((left, right) => right[1].queued - left[1].queued);
  queued.update(deepest.map(([name, group]) => ({ name: groupName(name), value: group.queued })));

  const busiest = heaviest(ticks, "busy");
  const busyRows = ticks.map((tick) => {
    const shown = busiest.map((name) => tick.groups.get(name)?.busy ?? 0);
    return [...shown, Math.max(0, tick.busy - shown.reduce((sum, value) => sum + value, 0))];
  });
  draw(used, ticks, busyRows, [...named(busiest), { name: "all others", cls: "s-6" }]);

  const longest = heaviest(ticks, "queued");
  const depths = ticks.map((tick) => longest.map((name) => tick.groups.get(name)?.queued ?? (tick.allGroups ? 0 : null)));
  draw(depth, ticks, depths, named(longest));
}

// Return the groups with the highest total of a measure.
function heaviest(ticks, measure) {
  const sums = new Map();
  for (const tick of ticks) for (const [name, group] of tick.groups) sums.set(name, (sums.get(name) ?? 0) + group[measure]);
  const some = [...sums].filter(([, sum]) => sum > 0).sort((left, right) => right[1] - left[1]);
  return some.slice(0, COLOURS.length).map(([name]) => name);
}

const named = (names) => names.map((name, index) => ({ name: groupName(name), cls: COLOURS[index] }));

function draw(chart, ticks, rows, series) {
  chart.update(ticks.map((tick) => tick.atMs), rows, series);
}

function showHeat(heat, deliveries, ticks, nowMs) {
  const lastColumn = Math.floor(nowMs / COLUMN_MS);
  const times = Array.from({ length: COLUMNS }, (_, index) => (lastColumn - COLUMNS + 1 + index) * COLUMN_MS);
  const groups = new Map();
  const add = (name, atMs, ended, tookS) => {
    const columns = groups.get(name) ?? groups.set(name, new Map()).get(name);
    const ms = Math.floor(atMs / COLUMN_MS) * COLUMN_MS;
    const sums = columns.get(ms) ?? { ended: 0, tookS: 0 };
    columns.set(ms, { ended: sums.ended + ended, tookS: sums.tookS + tookS });
  };
  const ofJobs = deliveries.filter((each) => each.durationMs !== null);
  for (const each of ofJobs) add(each.groupKey, each.finishedAtMs, 1, each.durationMs / 1000);
  // Messages of the router that are not jobs have no deliveries in the database.
  const known = new Set(deliveries.map((each) => each.groupKey));
  for (const tick of ticks) {
    for (const [name, { ended, tookS }] of tick.groups) if (ended > 0 && tick.atMs >= times[0] && !known.has(name)) add(name, tick.atMs, ended, tookS);
  }
  const total = (columns) => [...columns.values()].reduce((sum, { ended }) => sum + ended, 0);
  const busiest = [...groups].sort((left, right) => total(right[1]) - total(left[1])).slice(0, 8);
  const cells = busiest.map(([, columns]) => times.map((ms) => (columns.has(ms) ? columns.get(ms).tookS / columns.get(ms).ended : null)));
  heat.update(busiest.map(([name]) => groupName(name)), times, cells);
}

function showLanes(place, key, lanes, again) {
  if (!lanes.length) {
    place.replaceChildren(h("p", { class: "empty" }, `No jobs with the key ${key}. Old finished jobs are in the archive.`));
    return;
  }
  place.replaceChildren(...lanes.map((lane) => laneCard(lane, again)));
}

function laneCard(lane, again) {
  const blocker = lane.jobs.find((job) => job.id === lane.blockedBy);
  const row = (job, index) =>
    h(
      "tr",
      {},
      h("td", { class: "number" }, String(index + 1)),
      h("td", {}, h("a", { class: "mono", href: `#/jobs/${encodeURIComponent(job.id)}` }, job.id)),
      h("td", {}, badge(job.status, kindOf(job.status))),
      h("td", {}, job.type),
      h("td", { class: "tight" }, format.ago(job.createdAt)),
      h("td", { class: "text", title: job.lastError ?? "" }, job.lastError ?? ""),
      h("td", {}, h("div", { class: "buttons" }, allowed(job).map((verb) => decideButton(verb, job, again)))),
    );
  const waiting = ["PENDING", "QUEUED", "PROCESSING", "ERROR"].reduce((sum, status) => sum + (lane.counts[status] ?? 0), 0);
  const names = ["", "Job", "Status", "Type", "Created", "Last error", ""];
  const done = ["COMPLETED", "CANCELLED", "EXPIRED"].map((status) => `${format.count(lane.counts[status] ?? 0)} ${status}`);
  return h(
    "div",
    { class: "lane", "data-group": lane.groupKey },
    h("h3", {}, groupName(lane.groupKey)),
    h("div", { class: "notice", "data-kind": blocker || lane.paused ? "bad" : "good" }, blocker || lane.paused ? "Blocked: " : "Not blocked: ", lane.reason),
    lane.jobs.length
      ? h("div", { class: "table-box" }, h("table", {}, h("thead", {}, h("tr", {}, names.map((name) => h("th", {}, name)))), h("tbody", {}, lane.jobs.slice(0, FIRST_JOBS).map(row))))
      : null,
    h("p", { class: "about" }, `${waiting > FIRST_JOBS ? `${format.count(waiting - FIRST_JOBS)} more are waiting. ` : ""}Finished: ${done.join(", ")}. `, h("a", { href: `#/jobs?q=${encodeURIComponent(lane.groupKey)}` }, "All jobs of this group")),
  );
}

function decideButton(verb, job, again) {
  const act = async () => {
    if (await decide(verb, job)) await again();
  };
  return h("button", { type: "button", class: `small changes ${verb === "retry" ? "" : "danger-quiet"}`, onclick: act }, LABELS[verb]);
}
