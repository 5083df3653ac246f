// Replays: starting one, how far each is, stopping and continuing.
import { get, path, PORTAL, post } from "../data/api.js";
import { every } from "../data/poll.js";
import { h } from "./dom.js";
import * as format from "./format.js";
import { card } from "./parts.js";
import { table } from "./table.js";
import { attempt } from "./toast.js";

const SHOWN_MS = 7 * 24 * 60 * 60 * 1000;
const RATE_OVER_MS = 10_000;

// How many jobs a replay would take, as the API counted: it stops counting at some thousands.
export const found = (count) => {
  const total = count.made + count.retried;
  return count.truncated ? `more than ${format.plural(total - 1, "job")}` : format.plural(total, "job");
};

export async function begin(filter) {
  return attempt(
    () => post("/api/v1/replays", filter, 120_000),
    (done) => (done.running ? `Replay ${done.replayId} has begun: the page Jobs shows how far it is.` : `Replay ${done.replayId}: ${done.made + done.retried} copies created.`),
  );
}

// A card with the replays of the last week that are unfinished, and what becomes of them; hidden while there are none.
export function replays(signal) {
  const seen = new Map();
  const listed = table({
    columns: [
      { name: "Replay", text: (row) => row.id, mono: true },
      { name: "Jobs", text: (row) => (row.total === null ? "counting…" : format.count(row.total)), class: "number" },
      { name: "Done", text: (row) => format.count(row.done), class: "number" },
      { name: "Failed", text: (row) => format.count(row.failed + row.heldBack), class: "number" },
      { name: "State", text: state, class: "text" },
      { name: "", class: "changes", make: buttons, update: (node, row) => node.update(row) },
    ],
    key: (row) => row.id,
    empty: "No replays.",
  });
  const node = card("Replays", "not finished yet, newest first", listed.node);
  node.hidden = true;

  function buttons(current) {
    const stop = h("button", { type: "button", onclick: () => change(current(), "stop") }, "Stop");
    const resume = h("button", { type: "button", onclick: () => change(current(), "resume") }, "Continue");
    const both = h("span", { class: "buttons" }, stop, resume);
    both.update = (row) => {
      stop.hidden = row.finishedAtMs !== null || row.stopped;
      resume.hidden = row.finishedAtMs !== null || row.direct || moves(row);
    };
    return both;
  }

  async function change(row, verb) {
    await attempt(() => post(`${path`/api/v1/replays/${row.id}`}/${verb}`));
    seen.set(row.id, []);
    await load();
  }

  const lookedAt = (row) => row.done + row.failed + row.heldBack;

  function rate(row) {
    const points = seen.get(row.id) ?? [];
    const [first, last] = [points[0], points.at(-1)];
    return points.length > 1 && last.at > first.at ? ((last.done - first.done) * 1000) / (last.at - first.at) : 0;
  }

  // A replay that has not moved for a while was left by its process, or waits behind another.
  function moves(row) {
    const points = seen.get(row.id) ?? [];
    return !row.stopped && (points.length === 0 || points.at(-1).at - points[0].at < RATE_OVER_MS || rate(row) > 0);
  }

  function state(row) {
    if (row.finishedAtMs !== null) return `complete, ${format.ago(row.finishedAtMs)}`;
    if (row.stopped) return "stopped";
    const perSecond = rate(row);
    if (perSecond === 0) return moves(row) ? "begins" : "waits";
    const left = row.total === null ? 0 : Math.max(0, row.total - lookedAt(row)) / perSecond;
    return `${format.count(Math.round(perSecond))}/s, ${format.span(left)} left`;
  }

  function remember(row) {
    const now = Date.now();
    const points = (seen.get(row.id) ?? []).filter((point) => point.at > now - 2 * RATE_OVER_MS);
    seen.set(row.id, [...points, { at: now, done: lookedAt(row) }]);
  }

  async function load() {
    const { replays: all } = await get("/api/v1/replays").catch(() => ({ replays: [] }));
    const rows = all.filter((row) => seen.has(row.id) || (row.finishedAtMs === null && row.requestedAtMs > Date.now() - SHOWN_MS));
    rows.forEach(remember);
    node.hidden = rows.length === 0;
    listed.update(rows);
  }

  if (!PORTAL) every(2000, load, signal);
  return { node, load };
}
