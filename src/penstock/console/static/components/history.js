// Charts of hours and days, from the database's counts per minute.
import { area } from "../charts/area.js";
import { lines } from "../charts/lines.js";
import { get } from "../data/api.js";
import { every } from "../data/poll.js";
import { h } from "./dom.js";
import * as format from "./format.js";
import { card, options } from "./parts.js";

const MINUTE_MS = 60_000;
const SPANS = { 0.5: ["last 30 minutes", 1], 3: ["last 3 hours", 1], 12: ["last 12 hours", 5], 48: ["last 2 days", 15] };
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
const NOTHING = "No deliveries in this period.";

// Return a card with two charts and a choice of their period; `of` chooses a dimension and a name of the statistics.
export function history(signal, of = {}) {
  const choice = h("select", { "aria-label": "Period", onchange: () => load() });
  options(choice, Object.entries(SPANS).map(([hours, [text]]) => [hours, text]), "0.5");
  const outcomes = area({ height: 150, label: "Deliveries per minute by outcome", series: OUTCOMES, show: format.count, least: 4, empty: NOTHING, quiet: NOTHING });
  const latency = lines({ height: 150, label: "Response time over hours", series: QUANTILES, show: (ms) => format.span(ms === null ? null : ms / 1000), least: 10, empty: NOTHING, quiet: NOTHING });
  const node = card("History", null, h("div", { class: "pair" }, outcomes.node, latency.node));
  node.querySelector(".card-head").append(choice);

  async function load() {
    const [, stepMinutes] = SPANS[choice.value];
    const stepMs = stepMinutes * MINUTE_MS;
    const sinceMs = Date.now() - choice.value * 60 * MINUTE_MS;
    const found = await get("/api/v1/statistics/history", { ...of, sinceMs: Math.floor(sinceMs), stepMinutes }).catch(() => null);
    if (!found) return;
    const known = new Map(found.steps.map((step) => [step.atMs, step]));
    const times = [];
    for (let ms = Math.floor(sinceMs / stepMs) * stepMs; ms <= Date.now(); ms += stepMs) times.push(ms);
    const perMinute = (step, name) => (step?.[name] ?? 0) / stepMinutes;
    outcomes.update(times, times.map((ms) => OUTCOMES.map(({ name }) => perMinute(known.get(ms), name))));
    latency.update(times, times.map((ms) => QUANTILES.map(({ name }) => known.get(ms)?.[`${name}Ms`] ?? null)));
  }

  every(5000, load, signal);
  return { node };
}
