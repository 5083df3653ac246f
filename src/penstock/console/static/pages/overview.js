// Overview: is it going, how fast, how well, and what stands in the way.
import { get } from "../api.js";
import { area } from "../charts/area.js";
import { lines } from "../charts/lines.js";
import { nameOf, subscriptions } from "../directory.js";
import { badge, h } from "../dom.js";
import * as format from "../format.js";
import { history } from "../history.js";
import { live, successRate, watch } from "../live.js";
import { card, head, kindOf, tile, trouble, wide } from "../parts.js";
import { every } from "../polling.js";
import { table } from "../table.js";

const OUTCOMES = [
  { name: "delivered", cls: "s-3" },
  { name: "deferred", cls: "s-2" },
  { name: "failed", cls: "s-5" },
  { name: "refused", cls: "s-4" },
];
const QUANTILES = [
  { name: "p50", cls: "s-1" },
  { name: "p95", cls: "s-2" },
  { name: "p99", cls: "s-5" },
];
const WAITING = [
  { name: "in the queues", cls: "s-1" },
  { name: "in the router", cls: "s-7" },
  { name: "being delivered", cls: "s-3" },
];
const COLLECTING = "The first values come in a few seconds: this page measures while it is open.";
const NO_DELIVERY = "Nothing was delivered while this page was open.";
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
  const throughput = area({ height: 240, label: "Deliveries per second by outcome", series: OUTCOMES, show: format.rate, least: 4, empty: COLLECTING, quiet: NO_DELIVERY });
  const latency = lines({ label: "Response time of subscribers", series: QUANTILES, show: format.span, least: 0.01, empty: COLLECTING, quiet: NO_DELIVERY });
  const waiting = lines({ label: "Messages that wait", series: WAITING, show: format.count, least: 4, empty: COLLECTING, quiet: "Nothing waits." });
  const past = history(signal);
  const reasons = h("ul", { class: "list-plain" });
  const counts = h("div", { class: "buttons", id: "job-counts" });
  const feed = table({
    columns: [
      { name: "Finished", text: (row) => format.at(row.finishedAtMs), class: "tight" },
      { name: "Job", link: (row) => [row.id, `#/jobs/${encodeURIComponent(row.id)}`], mono: true },
      { name: "Subscription", text: (row) => nameOf(row.subscriptionId), class: "text" },
      { name: "Group", text: (row) => row.group ?? "default", class: "text" },
      { name: "Status", badge: (row) => [row.status, kindOf(row.status)] },
      { name: "Took", text: (row) => format.took(row.durationMs), class: "number" },
      { name: "From event to end", text: (row) => format.span((row.finishedAtMs - row.createdAtMs) / 1000), class: "number" },
    ],
    key: (row) => row.id,
    empty: "Nothing was delivered yet. Make a subscription, then publish an event: penstock publish orders:placed --key order-1 --data 7",
  });
  main.append(
    head("Overview", "What is delivered, how well, and what waits."),
    problem.node,
    h("div", { class: "tiles" }, ...Object.values(tiles).map((each) => each.node)),
    h(
      "div",
      { class: "grid" },
      wide(8, card("Deliveries per second", "by outcome", throughput.node)),
      wide(4, card("Parts", null, reasons, h("h3", {}, "Jobs"), counts)),
      wide(6, card("Response time", "of subscribers, last minute", latency.node)),
      wide(6, card("Waiting", "messages by where they are", waiting.node)),
      wide(12, past.node),
      wide(12, card("Finished lately", null, feed.node)),
    ),
  );

  watch((live) => {
    if (live.troubles.api) problem.tell(live.troubles.api);
    else problem.clear();
    const { ticks } = live;
    const times = ticks.map((each) => each.atMs);
    throughput.update(times, ticks.map((each) => each.outcomes));
    latency.update(times, ticks.map((each) => each.quantiles));
    waiting.update(times, ticks.map((each) => each.waiting));
    showTiles(tiles, live);
  }, signal);
  every(4000, async () => {
    const [known, router, ready, spark, oldest] = await Promise.allSettled([
      subscriptions(),
      get("/api/router/monitoring"),
      fetch("/health/ready", { cache: "no-store" }).then((answer) => answer.json()),
      get("/api/pipeline"),
      get("/api/v1/jobs/oldest-waiting"),
    ]);
    showOldest(tiles.oldest, oldest);
    showHealth(tiles.health, router);
    showParts(reasons, ready, router, spark);
    if (known.status === "fulfilled") {
      const found = await get("/api/v1/deliveries", { limit: 8 }).catch(() => null);
      if (found) feed.update(found.deliveries);
    }
  }, signal);
  // Counting looks at every job: the longer it takes, the less often it is done.
  let nextMs = 0;
  every(4000, async () => {
    if (Date.now() < nextMs) return;
    const beganMs = Date.now();
    const found = await get("/api/v1/jobs/counts").catch(() => null);
    nextMs = Date.now() + 20 * (Date.now() - beganMs);
    if (found) showCounts(tiles.errors, counts, found.counts);
  }, signal);
}

function showTiles(tiles, live) {
  const { ticks } = live;
  const last = ticks.slice(-5);
  const perSecond = last.length ? last.reduce((sum, each) => sum + each.outcomes[0], 0) / last.length : null;
  tiles.throughput.set(format.rate(perSecond), "last ten seconds");
  const share = successRate(ticks);
  tiles.success.set(format.percent(share), share === null ? "none lately" : "last minute", share === null ? "" : share < 0.9 ? "bad" : share < 0.99 ? "warn" : "good");
  const [p50, , p99] = ticks.at(-1)?.quantiles ?? [null, null, null];
  tiles.latency.set(format.span(p99), p99 === null ? "none lately" : `half within ${format.span(p50)}`);
}

// The database knows which jobs wait, whichever engine takes them from there; the router may have other messages too.
function showOldest(place, oldest) {
  if (oldest.status === "rejected") {
    place.set(format.NONE, "the database does not say");
    return;
  }
  const { heldAgeS } = oldest.value;
  const ageS = Math.max(oldest.value.ageS ?? 0, live.router?.most("router_pool_oldest_waiting_seconds") ?? 0);
  const note = heldAgeS === null ? "before its delivery" : `held back: ${format.span(heldAgeS)}`;
  place.set(format.span(ageS), note, ageS > 60 ? "bad" : ageS > 10 ? "warn" : "");
}

function showHealth(place, router) {
  if (router.status === "rejected") place.set("UNKNOWN", "the router does not answer", "bad");
  else {
    const { status, reasons } = router.value.health;
    place.set(status, reasons[0] ?? "no reason to worry", kindOf(status));
  }
}

function showParts(list, ready, router, spark) {
  const row = (name, word, kind, about) =>
    h("li", {}, h("div", { class: "part-row" }, h("span", {}, name), badge(word, kind)), about ? h("div", { class: "about" }, about) : null);
  const up = ready.status === "fulfilled" && ready.value.status === "ready";
  const routerUp = router.status === "fulfilled";
  const piped = spark.status === "fulfilled" && spark.value.reachable;
  const ill = piped ? spark.value.queries.filter((query) => query.status === "WAITING" || query.status === "FAILED") : [];
  list.replaceChildren(
    row("API and database", up ? "ready" : "not ready", up ? "good" : "bad", up ? null : unready(ready)),
    row("Router", routerUp ? router.value.health.status : "not reachable", routerUp ? kindOf(router.value.health.status) : "bad", routerUp ? router.value.health.reasons.join("; ") : router.reason.message),
    row(
      "Pipeline",
      ill.length ? "failing" : piped ? "running" : "not there",
      ill.length ? "bad" : piped ? "good" : "",
      ill.length ? ill.map((query) => `${query.name}: ${query.lastError}`).join("; ") : piped ? behind(spark.value.queries) : "Not needed with --engine inline.",
    ),
    row(h("a", { href: "#/warnings" }, "Warnings"), ...warningsOf(router)),
  );
}

// What the checks that fail have to say.
function unready(ready) {
  const failing = Object.values(ready.value?.checks ?? {}).filter((check) => !check.ok);
  return failing.length ? failing.map((check) => check.detail).join("; ") : "Its readiness check fails; the log says why.";
}

// Rows that streaming queries have still to take, if any.
function behind(queries) {
  const late = queries.filter((query) => query.lag > 0);
  return late.length ? late.map((query) => `${query.name}: ${format.plural(query.lag, "row")} wait`).join("; ") : null;
}

function warningsOf(router) {
  if (router.status === "rejected") return ["unknown", ""];
  const open = router.value.unacknowledgedWarnings;
  const number = Object.values(open).reduce((sum, value) => sum + value, 0);
  return number ? [`${number} open`, open.CRITICAL || open.ERROR ? "bad" : "warn"] : ["none", "good"];
}

function showCounts(errors, place, counts) {
  const failed = counts.ERROR ?? 0;
  errors.set(format.count(failed), failed ? "to be decided" : "none", failed ? "bad" : "good");
  place.replaceChildren(
    ...STATUSES.map((status) => {
      const word = badge(`${status} ${format.count(counts[status] ?? 0)}`, kindOf(status));
      return h("a", { href: `#/jobs?status=${status}`, "data-status": status }, word);
    }),
  );
}
