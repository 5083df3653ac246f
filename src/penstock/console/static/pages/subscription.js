// One subscription: how it stands, what failed, which keys wait, and everything that can be done about it.
import { code, copyable } from "../components/code.js";
import { badge, h, setText } from "../components/dom.js";
import * as format from "../components/format.js";
import { history } from "../components/history.js";
import { card, facts, head, kindOf, loader, tile, trouble, wide, withCode } from "../components/parts.js";
import * as actions from "../components/subscription_actions.js";
import { table } from "../components/table.js";
import { get, path } from "../data/api.js";
import { every } from "../data/poll.js";
import { subscriptions } from "../data/subscriptions.js";
import { inWords } from "./subscriptions.js";

const MOST_KEYS = 50;
const MOST_FAILURES = 20;
const COUNTED = 1000;

export function mount(main, { signal, detail: id }) {
  const problem = trouble();
  let row = null;
  let deleted = false;
  const act = (work) => async () => {
    await work(row);
    await load();
  };
  // Enabled when the subscription is known, so that no press is lost.
  const button = (text, work, cls = "") => h("button", { type: "button", class: cls, disabled: true, onclick: act(work) }, text);
  const pause = button("Pause…", actions.togglePause);
  const rotate = button("Rotate secret…", actions.rotate);
  const remove = button("Delete…", async (current) => {
    deleted = await actions.remove(current);
    if (deleted) location.hash = "#/subscriptions";
  }, "danger-quiet");
  const tools = [button("Retry all…", actions.retryAll, "primary"), pause, button("Test", actions.test), button("Edit…", actions.edit), button("Replay…", actions.replay), rotate, remove];
  const tiles = {
    rate: tile("Delivered / min", { id: "rate" }),
    success: tile("Success rate", { id: "success-rate" }),
    latency: tile("p99 response", { id: "latency" }),
    backlog: tile("Backlog", { id: "backlog", href: `#/jobs?subscriptionId=${encodeURIComponent(id)}` }),
    oldest: tile("Oldest due", { id: "oldest" }),
    breaker: tile("Breaker", { id: "breaker" }),
  };
  const reasons = h("ul", { class: "list-plain", id: "health-reasons" });
  const verdict = wide(12, card("Health", null, reasons));
  verdict.hidden = true;
  const keys = table({
    columns: [
      { name: "Key", link: (group) => [keyOf(group), `#/groups?key=${encodeURIComponent(group.groupKey)}`], class: "long" },
      { name: "Blocked by", badge: (group) => (group.errors ? [format.plural(group.errors, "error"), "bad"] : ["a pending retry", "warn"]) },
      { name: "Waiting behind", text: (group) => `${format.count(group.waiting)}${group.waiting >= COUNTED ? "+" : ""}`, class: "number" },
      { name: "Since", text: (group) => format.ago(group.since), class: "tight" },
      { name: "", make: keyButtons, update: (node, group) => (node.hidden = group.errors === 0) },
    ],
    key: (group) => group.groupKey,
    empty: "No key is blocked.",
  });
  const failures = h("ol", { class: "timeline", id: "failures" });
  const past = history(signal, { by: "subscription", name: id });
  const about = h("div");
  main.append(
    head("Subscription", "", h("span", { id: "state" })),
    problem.node,
    h("div", { class: "buttons changes actions", "aria-label": "Actions", role: "group" }, ...tools),
    h("div", { class: "tiles" }, ...Object.values(tiles).map((each) => each.node)),
    h(
      "div",
      { class: "grid" },
      verdict,
      wide(12, past.node),
      wide(12, card("Blocked keys", "each waits for a failed job", keys.node)),
      wide(12, card("Recent failures", "newest first, with request and response", failures)),
      wide(12, card("Settings", null, about)),
    ),
  );
  let shownFailures = "";

  function keyOf(group) {
    return group.groupKey.slice(id.length + 1);
  }

  function keyButtons(current) {
    return h(
      "div",
      { class: "buttons changes" },
      h("button", { type: "button", class: "small", onclick: () => actions.retryKey(row, current()).then(load) }, "Retry"),
      h("button", { type: "button", class: "small danger-quiet", onclick: () => actions.skipKey(row, current()).then(load) }, "Skip…"),
    );
  }

  const read = loader(
    problem,
    async () => {
      const one = path`/api/v1/subscriptions/${id}`;
      const [found, report, held, failed] = await Promise.all([
        get(one),
        get(`${one}/health`),
        get("/api/v1/groups/held", { subscriptionId: id, order: "urgent", limit: MOST_KEYS }),
        get(`${one}/failures`, { limit: MOST_FAILURES }),
      ]);
      return { found, report, held, failed };
    },
    ({ found, report, held, failed }) => {
      row = found;
      for (const tool of tools) tool.disabled = false;
      show(found, report);
      keys.update(held.groups);
      // Kept while they are the same, so that what was opened stays open.
      const key = JSON.stringify(failed.failures.map((each) => [each.jobId, each.attempt.number]));
      if (key !== shownFailures) failures.replaceChildren(...(failed.failures.length ? failed.failures.map(failure) : [h("p", { class: "empty" }, "No failed deliveries among the newest jobs.")]));
      shownFailures = key;
    },
  );

  function show(found, { health, reasons: why }) {
    setText(main.querySelector("h1"), found.name);
    document.title = `${found.name} · Penstock`;
    setText(main.querySelector(".page-head .about"), `${found.pattern} → ${found.target}`);
    const state = found.paused ? badge("PAUSED", "warn") : badge(health.status, kindOf(health.status));
    document.getElementById("state").replaceChildren(state);
    setText(pause, found.paused ? "Resume" : "Pause…");
    setText(rotate, found.secrets > 1 ? "Finish rotation…" : "Rotate secret…");
    showTiles(tiles, health);
    verdict.hidden = why.length === 0;
    reasons.replaceChildren(...why.map((reason) => h("li", {}, h("div", { class: "part-row" }, reason.message, badge(reason.status, kindOf(reason.status))), h("div", { class: "about" }, ...withCode(reason.remedy)))));
    const settings = JSON.stringify(found);
    if (about.dataset.key === settings) return;
    about.dataset.key = settings;
    about.replaceChildren(facts(factsOf(found)));
  }

  // Not once it is deleted, until the list is shown.
  const load = () => (deleted ? null : read());
  every(3000, load, signal);
  subscriptions().catch(() => null);
}

function showTiles(tiles, health) {
  const tried = health.delivered + health.failed;
  const share = tried ? health.delivered / tried : null;
  tiles.rate.set(format.rate(health.perMinute), "last five minutes");
  tiles.success.set(format.percent(share), share === null ? "no recent deliveries" : `${format.count(health.failed)} of ${format.count(tried)} failed`, share === null ? "" : share < 0.9 ? "bad" : share < 0.99 ? "warn" : "good");
  tiles.latency.set(format.took(health.p99Ms === null ? null : Math.round(health.p99Ms)), health.p50Ms === null ? "no recent deliveries" : `p50: ${format.took(Math.round(health.p50Ms))}`);
  tiles.backlog.set(format.count(health.backlog) + (health.backlog >= health.backlogLimit ? "+" : ""), health.blockedGroups ? `${format.plural(health.blockedGroups, "key")} blocked` : "jobs", health.blockedGroups ? "bad" : "");
  tiles.oldest.set(format.span(health.oldestDueS), health.oldestDueS === null ? "nothing is due" : "waiting", health.oldestDueS > 60 ? "bad" : health.oldestDueS > 10 ? "warn" : "");
  tiles.breaker.set(health.breaker, "of the endpoint", kindOf(health.breaker));
}

function factsOf(row) {
  const headers = Object.keys(row.headers);
  return [
    ["Id", copyable(row.id)],
    ["Events", h("span", { class: "mono" }, row.pattern)],
    ["Target", copyable(row.target)],
    ["Delivery", inWords(row)],
    ["Filter", row.filter.length ? code(JSON.stringify(row.filter)) : "none: every event of the pattern"],
    ["Headers", headers.length ? headers.join(", ") : "none of its own"],
    ["Tenant", row.tenant || "none"],
    ["Jobs", h("a", { href: `#/jobs?subscriptionId=${encodeURIComponent(row.id)}` }, "all jobs of this subscription")],
  ];
}

// A failed delivery; its request is fetched when it is opened.
function failure(each) {
  const { attempt } = each;
  const status = attempt.statusCode === null ? "no answer" : `HTTP ${attempt.statusCode}`;
  const request = h("div");
  const open = async (event) => {
    if (!event.target.open || request.childElementCount) return;
    const found = each.eventId ? await get(path`/api/v1/events/${each.eventId}`).catch(() => null) : await get(path`/api/v1/jobs/${each.jobId}`).catch(() => null);
    const body = found?.event ?? found?.payload ?? found?.payloadBase64;
    request.replaceChildren(h("p", { class: "mono wrap" }, `POST ${each.target}`), body === undefined ? h("p", { class: "empty" }, "The event is no longer stored.") : code(typeof body === "string" ? body : JSON.stringify(body)));
  };
  return h(
    "li",
    { "data-kind": "bad" },
    h("div", { class: "line" }, h("strong", {}, status), h("a", { href: `#/jobs/${encodeURIComponent(each.jobId)}` }, each.key ?? "no key"), h("span", { class: "about" }, `${each.type}, delivery ${attempt.number}, ${format.took(attempt.durationMs)}`)),
    h("div", { class: "when" }, format.moment(attempt.at)),
    attempt.error ? h("p", {}, attempt.error) : null,
    h("details", { ontoggle: open }, h("summary", {}, "Request"), request),
    attempt.response ? h("details", {}, h("summary", {}, "Response"), code(attempt.response)) : null,
  );
}
