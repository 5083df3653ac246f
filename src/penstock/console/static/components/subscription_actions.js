// What can be done with a subscription: test, pause, edit, rotate, delete, retry, skip, replay. Each asks first.
import { del, get, getAll, patch, path, post } from "../data/api.js";
import * as credentials from "./credentials.js";
import { confirmed, field, form, showText } from "./dialogs.js";
import { h } from "./dom.js";
import * as format from "./format.js";
import { options } from "./parts.js";
import { begin, found as foundJobs } from "./replays.js";
import { attempt, toast } from "./toast.js";

const MODES = [
  ["BLOCK_ON_ERROR", "block: later events of the key wait"],
  ["NEXT_ON_ERROR", "next: later events of the key continue"],
  ["IMMEDIATE", "immediate: order does not matter"],
];
const UNKEYED = [
  ["none", "in any order"],
  ["ordered", "in order, one at a time"],
];
const BODIES = [
  ["cloudevent", "the event, as a CloudEvent"],
  ["binary", "the event's data, with its attributes in headers"],
  ["slack", "a text for a chat (Slack, Mattermost)"],
];
const AT_ONCE = 1000;

const one = (row, verb = "") => `${path`/api/v1/subscriptions/${row.id}`}${verb}`;

export async function test(row) {
  await attempt(async () => {
    const trial = await post(one(row, "/test"), undefined, 70_000);
    const code = trial.statusCode === null ? "no answer" : `HTTP ${trial.statusCode}`;
    await showText({
      title: trial.delivered ? `${row.name} accepted the test event` : `${row.name} did not accept the test event`,
      about: `Sent a signed event of type penstock:test to ${row.target}: ${code}, in ${format.took(trial.durationMs)}. The test is not stored.`,
      text: trial.error ?? trial.response ?? "(empty response)",
    });
  });
}

export async function togglePause(row) {
  const yes = row.paused || (await confirmed({
    title: `Pause ${row.name}?`,
    about: `Deliveries to ${row.target} stop. New events still become jobs, which wait until you resume.`,
    action: "Pause",
    danger: false,
  }));
  if (!yes) return;
  await attempt(() => post(one(row, row.paused ? "/resume" : "/pause")), `${row.name} is ${row.paused ? "delivering again" : "paused"}.`);
}

// What a customer may change: where its events go.
export async function changeTarget(row) {
  const target = h("input", { name: "target", type: "url", required: true, pattern: "https?://.+", value: row.target });
  await form({
    title: `Change the URL of ${row.name}`,
    about: "New events go there. Events that wait already go to the URL of before.",
    fields: [field("URL", target)],
    action: "Change",
    submit: () => patch(one(row), { target: target.value.trim() }),
  });
}

// Two steps: both secrets sign in between, for as long as the subscriber needs.
export async function rotate(row) {
  await (row.secrets > 1 ? finishRotation(row) : beginRotation(row));
}

async function beginRotation(row) {
  const leaked = h("input", { type: "checkbox" });
  let made = null;
  const rotated = await form({
    title: `Rotate the secret of ${row.name}?`,
    about: "Deliveries are signed with both the new and the current secret until you finish the rotation.",
    fields: [h("label", { class: "check" }, leaked, "The current secret has leaked: stop signing with it now")],
    action: "Rotate",
    submit: async () => {
      made = await post(one(row, "/rotate-secret"), { keepPrevious: !leaked.checked });
    },
  });
  if (!rotated) return;
  const next = made.secrets > 1 ? "Give it to the subscriber, then finish the rotation." : "Give it to the subscriber now: the previous one is no longer used.";
  await showText({ title: "New secret", about: `It is shown only once. ${next}`, text: made.secret });
}

async function finishRotation(row) {
  const yes = await confirmed({
    title: `Finish the rotation of ${row.name}?`,
    about: "Deliveries are signed with only the newest secret. A subscriber that knows only an old one refuses them.",
    action: "Finish",
  });
  if (yes) await attempt(() => post(one(row, "/finish-rotation")), "Only the newest secret signs now.");
}

// Return whether it was deleted.
export async function remove(row) {
  const { jobs } = await get("/api/v1/jobs", { subscriptionId: row.id, status: "PENDING", limit: AT_ONCE }).catch(() => ({ jobs: [] }));
  const yes = await confirmed({
    title: `Delete ${row.name}?`,
    about: `${row.target} gets no more events, and ${jobs.length === AT_ONCE ? "1,000 or more jobs" : format.plural(jobs.length, "job")} waiting for delivery are cancelled.`,
    action: `Delete ${row.name}`,
  });
  return yes && attempt(() => del(one(row)), (done) => `${row.name} was deleted; ${format.plural(done.cancelledJobs, "job")} cancelled.`);
}

// Retry all jobs in ERROR of a subscription, key after key in order.
export async function retryAll(row) {
  const jobs = await getAll("/api/v1/jobs", "jobs", { subscriptionId: row.id, status: "ERROR" });
  if (!jobs.length) {
    toast(`${row.name} has no jobs in ERROR.`);
    return;
  }
  const yes = await confirmed({
    title: `Retry ${format.plural(jobs.length, "job")} of ${row.name}?`,
    about: `${format.plural(jobs.length, "job")} in ERROR are delivered to ${row.target} again, with all their attempts, in order per key. The jobs behind them follow.`,
    action: `Retry ${format.count(jobs.length)}`,
    danger: false,
  });
  if (yes) await inBatches("retry", jobs.map((job) => job.id), "retried");
}

// Give up the jobs in ERROR of one key, so that the rest of it continues.
export async function skipKey(row, group) {
  const jobs = await getAll("/api/v1/jobs", "jobs", { groupKey: group.groupKey, status: "ERROR" });
  const key = group.groupKey.slice(row.id.length + 1);
  const yes = await confirmed({
    title: `Skip ${format.plural(jobs.length, "failed job")} of ${key}?`,
    about: `${row.name} never gets them. The ${format.plural(group.waiting, "job")} behind continue${group.waiting === 1 ? "s" : ""}.`,
    action: `Skip ${format.count(jobs.length)}`,
  });
  if (yes) await inBatches("ignore", jobs.map((job) => job.id), "skipped");
}

export async function retryKey(row, group) {
  await attempt(() => post("/api/v1/jobs/retry-group", { groupKey: group.groupKey }), (done) => `${format.plural(done.ids.length, "job")} of ${group.groupKey.slice(row.id.length + 1)} retried.`);
}

async function inBatches(verb, ids, done) {
  await attempt(async () => {
    for (let at = 0; at < ids.length; at += AT_ONCE) await post(`/api/v1/jobs/${verb}`, { ids: ids.slice(at, at + AT_ONCE) });
  }, `${format.plural(ids.length, "job")} ${done}.`);
}

// Deliver again what was finished in a period.
export async function replay(row) {
  const local = (ms) => new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
  const from = h("input", { name: "from", type: "datetime-local", required: true, value: local(Date.now() - 3_600_000) });
  const to = h("input", { name: "to", type: "datetime-local", value: "" });
  const status = h("select", { name: "status" });
  options(status, [["", "finished in any way"], ["COMPLETED", "COMPLETED"], ["ERROR", "ERROR"], ["EXPIRED", "EXPIRED"]], "");
  let filter = null;
  let count = null;
  const chosen = await form({
    title: `Replay ${row.name}`,
    about: "Events that it got in a period are delivered to it again, in order per key.",
    fields: [h("div", { class: "two" }, field("Created from", from), field("Created before (now if empty)", to)), field("Jobs", status)],
    action: "Count",
    submit: async (given) => {
      filter = { subscriptionId: row.id, createdFromMs: new Date(given.from).getTime() };
      if (given.to) filter.createdToMs = new Date(given.to).getTime();
      if (given.status) filter.status = given.status;
      count = await get("/api/v1/replays/count", filter);
      if (count.made + count.retried === 0) throw new Error("No job of this period can be replayed.");
    },
  });
  if (!chosen) return;
  const jobs = foundJobs(count);
  const yes = await confirmed({
    title: `Replay ${jobs} to ${row.name}?`,
    about: [
      `${row.target} gets ${count.truncated ? `the events of ${jobs}` : `${format.plural(count.made + count.retried, "event")} of ${format.plural(count.groups, "key")}`} again, with the same webhook-id as before and the header penstock-replay.`,
      count.truncated ? "Jobs in ERROR are replaced by their copies." : `${format.plural(count.retried, "job")} in ERROR are replaced by their copies.`,
    ],
    action: count.truncated ? "Replay all" : `Replay ${format.count(count.made + count.retried)}`,
  });
  if (yes) await begin(filter);
}

// Create a subscription, or edit one; return whether it was saved.
export async function edit(row) {
  const pools = await getAll("/api/v1/pools", "pools").catch(() => []);
  const select = (name, rows, chosen) => {
    const node = h("select", { name });
    options(node, rows, chosen);
    return node;
  };
  const text = (name, value, more = {}) => h("input", { name, value: value ?? "", ...more });
  const known = h("datalist", { id: "pools" }, ...pools.map((pool) => h("option", { value: pool.code })));
  const lines = (entries, between) => entries.map(([name, value]) => `${name}${between}${value}`).join("\n");
  // A condition other than a list of values is shown as JSON, as the API takes it.
  const conditions = (row?.filter ?? []).map((each) => JSON.stringify(each)).join("\n");
  let created = null;
  const saved = await form({
    title: row ? `Edit ${row.name}` : "New subscription",
    fields: [
      field("Name", text("name", row?.name, { required: true, maxlength: 256 })),
      field("Events, such as orders:** or orders:placed", text("pattern", row?.pattern, { required: true })),
      field("Target URL", text("target", row?.target, { required: true })),
      h(
        "div",
        { class: "two" },
        field("Pool", text("pool", row && !row.ownPool ? row.pool : "", { list: "pools", placeholder: "its own" })),
        field("Timeout in seconds", text("timeoutS", row?.timeoutS ?? 30, { type: "number", min: 0.1, max: 600, step: "any" })),
      ),
      field("If a delivery fails permanently", select("mode", MODES, row?.mode ?? "BLOCK_ON_ERROR")),
      field("Delays between attempts in seconds", text("retries", (row?.retryDelaysS ?? []).join(", "), { placeholder: "default" })),
      h(
        "details",
        { class: "more", open: Boolean(row && (conditions || row.filterExpression || row.body !== "cloudevent" || row.highPriority || row.deadLetterTopic || row.oauth2 || row.clientCertificate || Object.keys(row.headers).length)) },
        h("summary", {}, "More"),
        field("Events without a key", select("unkeyed", UNKEYED, row?.unkeyed ?? "none")),
        h("label", { class: "check" }, h("input", { type: "checkbox", name: "highPriority", checked: row?.highPriority ?? false }), "Before the regular jobs of their key"),
        field("Filter, a condition a line: region=eu,uk or JSON", h("textarea", { name: "filter", value: conditions })),
        field("Expression, such as data.total >= 100", text("filterExpression", row?.filterExpression)),
        field("Body", select("body", BODIES, row?.body ?? "cloudevent")),
        field("Headers, one a line: name: value (*** keeps a stored value)", h("textarea", { name: "headers", value: lines(Object.entries(row?.headers ?? {}), ": ") })),
        field("Topic for dead letters", text("deadLetterTopic", row?.deadLetterTopic)),
        ...credentials.fields(row, text),
      ),
      known,
    ],
    action: row ? "Save" : "Create",
    submit: async (given) => {
      const body = bodyOf(given, row);
      if (row) await patch(one(row), body);
      else created = await post("/api/v1/subscriptions", body);
    },
  });
  if (created) await showText({ title: `Created ${created.subscription.name}`, about: "This secret signs its deliveries. It is shown only once.", text: created.secret });
  else if (saved) toast(`${row.name}: existing jobs keep their target, mode and pool.`);
  return saved;
}

function bodyOf(given, row) {
  const retryDelaysS = given.retries.split(",").map((part) => part.trim()).filter(Boolean).map(Number);
  if (retryDelaysS.some(Number.isNaN)) throw new Error("Delays must be numbers of seconds, separated by commas.");
  const topic = given.deadLetterTopic.trim();
  return {
    name: given.name,
    pattern: given.pattern,
    target: given.target,
    mode: given.mode,
    unkeyed: given.unkeyed,
    filterExpression: given.filterExpression.trim(),
    body: given.body,
    highPriority: given.highPriority === "on",
    timeoutS: Number(given.timeoutS),
    pool: given.pool.trim() || null,
    filter: linesOf(given.filter).map(condition),
    headers: Object.fromEntries(linesOf(given.headers).map(header)),
    ...(given.retries.trim() ? { retryDelaysS } : {}),
    ...(topic || row?.deadLetterTopic ? { deadLetterTopic: topic || null } : {}),
    ...credentials.body(given, row),
  };
}

const linesOf = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);

function condition(line) {
  if (line.startsWith("{")) {
    try {
      return JSON.parse(line);
    } catch {
      throw new Error(`This condition is not JSON: ${line}`);
    }
  }
  const [attribute, values] = line.split("=", 2);
  if (!values) throw new Error(`A condition is an attribute and its values, such as region=eu,uk, not: ${line}`);
  return { attribute: attribute.trim(), comparison: "in", values: values.split(",").map((value) => value.trim()) };
}

function header(line) {
  const at = line.indexOf(":");
  if (at < 1) throw new Error(`A header is a name and a value, such as x-shop: eu, not: ${line}`);
  return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
}
