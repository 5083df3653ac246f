// Pools with their limits, which can be changed while they run, and the breakers of endpoints.
import { area } from "../charts/area.js";
import { confirmed, field, form } from "../components/dialogs.js";
import { h } from "../components/dom.js";
import * as format from "../components/format.js";
import { card, head, kindOf, loader, trouble } from "../components/parts.js";
import { table } from "../components/table.js";
import { attempt, toast } from "../components/toast.js";
import { getAll, path, post, put } from "../data/api.js";
import { TICK_MS, watch } from "../data/live.js";
import { every } from "../data/poll.js";

// A lower concurrency waits until enough deliveries have finished.
const CHANGE_MS = 70_000;
const MOST_SERIES = 7;

export function mount(main, { signal }) {
  const problem = trouble();
  const add = h("button", { type: "button", class: "primary changes", onclick: () => edit(null) }, "New pool…");
  const used = area({ label: "Running deliveries by pool", series: [], show: format.count, least: 4, empty: "Collecting data. The chart starts in a few seconds.", quiet: "No deliveries while this page was open." });
  const pools = table({
    columns: [
      { name: "Pool", text: (row) => row.code },
      { name: "Concurrency", text: (row) => format.count(row.concurrency), class: "number" },
      { name: "Per minute", text: (row) => (row.rateLimitPerMinute === null ? "no limit" : format.count(row.rateLimitPerMinute)), class: "number" },
      { name: "Running", text: (row) => format.count(row.active), class: "number" },
      { name: "Waiting", text: (row) => format.count(row.queued), class: "number" },
      { name: "Groups", text: (row) => format.count(row.groups), class: "number" },
      { name: "Oldest waiting", text: (row) => format.span(row.oldestWaitingS), class: "number" },
      { name: "Delivered", text: (row) => format.count(row.succeeded), class: "number" },
      { name: "Average", text: (row) => format.span(row.averageProcessingMs / 1000), class: "number" },
      { name: "State", badge: (row) => (row.draining ? ["draining", "warn"] : row.rateLimited ? ["rate limited", "warn"] : ["open", "good"]) },
      { name: "", make: (current) => h("button", { type: "button", class: "small changes", onclick: () => edit(current()) }, "Edit…") },
    ],
    key: (row) => row.code,
    empty: "No pools yet. The router loads its configuration when it starts.",
  });
  const router = breakerTable("/api/router/monitoring/circuit-breakers", "The router has not called any endpoint yet.");
  const subscribers = breakerTable("/api/v1/breakers", "No breakers yet. The first delivery to a subscriber creates one.");
  main.append(
    head("Pools", "Limits of concurrent deliveries and deliveries per minute. Changes take effect immediately and are stored.", add),
    problem.node,
    card("Pools", null, pools.node),
    card("Running deliveries", "by pool", used.node),
    card("Circuit breakers of subscribers", "an open breaker stops deliveries for a while", subscribers.node),
    card("Circuit breakers of the router", "for calls to this API and to other endpoints", router.node),
  );

  const load = loader(
    problem,
    () =>
      Promise.all([
        getAll("/api/router/monitoring/pools", "pools"),
        getAll(router.path, "circuitBreakers"),
        getAll(subscribers.path, "circuitBreakers"),
      ]),
    ([foundPools, ofRouter, ofSubscribers]) => {
      pools.update(foundPools);
      // A router that sends webhooks itself has the breakers of subscribers too.
      const ofWebhooks = new Set(ofSubscribers.map((each) => each.endpoint));
      router.update(ofRouter.filter((each) => !ofWebhooks.has(each.endpoint)));
      subscribers.update(ofSubscribers);
    },
  );
  every(TICK_MS, load, signal);
  watch(({ ticks }) => {
    const codes = [...new Set(ticks.flatMap((tick) => [...tick.pools.keys()]))].slice(0, MOST_SERIES);
    const series = codes.map((name, index) => ({ name, cls: `s-${index + 1}` }));
    used.update(ticks.map((tick) => tick.atMs), ticks.map((tick) => codes.map((code) => tick.pools.get(code) ?? 0)), series);
  }, signal);

  async function edit(pool) {
    const code = h("input", { name: "code", required: true, maxlength: 256, value: pool?.code ?? "" });
    const concurrency = h("input", { name: "concurrency", type: "number", min: 1, max: 100_000, required: true, value: pool?.concurrency ?? 10 });
    const limit = h("input", { name: "limit", type: "number", min: 1, max: 100_000_000, value: pool?.rateLimitPerMinute ?? "", placeholder: "no limit" });
    await form({
      title: pool ? `Edit pool ${pool.code}` : "New pool",
      about: "Takes effect immediately for deliveries that have not started. A lower concurrency waits until enough have finished.",
      fields: [pool ? null : field("Code, as used by subscriptions", code), field("Concurrent deliveries", concurrency), field("Deliveries per minute", limit)],
      action: pool ? "Save" : "Create",
      submit: (values) => save(pool?.code ?? values.code, Number(values.concurrency), values.limit ? Number(values.limit) : null, Boolean(pool)),
    });
    await load();
  }

  async function save(code, concurrency, rateLimitPerMinute, exists) {
    const body = { concurrency, rateLimitPerMinute };
    // Store it first, so that the router's next sync does not undo it; then notify the router, which may be down.
    await put(path`/api/v1/pools/${code}`, body);
    try {
      if (exists) await put(path`/api/router/monitoring/pools/${code}`, body, CHANGE_MS);
      else await post("/api/router/config/reload");
      toast(`Pool ${code} has concurrency ${concurrency}, ${rateLimitPerMinute ?? "no limit"} per minute.`);
    } catch (error) {
      toast(`Pool ${code} is stored, but the router has not applied it yet: ${error.message}`, "bad");
    }
  }

  function breakerTable(where, empty) {
    const made = table({
      columns: [
        { name: "Endpoint", text: (row) => row.endpoint, class: "long" },
        { name: "State", badge: (row) => [row.state, kindOf(row.state)] },
        { name: "Calls in window", text: (row) => format.count(row.calls), class: "number" },
        { name: "Failures", text: (row) => format.count(row.failures), class: "number" },
        { name: "Rejected", text: (row) => format.count(row.rejected), class: "number" },
        { name: "Opened", text: (row) => format.ago(row.openedAtMs), class: "tight" },
        { name: "", make: (current) => h("button", { type: "button", class: "small changes", onclick: () => reset(where, current()) }, "Reset…") },
      ],
      key: (row) => row.endpoint,
      empty,
    });
    return { ...made, path: where };
  }

  async function reset(where, breaker) {
    const yes = await confirmed({
      title: "Reset this breaker?",
      about: `Deliveries to ${breaker.endpoint} are tried immediately. If the endpoint is still down, they fail and the breaker opens again.`,
      action: "Reset",
      danger: false,
    });
    if (yes) await attempt(() => post(`${where}/reset`, { endpoint: breaker.endpoint }), "The breaker was closed.");
    await load();
  }
}
