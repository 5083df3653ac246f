// Pools: how many deliveries at once and how many a minute, changed while they run; and the breakers of endpoints.
import { getAll, path, post, put } from "../api.js";
import { area } from "../charts/area.js";
import { confirmed, field, form } from "../dialogs.js";
import { h } from "../dom.js";
import * as format from "../format.js";
import { TICK_MS, watch } from "../live.js";
import { card, head, kindOf, loader, trouble } from "../parts.js";
import { every } from "../polling.js";
import { table } from "../table.js";
import { attempt, toast } from "../toast.js";

// A lower concurrency waits for deliveries to end.
const CHANGE_MS = 70_000;
const MOST_SERIES = 7;

export function mount(main, { signal }) {
  const problem = trouble();
  const add = h("button", { type: "button", class: "primary", onclick: () => edit(null) }, "New pool…");
  const used = area({ label: "Deliveries under way by pool", series: [], show: format.count, least: 4, empty: "The first values come in a few seconds.", quiet: "Nothing was under way while this page was open." });
  const pools = table({
    columns: [
      { name: "Pool", text: (row) => row.code },
      { name: "Concurrency", text: (row) => format.count(row.concurrency), class: "number" },
      { name: "Per minute", text: (row) => (row.rateLimitPerMinute === null ? "no limit" : format.count(row.rateLimitPerMinute)), class: "number" },
      { name: "Under way", text: (row) => format.count(row.active), class: "number" },
      { name: "Waiting", text: (row) => format.count(row.queued), class: "number" },
      { name: "Groups", text: (row) => format.count(row.groups), class: "number" },
      { name: "Oldest waiting", text: (row) => format.span(row.oldestWaitingS), class: "number" },
      { name: "Done", text: (row) => format.count(row.succeeded), class: "number" },
      { name: "Average", text: (row) => format.span(row.averageProcessingMs / 1000), class: "number" },
      { name: "State", badge: (row) => (row.draining ? ["draining", "warn"] : row.rateLimited ? ["rate limited", "warn"] : ["open", "good"]) },
      { name: "", make: (current) => h("button", { type: "button", class: "small", onclick: () => edit(current()) }, "Change…") },
    ],
    key: (row) => row.code,
    empty: "The router has no pools yet: it fetches its configuration when it starts.",
  });
  const router = breakerTable("/api/router/monitoring/circuit-breakers", "The router has called no endpoint yet.");
  const subscribers = breakerTable("/api/v1/breakers", "No subscriber was called yet: the first delivery makes a breaker.");
  main.append(
    head("Pools", "How many deliveries at once, and how many a minute. Changes hold at once and are kept.", add),
    problem.node,
    card("Pools", null, pools.node),
    card("Deliveries under way", "by pool", used.node),
    card("Circuit breakers of subscribers", "an open one holds deliveries back for a while", subscribers.node),
    card("Circuit breakers of the router", "towards this API, or whatever its messages name", router.node),
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
      router.update(ofRouter);
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
      title: pool ? `Change pool ${pool.code}` : "New pool",
      about: "Holds at once for deliveries that have not begun. A lower concurrency waits until enough have ended.",
      fields: [pool ? null : field("Code, as subscriptions name it", code), field("Deliveries at once", concurrency), field("Deliveries a minute", limit)],
      action: pool ? "Change" : "Make",
      submit: (values) => save(pool?.code ?? values.code, Number(values.concurrency), values.limit ? Number(values.limit) : null, Boolean(pool)),
    });
    await load();
  }

  async function save(code, concurrency, rateLimitPerMinute, exists) {
    const body = { concurrency, rateLimitPerMinute };
    // Kept first, so that the router's next sync does not take it back; then told to the router, which may be away.
    await put(path`/api/v1/pools/${code}`, body);
    try {
      if (exists) await put(path`/api/router/monitoring/pools/${code}`, body, CHANGE_MS);
      else await post("/api/router/config/reload");
      toast(`Pool ${code} has ${concurrency} at once, ${rateLimitPerMinute ?? "no limit"} a minute.`);
    } catch (error) {
      toast(`Pool ${code} is kept, but the router does not follow yet: ${error.message}`, "bad");
    }
  }

  function breakerTable(where, empty) {
    const made = table({
      columns: [
        { name: "Endpoint", text: (row) => row.endpoint, class: "long" },
        { name: "State", badge: (row) => [row.state, kindOf(row.state)] },
        { name: "Calls in window", text: (row) => format.count(row.calls), class: "number" },
        { name: "Failures", text: (row) => format.count(row.failures), class: "number" },
        { name: "Held back", text: (row) => format.count(row.rejected), class: "number" },
        { name: "Opened", text: (row) => format.ago(row.openedAtMs), class: "tight" },
        { name: "", make: (current) => h("button", { type: "button", class: "small", onclick: () => reset(where, current()) }, "Reset…") },
      ],
      key: (row) => row.endpoint,
      empty,
    });
    return { ...made, path: where };
  }

  async function reset(where, breaker) {
    const yes = await confirmed({
      title: "Reset this breaker?",
      about: `Deliveries to ${breaker.endpoint} are tried at once, whatever it answered before. If it is still down, they fail and the breaker opens again.`,
      action: "Reset it",
      danger: false,
    });
    if (yes) await attempt(() => post(`${where}/reset`, { endpoint: breaker.endpoint }), "The breaker is closed.");
    await load();
  }
}
