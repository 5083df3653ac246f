// Jobs: search by id, key, status and time; retry, cancel or replay many of them.
import { confirmed, field } from "../components/dialogs.js";
import { h, setText } from "../components/dom.js";
import * as format from "../components/format.js";
import { card, head, kindOf, loader, options, trouble } from "../components/parts.js";
import { begin, found as foundJobs, replays } from "../components/replays.js";
import { table } from "../components/table.js";
import { attempt } from "../components/toast.js";
import { get, path, PORTAL, post, withQuery } from "../data/api.js";
import { every } from "../data/poll.js";
import { nameOf, subscriptions } from "../data/subscriptions.js";
import { addressOf } from "./subscriptions.js";

const PAGE = 50;
const STATUSES = ["PENDING", "QUEUED", "PROCESSING", "COMPLETED", "ERROR", "CANCELLED", "EXPIRED"];
const REPLAYABLE = ["COMPLETED", "ERROR", "EXPIRED"];
// The id of an event's job is the event's id and the subscription's; a copy's id contains its replay.
const ID_LENGTH = 13;
const ID = /^[0-9A-HJKMNP-TV-Z]{13}([-~].+)?$/;
// A lane is a subscription's id and a key, which may contain colons.
const LANE = /^[0-9A-HJKMNP-TV-Z]{13}:/;

export function mount(main, { signal, query }) {
  const problem = trouble();
  const inputs = {
    q: h("input", { type: "search", name: "q", placeholder: "order-17, a job's id, an event's id", value: query.get("q") ?? "" }),
    status: h("select", { name: "status" }),
    subscriptionId: h("select", { name: "subscriptionId" }),
    type: h("input", { name: "type", placeholder: "orders:placed", value: query.get("type") ?? "" }),
    from: h("input", { name: "from", type: "datetime-local", step: 1, value: query.get("from") ?? "" }),
    payload: h("input", { name: "payload", placeholder: "customer.id=17", value: query.get("payload") ?? "" }),
    to: h("input", { name: "to", type: "datetime-local", step: 1, value: query.get("to") ?? "" }),
  };
  options(inputs.status, [["", "any"], ...STATUSES.map((status) => [status, status])], query.get("status") ?? "");
  // Until the names have come, so that a search before that keeps the subscription.
  const asked = query.get("subscriptionId");
  options(inputs.subscriptionId, [...(PORTAL ? [] : [["", "any"]]), ...(asked ? [[asked, asked]] : [])], asked ?? "");
  const filters = h(
    "form",
    {
      class: "filters",
      onsubmit: (event) => {
        event.preventDefault();
        location.hash = withQuery("#/jobs", Object.fromEntries([...new FormData(filters)].map(([name, value]) => [name, value.trim()])));
      },
    },
    h("label", { class: "field wide" }, "Id or key", inputs.q),
    field("Status", inputs.status),
    field("Subscription", inputs.subscriptionId),
    field("Event type", inputs.type),
    field("Field of the payload", inputs.payload),
    field("Created from", inputs.from),
    field("Created before", inputs.to),
    h(
      "div",
      { class: "buttons" },
      h("button", { type: "submit", class: "primary" }, "Search"),
      h("a", { class: "button", href: "#/jobs" }, "Clear"),
    ),
  );
  const chosen = new Set();
  const everyBox = h("input", {
    type: "checkbox",
    "aria-label": "Select all jobs of this list",
    onchange: () => {
      for (const row of rows) {
        if (everyBox.checked) chosen.add(row.id);
        else chosen.delete(row.id);
      }
      listed.update(rows);
      showChosen();
    },
  });
  const listed = table({
    columns: [
      { name: everyBox, class: "changes", make: (current) => checkbox(current), update: (box, row) => (box.checked = chosen.has(row.id)) },
      { name: "Job", link: (row) => [row.id, `#/jobs/${encodeURIComponent(row.id)}`], mono: true },
      { name: "Status", badge: (row) => [row.status, kindOf(row.status)] },
      { name: "Subscription", link: (row) => [nameOf(row.subscriptionId), row.subscriptionId ? addressOf(row.subscriptionId) : "#/jobs"], class: "text" },
      { name: "Key", text: (row) => row.group ?? "default", class: "text" },
      { name: "Type", text: (row) => row.type, class: "text" },
      { name: "Deliveries", text: (row) => format.count(row.deliveries), class: "number" },
      { name: "Created", text: (row) => format.ago(row.createdAt), class: "tight" },
      { name: "Last error", text: (row) => row.lastError ?? "", class: "text" },
    ],
    key: (row) => row.id,
    empty: "No matching jobs.",
    onopen: (row) => {
      location.hash = `#/jobs/${encodeURIComponent(row.id)}`;
    },
  });
  const chosenCount = h("span", { class: "about" });
  const retry = h("button", { type: "button", disabled: true, onclick: () => decideAll("retry") }, "Retry selected…");
  const ignore = h("button", { type: "button", disabled: true, class: "staff", onclick: () => decideAll("ignore") }, "Ignore selected…");
  const cancel = h("button", { type: "button", disabled: true, class: "danger-quiet staff", onclick: () => decideAll("cancel") }, "Cancel selected…");
  const replay = h("button", { type: "button", class: "changes", onclick: () => askToReplay() }, "Replay matching…");
  const more = h("button", { type: "button", hidden: true, onclick: () => load(true) }, "Show older");
  const running = replays(signal);
  main.append(
    head("Jobs and events", "A job is the delivery of one event to one subscriber.", replay),
    problem.node,
    running.node,
    card("Search", null, filters),
    card("Jobs", "newest first", h("div", { class: "buttons changes portal" }, retry, ignore, cancel, chosenCount), listed.node, more),
  );
  let rows = [];
  let cursor = null;
  let further = false;

  function checkbox(current) {
    return h("input", {
      type: "checkbox",
      "aria-label": "Select this job",
      onchange: (event) => {
        if (event.target.checked) chosen.add(current().id);
        else chosen.delete(current().id);
        showChosen();
      },
    });
  }

  function showChosen() {
    setText(chosenCount, chosen.size ? format.plural(chosen.size, "job") + " selected" : "");
    for (const button of [retry, ignore, cancel]) button.disabled = chosen.size === 0;
    everyBox.checked = rows.length > 0 && rows.every((row) => chosen.has(row.id));
    everyBox.indeterminate = !everyBox.checked && rows.some((row) => chosen.has(row.id));
  }

  const show = (page) => {
    rows = page.jobs;
    cursor = page.cursor;
    // What is no longer listed must not be changed by a button below the list.
    const known = new Set(rows.map((row) => row.id));
    for (const id of chosen) if (!known.has(id)) chosen.delete(id);
    listed.update(rows);
    showChosen();
    more.hidden = cursor === null;
    setText(more, rows.length === 0 ? "Search older jobs" : "Show older");
    // A search of payloads looks at some thousand jobs at a time.
    listed.setEmpty(cursor === null ? "No matching jobs." : "No matching jobs among the newest ones.");
  };

  const refresh = loader(problem, () => search(query, null), (page) => {
    // Do not replace older rows that the user has loaded.
    if (!further) show(page);
  });

  async function load(older) {
    further = older;
    await attempt(async () => {
      const page = await search(query, older ? cursor : null);
      show({ jobs: older ? [...rows, ...page.jobs] : page.jobs, cursor: page.cursor });
    });
  }

  async function decideAll(verb) {
    const ids = [...chosen];
    const words = {
      retry: ["are retried with all their attempts; all must be in ERROR", "Retry"],
      ignore: ["are given up, so that their groups continue; all must be in ERROR", "Ignore"],
      cancel: ["are cancelled and never delivered; none may be in delivery", "Cancel"],
    };
    const [about, action] = words[verb];
    const yes = await confirmed({ title: `${action} ${format.plural(ids.length, "job")}?`, about: `${format.plural(ids.length, "job")} ${about}. Either all of them change or none.`, action: `${action} ${ids.length}`, danger: verb !== "retry" });
    if (yes && (await attempt(() => post(`/api/v1/jobs/${verb}`, { ids }), (done) => `${format.plural(done.ids.length, "job")} changed.`))) {
      chosen.clear();
      showChosen();
      await load(false);
    }
  }

  async function askToReplay() {
    const filter = await replayFilter(query).catch((error) => ({ problem: error.message }));
    const status = filter.status && !REPLAYABLE.includes(filter.status) ? { problem: `Jobs that are ${filter.status} cannot be replayed: choose ${REPLAYABLE.join(", ")} or any status.` } : filter;
    const count = status.problem ? null : await get("/api/v1/replays/count", filter).catch((error) => ({ problem: error.message }));
    const trouble = status.problem ?? count.problem ?? (count.retried + count.made === 0 ? "No matching job can be replayed." : null);
    if (trouble) {
      await confirmed({ title: "Nothing to replay", about: trouble, action: "OK", danger: false });
      return;
    }
    const jobs = foundJobs(count);
    const yes = await confirmed({
      title: `Replay ${jobs}?`,
      about: [
        count.truncated ? `The search finds ${jobs} that are finished; this takes a while.` : `The search finds ${format.plural(count.retried + count.made, "finished job")} in ${format.plural(count.groups, "group")}.`,
        "Each gets a copy, and the copies are delivered in order per key. Jobs in ERROR are replaced by their copies" + (count.truncated ? "." : `: ${format.count(count.retried)} of them.`),
        "Subscribers get the same webhook-id as before and the header penstock-replay: subscribers that remember ids recognize what they have processed.",
      ],
      action: count.truncated ? "Replay all" : `Replay ${format.count(count.retried + count.made)}`,
    });
    if (yes && (await begin(filter))) await Promise.all([load(false), running.load()]);
  }

  subscriptions({ reload: true })
    .then((known) => {
      // A customer sees the jobs of one subscription at a time.
      if (PORTAL && !query.get("subscriptionId") && known.length) query.set("subscriptionId", known[0].id);
      options(inputs.subscriptionId, [...(PORTAL ? [] : [["", "any"]]), ...known.map((each) => [each.id, each.name])], query.get("subscriptionId") ?? "");
    })
    .then(() => every(4000, refresh, signal))
    .catch((error) => problem.show(error));
}

async function replayFilter(query) {
  if (query.get("payload")) throw new Error("A replay cannot be chosen by a field of the payload. Select jobs in ERROR and retry them instead.");
  return filterOf(query);
}

const epochMs = (text) => (text ? new Date(text).getTime() : undefined);

// Return the API's filter; a key requires a subscription, as each has its own lane.
async function filterOf(query) {
  const key = query.get("q");
  const subscriptionId = query.get("subscriptionId") || undefined;
  const found = {
    status: query.get("status") || undefined,
    subscriptionId,
    type: query.get("type") || undefined,
    payload: query.get("payload") || undefined,
    createdFromMs: epochMs(query.get("from")),
    createdToMs: epochMs(query.get("to")),
  };
  if (!key) return found;
  if (LANE.test(key)) return { ...found, groupKey: key };
  if (subscriptionId) return { ...found, groupKey: `${subscriptionId}:${key}` };
  throw new Error("Choose a subscription too: each has its own lane for a key.");
}

async function search(query, cursor) {
  const text = query.get("q");
  if (text && ID.test(text)) {
    const ofEvent = text.length === ID_LENGTH ? await get("/api/v1/jobs", { eventId: text, subscriptionId: query.get("subscriptionId"), limit: PAGE, cursor }) : null;
    return ofEvent?.jobs.length ? ofEvent : { jobs: [await get(path`/api/v1/jobs/${text}`)], cursor: null };
  }
  if (text && !LANE.test(text) && !query.get("subscriptionId")) return searchLanes(query, text, cursor);
  return get("/api/v1/jobs", { ...(await filterOf(query)), limit: PAGE, cursor });
}

// Search a key in the lanes of all subscriptions.
async function searchLanes(query, key, cursor) {
  const others = new URLSearchParams(query);
  others.delete("q");
  return get("/api/v1/jobs", { ...(await filterOf(others)), key, limit: PAGE, cursor });
}
