// Subscriptions: which events go where.
import { confirmed, field, form, showText } from "../components/dialogs.js";
import { h, setKind, setText } from "../components/dom.js";
import * as format from "../components/format.js";
import { card, head, loader, options, trouble } from "../components/parts.js";
import { table } from "../components/table.js";
import { attempt, toast } from "../components/toast.js";
import { del, get, getAll, patch, path, post } from "../data/api.js";
import { every } from "../data/poll.js";
import { subscriptions } from "../data/subscriptions.js";

const MODES = [
  ["BLOCK_ON_ERROR", "block: later events of the key wait"],
  ["NEXT_ON_ERROR", "next: later events of the key continue"],
  ["IMMEDIATE", "immediate: order does not matter"],
];

const ERRORS = { BLOCK_ON_ERROR: "an error blocks its key", NEXT_ON_ERROR: "continues after an error", IMMEDIATE: "order does not matter" };

export function mount(main, { signal }) {
  const problem = trouble();
  const add = h("button", { type: "button", class: "primary", onclick: () => edit(null) }, "New subscription…");
  const listed = table({
    columns: [{ name: "", make: block, update: show, class: "block" }],
    key: (row) => row.id,
    empty: "No subscriptions. Events are stored but not delivered.",
  });
  main.append(head("Subscriptions", "Which events are delivered where. Deliveries are signed as Standard Webhooks.", add), problem.node, card("Subscriptions", null, listed.node));
  const load = loader(problem, () => subscriptions({ reload: true }), (rows) => listed.update(rows));
  every(3000, load, signal);

  function block(current) {
    const part = (name, tag = "span") => h(tag, { "data-part": name });
    const button = (name, text, act, cls = "") => h("button", { type: "button", "data-part": name, class: `small ${cls}`, onclick: () => act(current()) }, text);
    return h(
      "div",
      { class: "subscription" },
      h("div", { class: "line" }, part("name", "strong"), h("span", { class: "badge", "data-part": "state" })),
      h("div", { class: "mono wrap" }, part("pattern"), " → ", part("target")),
      h("div", { class: "about" }, part("about")),
      h(
        "div",
        { class: "buttons" },
        button("test", "Test", test),
        button("pause", "Pause…", togglePause),
        button("change", "Edit…", edit),
        button("rotate", "Rotate secret…", rotate),
        button("delete", "Delete…", remove, "danger-quiet"),
      ),
    );
  }

  function show(node, row) {
    const write = (name, text) => setText(node.querySelector(`[data-part="${name}"]`), text);
    write("name", row.name);
    write("state", row.paused ? "paused" : "delivering");
    setKind(node.querySelector('[data-part="state"]'), row.paused ? "warn" : "good");
    write("pattern", row.pattern);
    write("target", row.target);
    const retries = row.retryDelaysS.length ? `retries after ${row.retryDelaysS.map((wait) => format.span(wait)).join(", ")}` : "no retries";
    const words = [`pool ${row.pool}`, ERRORS[row.mode], retries, `timeout ${format.span(row.timeoutS)}`];
    if (row.filter.length) words.push(format.plural(row.filter.length, "filter condition"));
    if (row.deadLetterTopic) words.push(`dead letters to ${row.deadLetterTopic}`);
    if (row.secrets > 1) words.push(`${row.secrets} secrets sign: finish the rotation`);
    write("about", words.join(" · "));
    write("pause", row.paused ? "Resume" : "Pause…");
    write("rotate", row.secrets > 1 ? "Finish rotation…" : "Rotate secret…");
  }

  async function test(row) {
    await attempt(async () => {
      const trial = await post(path`/api/v1/subscriptions/${row.id}/test`, undefined, 70_000);
      const code = trial.statusCode === null ? "no answer" : `HTTP ${trial.statusCode}`;
      await showText({
        title: trial.delivered ? `${row.name} accepted the test event` : `${row.name} did not accept the test event`,
        about: `Sent a signed event of type penstock:test to ${row.target}: ${code}, in ${format.took(trial.durationMs)}. The test is not stored.`,
        text: trial.error ?? trial.response ?? "(empty response)",
      });
    });
  }

  async function togglePause(row) {
    const yes = row.paused || (await confirmed({
      title: `Pause ${row.name}?`,
      about: `Deliveries to ${row.target} stop. New events still become jobs, which wait until you resume.`,
      action: "Pause",
      danger: false,
    }));
    if (!yes) return;
    const verb = row.paused ? "resume" : "pause";
    await attempt(() => post(path`/api/v1/subscriptions/${row.id}/${verb}`), `${row.name} is ${row.paused ? "delivering again" : "paused"}.`);
    await load();
  }

  // Two steps: both secrets sign in between, for as long as the subscriber needs.
  async function rotate(row) {
    await (row.secrets > 1 ? finishRotation(row) : beginRotation(row));
    await load();
  }

  async function beginRotation(row) {
    const yes = await confirmed({
      title: `Rotate the secret of ${row.name}?`,
      about: "Deliveries are signed with both the new and the current secret until you finish the rotation.",
      action: "Rotate",
      danger: false,
    });
    if (!yes) return;
    await attempt(async () => {
      const { secret } = await post(path`/api/v1/subscriptions/${row.id}/rotate-secret`, {});
      await showText({ title: "New secret", about: "It is shown only once. Give it to the subscriber, then finish the rotation.", text: secret });
    });
  }

  async function finishRotation(row) {
    const yes = await confirmed({
      title: `Finish the rotation of ${row.name}?`,
      about: "Deliveries are signed with only the newest secret. A subscriber that knows only an old one refuses them.",
      action: "Finish",
    });
    if (yes) await attempt(() => post(path`/api/v1/subscriptions/${row.id}/finish-rotation`), "Only the newest secret signs now.");
  }

  async function remove(row) {
    const { jobs } = await get("/api/v1/jobs", { subscriptionId: row.id, status: "PENDING", limit: 1000 }).catch(() => ({ jobs: [] }));
    const yes = await confirmed({
      title: `Delete ${row.name}?`,
      about: `${row.target} gets no more events, and ${jobs.length === 1000 ? "1,000 or more jobs" : format.plural(jobs.length, "job")} waiting for delivery are cancelled.`,
      action: `Delete ${row.name}`,
    });
    if (!yes) return;
    await attempt(() => del(path`/api/v1/subscriptions/${row.id}`), (done) => `${row.name} was deleted; ${format.plural(done.cancelledJobs, "job")} cancelled.`);
    await load();
  }

  async function edit(row) {
    const pools = await getAll("/api/v1/pools", "pools").catch(() => []);
    const mode = h("select", { name: "mode" });
    options(mode, MODES, row?.mode ?? "BLOCK_ON_ERROR");
    const known = h("datalist", { id: "pools" }, ...pools.map((pool) => h("option", { value: pool.code })));
    let created = null;
    const saved = await form({
      title: row ? `Edit ${row.name}` : "New subscription",
      fields: [
        field("Name", h("input", { name: "name", required: true, maxlength: 256, value: row?.name ?? "" })),
        field("Events, such as orders:** or orders:placed", h("input", { name: "pattern", required: true, value: row?.pattern ?? "" })),
        field("Target URL", h("input", { name: "target", type: "url", required: true, value: row?.target ?? "" })),
        h(
          "div",
          { class: "two" },
          field("Pool", h("input", { name: "pool", list: "pools", placeholder: "its own", value: row && !row.ownPool ? row.pool : "" })),
          field("Timeout in seconds", h("input", { name: "timeoutS", type: "number", min: 0.1, max: 600, step: "any", value: row?.timeoutS ?? 30 })),
        ),
        field("If a delivery fails permanently", mode),
        field("Delays between attempts in seconds", h("input", { name: "retries", placeholder: "default", value: (row?.retryDelaysS ?? []).join(", ") })),
        known,
      ],
      action: row ? "Save" : "Create",
      submit: async ({ retries, timeoutS, ...given }) => {
        const retryDelaysS = retries.split(",").map((part) => part.trim()).filter(Boolean).map(Number);
        if (retryDelaysS.some(Number.isNaN)) throw new Error("Delays must be numbers of seconds, separated by commas.");
        const body = { ...given, pool: given.pool.trim() || null, timeoutS: Number(timeoutS), ...(retries.trim() ? { retryDelaysS } : {}) };
        if (row) await patch(path`/api/v1/subscriptions/${row.id}`, body);
        else created = await post("/api/v1/subscriptions", body);
      },
    });
    await load();
    if (created) await showText({ title: `Created ${created.subscription.name}`, about: "This secret signs its deliveries. It is shown only once.", text: created.secret });
    else if (saved) toast(`${row.name}: existing jobs keep their target, mode and pool.`);
  }
}
