// Overview: the verdict with its reasons, the worst subscriptions, throughput, latency, and what is waiting.
import { lines } from "../charts/lines.js";
import { badge, h } from "../components/dom.js";
import * as format from "../components/format.js";
import { history } from "../components/history.js";
import { card, head, kindOf, tile, trouble, wide, withCode } from "../components/parts.js";
import { table } from "../components/table.js";
import { get } from "../data/api.js";
import { live, successRate, watch } from "../data/live.js";
import { every } from "../data/poll.js";
import { nameOf, subscriptions } from "../data/subscriptions.js";
import { addressOf } from "./subscriptions.js";

const WAITING = [
  { name: "in the queues", cls: "s-1" },
  { name: "in the router", cls: "s-7" },
  { name: "being delivered", cls: "s-3" },
];
const COLLECTING = "Collecting data. The chart starts in a few seconds.";
const MOST_REASONS = 8;
const MOST_SUBSCRIPTIONS = 8;
const STORED_MINUTES = 5;
const STATUSES = ["PENDING", "QUEUED", "PROCESSING", "COMPLETED", "ERROR"];

export function mount(main, { signal }) {
  const problem = trouble();
  const tiles = {
    throughput: tile("Delivered / s", { id: "throughput" }),
    success: tile("Success rate", { id: "success-rate" }),
    latency: tile("p99 response", { id: "latency" }),
    oldest: tile("Oldest waiting", { id: "oldest", href: "#/jobs?status=PENDING" }),
    errors: tile("In ERROR", { id: "errors", href: "#/jobs?status=ERROR" }),
    health: tile("Health", { id: "health" }),
  };
  const waiting = lines({ label: "Waiting messages", series: WAITING, show: format.count, least: 4, empty: COLLECTING, quiet: "Nothing is waiting." });
  const past = history(signal);
  const reasons = h("ul", { class: "list-plain", id: "health-reasons" });
  const verdict = wide(12, card("Health", null, reasons));
  verdict.hidden = true;
  const parts = h("ul", { id: "parts", class: "list-plain" });
  const worst = table({
    columns: [
      { name: "Subscription", link: (row) => [row.name, addressOf(row.id)], class: "text" },
      { name: "Health", badge: (row) => (row.paused ? ["PAUSED", "warn"] : [row.status, kindOf(row.status)]) },
      { name: "Delivered / min", text: (row) => format.rate(row.perMinute), class: "number" },
      { name: "Success", text: (row) => format.percent(row.delivered + row.failed ? row.delivered / (row.delivered + row.failed) : null), class: "number" },
      { name: "p50", text: (row) => format.took(row.p50Ms === null ? null : Math.round(row.p50Ms)), class: "number" },
      { name: "p99", text: (row) => format.took(row.p99Ms === null ? null : Math.round(row.p99Ms)), class: "number" },
      { name: "Backlog", text: (row) => format.count(row.backlog) + (row.backlog >= row.backlogLimit ? "+" : ""), class: "number" },
      { name: "Oldest due", text: (row) => format.span(row.oldestDueS), class: "number" },
      { name: "Blocked keys", text: (row) => format.count(row.blockedGroups), class: "number" },
      { name: "Breaker", badge: (row) => [row.breaker, kindOf(row.breaker)] },
    ],
    key: (row) => row.id,
    empty: "No subscriptions yet. Create one: penstock subscriptions create billing --pattern 'orders:**' --target URL",
  });
  const counts = h("div", { class: "buttons", id: "job-counts" });
  const feed = table({
    columns: [
      { name: "Finished", text: (row) => format.at(row.finishedAtMs), class: "tight" },
      { name: "Job", link: (row) => [row.id, `#/jobs/${encodeURIComponent(row.id)}`], mono: true },
      { name: "Subscription", text: (row) => nameOf(row.subscriptionId), class: "text" },
      { name: "Group", text: (row) => row.group ?? "default", class: "text" },
      { name: "Status", badge: (row) => [row.status, kindOf(row.status)] },
      { name: "Took", text: (row) => format.took(row.durationMs), class: "number" },
      { name: "Total time", text: (row) => format.span((row.finishedAtMs - row.createdAtMs) / 1000), class: "number" },
    ],
    key: (row) => row.id,
    empty: "No deliveries yet. Create a subscription, then publish an event: penstock publish orders:placed --key order-1 --data 7",
  });
  main.append(
    head("Overview", "Throughput, success and backlog."),
    problem.node,
    h("div", { class: "tiles" }, ...Object.values(tiles).map((each) => each.node)),
    h(
      "div",
      { class: "grid" },
      verdict,
      wide(12, card("Subscriptions", "the worst first, last five minutes", worst.node)),
      wide(8, past.node),
      wide(4, card("Parts", null, parts, h("h3", {}, "Jobs"), counts)),
      wide(12, card("Waiting", "messages by location, while this page is open", waiting.node)),
      wide(12, card("Recently finished", null, feed.node)),
    ),
  );

  watch((live) => {
    if (live.troubles.api) problem.show(live.troubles.api);
    else problem.clear();
    const { ticks } = live;
    const times = ticks.map((each) => each.atMs);
    waiting.update(times, ticks.map((each) => each.waiting));
    showTiles(tiles, live);
  }, signal);
  // Until this page has measured for itself.
  every(4000, () => live.ticks.length || showStored(tiles), signal);
  every(4000, async () => {
    const [known, router, ready, spark, oldest, health] = await Promise.allSettled([
      subscriptions(),
      get("/api/router/monitoring"),
      fetch("/health/ready", { cache: "no-store" }).then((answer) => answer.json()),
      get("/api/pipeline"),
      get("/api/v1/jobs/oldest-waiting"),
      get("/health"),
    ]);
    showOldest(tiles.oldest, oldest);
    showHealth(tiles.health, verdict, reasons, health);
    if (health.status === "fulfilled") worst.update(health.value.subscriptions.slice(0, MOST_SUBSCRIPTIONS));
    showParts(parts, ready, router, spark, health.value);
    if (known.status === "fulfilled") {
      const found = await get("/api/v1/deliveries", { limit: 8 }).catch(() => null);
      if (found) feed.update(found.deliveries);
    }
  }, signal);
  // Counting reads every job: the longer it takes, the less often it is done.
  let nextMs = 0;
  every(4000, async () => {
    if (Date.now() < nextMs) return;
    const beganMs = Date.now();
    const found = await get("/api/v1/jobs/counts").catch(() => null);
    nextMs = Date.now() + 20 * (Date.now() - beganMs);
    if (found) showCounts(tiles.errors, counts, found.counts);
  }, signal);
}

// Show what the database has counted in the last minutes.
async function showStored(tiles) {
  const found = await get("/api/v1/statistics/history", { sinceMs: Date.now() - STORED_MINUTES * 60_000, stepMinutes: 1 }).catch(() => null);
  if (!found || live.ticks.length) return;
  const sum = (name) => found.steps.reduce((total, step) => total + step[name], 0);
  const [delivered, failed] = [sum("delivered"), sum("failed") + sum("refused")];
  const note = `last ${format.plural(STORED_MINUTES, "minute")}`;
  tiles.throughput.set(format.rate(delivered / STORED_MINUTES / 60), note);
  showSuccess(tiles.success, delivered + failed ? delivered / (delivered + failed) : null, note);
  const p99Ms = Math.max(-1, ...found.steps.map((step) => step.p99Ms ?? -1));
  tiles.latency.set(p99Ms < 0 ? format.NONE : format.span(p99Ms / 1000), p99Ms < 0 ? "no recent deliveries" : `the slowest minute of ${STORED_MINUTES}`);
}

function showSuccess(place, share, note) {
  place.set(format.percent(share), share === null ? "no recent deliveries" : note, share === null ? "" : share < 0.9 ? "bad" : share < 0.99 ? "warn" : "good");
}

function showTiles(tiles, live) {
  const { ticks } = live;
  if (!ticks.length) return;
  const last = ticks.slice(-5);
  const perSecond = last.reduce((sum, each) => sum + each.outcomes[0], 0) / last.length;
  tiles.throughput.set(format.rate(perSecond), "last 10 seconds");
  showSuccess(tiles.success, successRate(ticks), "last minute");
  const [p50, , p99] = ticks.at(-1)?.quantiles ?? [null, null, null];
  tiles.latency.set(format.span(p99), p99 === null ? "no recent deliveries" : `p50: ${format.span(p50)}`);
}

// The database knows the waiting jobs with either engine; the router may have other messages too.
function showOldest(place, oldest) {
  if (oldest.status === "rejected") {
    place.set(format.NONE, "unknown");
    return;
  }
  const { heldAgeS } = oldest.value;
  const ageS = Math.max(oldest.value.ageS ?? 0, live.router?.most("router_pool_oldest_waiting_seconds") ?? 0);
  const note = heldAgeS === null ? "before delivery" : `held back: ${format.span(heldAgeS)}`;
  place.set(format.span(ageS), note, ageS > 60 ? "bad" : ageS > 10 ? "warn" : "");
}

function showHealth(place, verdict, list, health) {
  if (health.status === "rejected") {
    place.set("UNKNOWN", "the API does not answer", "bad");
    return;
  }
  const { status, summary, reasons } = health.value;
  place.set(status, summary, kindOf(status));
  verdict.hidden = reasons.length === 0;
  list.replaceChildren(
    ...reasons.slice(0, MOST_REASONS).map((reason) =>
      h(
        "li",
        {},
        h("div", { class: "part-row" }, h("a", { href: reason.link }, reason.message), badge(reason.status, kindOf(reason.status))),
        h("div", { class: "about" }, ...withCode(reason.remedy)),
      ),
    ),
  );
}

function showParts(list, ready, router, spark, verdict) {
  const row = (name, word, kind, about) =>
    h("li", {}, h("div", { class: "part-row" }, h("span", {}, name), badge(word, kind)), about ? h("div", { class: "about" }, about) : null);
  const up = ready.status === "fulfilled" && ready.value.status === "ready";
  const piped = spark.status === "fulfilled" && spark.value.reachable;
  const failing = piped ? spark.value.queries.filter((query) => query.status === "WAITING" || query.status === "FAILED") : [];
  list.replaceChildren(
    row("API and database", up ? "ready" : "not ready", up ? "good" : "bad", up ? null : unready(ready)),
    row("Router", ...routerOf(router, verdict)),
    row(
      "Pipeline",
      failing.length ? "failing" : piped ? "running" : "not running",
      failing.length ? "bad" : piped ? "good" : "",
      failing.length ? failing.map((query) => `${query.name}: ${query.lastError}`).join("; ") : piped ? behind(spark.value.queries) : "Not needed with --engine inline.",
    ),
    row(h("a", { href: "#/warnings" }, "Warnings"), ...warningsOf(router)),
    ...(verdict?.cluster?.nodes ?? []).map((node) => row(`Node ${node.name}`, node.draining ? "stopping" : "live", node.draining ? "warn" : "good", ownedBy(node, verdict.cluster))),
  );
}

// The verdict's word where there is one, as `penstock status` has: endpoints that fail are the subscriptions' reasons.
function routerOf(router, verdict) {
  const known = verdict?.parts.find((part) => part.name === "router");
  if (known) return [known.status, kindOf(known.status), known.detail || null];
  if (router.status === "rejected") return ["not reachable", "bad", router.reason.message];
  const { status, reasons } = router.value.health;
  return [status, kindOf(status), reasons.join("; ")];
}

// Return the details of failing checks.
function unready(ready) {
  const failing = Object.values(ready.value?.checks ?? {}).filter((check) => !check.ok);
  return failing.length ? failing.map((check) => check.detail).join("; ") : "The readiness check fails; see the log.";
}

// Return what a node of a cluster owns.
function ownedBy(node, { shards }) {
  const owned = [...new Set(shards.map((shard) => shard.part))].flatMap((part) => {
    const all = shards.filter((shard) => shard.part === part);
    const own = all.filter((shard) => shard.owner === node.name);
    if (!own.length) return [];
    const [{ epoch, moves }] = own;
    return [all.length === 1 ? `${part} (epoch ${epoch}, ${format.plural(moves, "move")})` : `${part} (${own.length} of ${all.length} shards)`];
  });
  return owned.length ? `owns ${owned.join(", ")}` : "owns nothing, and takes over";
}

// Return the backlog of streaming queries, if any.
function behind(queries) {
  const late = queries.filter((query) => query.lag > 0);
  return late.length ? late.map((query) => `${query.name}: ${format.plural(query.lag, "row")} waiting`).join("; ") : null;
}

function warningsOf(router) {
  if (router.status === "rejected") return ["unknown", ""];
  const open = router.value.unacknowledgedWarnings;
  const number = Object.values(open).reduce((sum, value) => sum + value, 0);
  return number ? [`${number} open`, open.CRITICAL || open.ERROR ? "bad" : "warn"] : ["none", "good"];
}

function showCounts(errors, place, counts) {
  const failed = counts.ERROR ?? 0;
  errors.set(format.count(failed), failed ? "need a decision" : "none", failed ? "bad" : "good");
  place.replaceChildren(
    ...STATUSES.map((status) => {
      const word = badge(`${status} ${format.count(counts[status] ?? 0)}`, kindOf(status));
      return h("a", { href: `#/jobs?status=${status}`, "data-status": status }, word);
    }),
  );
}
