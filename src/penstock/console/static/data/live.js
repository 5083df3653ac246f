// Measurements of the last ten minutes, taken every two seconds while the page is visible and kept in memory.
import { get, getAll } from "./api.js";
import { every } from "./poll.js";
import { growth, quantile, Samples } from "./samples.js";

export const TICK_MS = 2000;
const KEPT = 300;
// Percentiles cover the last minute, since a single tick may have no deliveries.
const WINDOW = 30;
const MOST_GROUPS = 200;
const OUTCOMES = ["DELIVERED", "DEFERRED", "FAILED", "REFUSED"];

export const live = {
  ticks: [], // [{atMs, outcomes, quantiles, router, queues}], newest last
  api: null,
  router: null,
  queues: null,
  groups: null,
  troubles: { api: null, router: null, queues: null, groups: null },
};
const watchers = new Set();
let seen = [];

// Call back after every tick, and immediately if there was one.
export function watch(callback, signal) {
  watchers.add(callback);
  signal.addEventListener("abort", () => watchers.delete(callback));
  if (live.ticks.length) callback(live);
}

export function startLive(signal) {
  every(TICK_MS, tick, signal);
}

async function part(name, load) {
  try {
    live[name] = await load();
    live.troubles[name] = null;
  } catch (error) {
    live[name] = null;
    live.troubles[name] = error;
  }
}

async function tick() {
  await Promise.all([
    part("api", async () => new Samples(await get("/api/v1/metrics"))),
    part("router", async () => new Samples(await get("/api/router/metrics"))),
    part("queues", () => getAll("/api/queues", "queues")),
    part("groups", async () => (await get("/api/router/monitoring/groups", { order: "longest", limit: MOST_GROUPS })).groups),
  ]);
  if (live.api) {
    // Either part may deliver. Without an answer of the router its last counts hold, or they would seem to jump.
    const counting = live.router ?? seen.at(-1)?.counting;
    seen = [...seen, { api: live.api, router: live.router, counting }].slice(-KEPT);
    if (seen.length > 1) live.ticks = [...live.ticks, measured(seen.at(-2), seen.at(-1))].slice(-KEPT);
  }
  for (const callback of watchers) callback(live);
}

function measured(before, now) {
  const seconds = Math.max(0.001, (now.api.atMs - before.api.atMs) / 1000);
  const counted = ({ api, counting }, outcome) => api.and(counting).sum("job_deliveries_total", { outcome });
  const from = seen.at(-Math.min(seen.length, WINDOW));
  const [old, fresh] = [from, now].map(({ api, counting }) => api.and(counting).buckets("job_delivery_seconds"));
  return {
    atMs: now.api.atMs,
    outcomes: OUTCOMES.map((outcome) => growth(counted(before, outcome), counted(now, outcome), seconds)),
    published: growth(before.api.sum("scheduler_published_total"), now.api.sum("scheduler_published_total"), seconds),
    quantiles: [0.5, 0.95, 0.99].map((share) => quantile(old, fresh, share)),
    waiting: [
      live.queues?.reduce((sum, queue) => sum + queue.visible, 0) ?? null,
      now.router?.sum("router_pool_queued") ?? null,
      now.router?.sum("router_pool_active") ?? null,
    ],
    pools: now.router?.by("router_pool_active", "pool") ?? new Map(),
    groups: groupsOf(before.router, now.router),
    // If only the longest queues are listed, a group that is not listed may have any length.
    allGroups: (live.groups?.length ?? 0) < MOST_GROUPS,
    busy: before.router && now.router ? busyIn(before.router, now.router) : 0,
  };
}

// Return the waiting messages, the average number of running deliveries, and the number of deliveries and the time they
// took, of each group.
function groupsOf(before, now) {
  const groups = new Map();
  if (!now) return groups;
  const entry = (name) => groups.get(name) ?? groups.set(name, { queued: 0, busy: 0, ended: 0, tookS: 0 }).get(name);
  for (const { group, queued } of live.groups ?? []) entry(group).queued += queued;
  if (!before) return groups;
  const seconds = Math.max(0.001, (now.atMs - before.atMs) / 1000);
  const earlier = new Map(before.all("router_group_processing_seconds").map((each) => [`${each.labels.pool} ${each.labels.group}`, each.value]));
  for (const { labels, value } of now.all("router_group_processing_seconds")) {
    const known = earlier.get(`${labels.pool} ${labels.group}`);
    // A group that is new in the list comes with its whole past, which is not work of this moment.
    if (known !== undefined) entry(labels.group).busy += growth(known, value, seconds);
  }
  for (const [measure, name] of [["ended", "router_group_delivery_seconds_count"], ["tookS", "router_group_delivery_seconds_sum"]]) {
    const past = new Map(before.all(name).map((each) => [`${each.labels.pool} ${each.labels.group}`, each.value]));
    for (const { labels, value } of now.all(name)) entry(labels.group)[measure] += growth(past.get(`${labels.pool} ${labels.group}`) ?? 0, value, 1);
  }
  return groups;
}

// Return the average number of running deliveries in all pools.
function busyIn(before, now) {
  const name = "router_pool_processing_seconds_sum";
  return growth(before.sum(name), now.sum(name), Math.max(0.001, (now.atMs - before.atMs) / 1000));
}

// Return the share of deliveries that succeeded in the last minute, or null if there were none.
export function successRate(ticks) {
  const sums = OUTCOMES.map((_, index) => ticks.slice(-WINDOW).reduce((sum, each) => sum + each.outcomes[index], 0));
  const ended = sums[0] + sums[2] + sums[3];
  return ended > 0 ? sums[0] / ended : null;
}
