// One job: its state, its request, and all its deliveries with their results.
import { allowed, decide, LABELS } from "../components/decisions.js";
import { code, copyable } from "../components/code.js";
import { badge, h } from "../components/dom.js";
import * as format from "../components/format.js";
import { card, facts, head, kindOf, loader, trouble, wide } from "../components/parts.js";
import { get, getAll, path, PORTAL } from "../data/api.js";
import { every } from "../data/poll.js";
import { nameOf, subscriptions } from "../data/subscriptions.js";
import { addressOf } from "./subscriptions.js";

export function mount(main, { signal, detail: id }) {
  const problem = trouble();
  const tools = h("div", { class: "buttons" });
  const about = h("div");
  const request = h("div");
  const timeline = h("ol", { class: "timeline" });
  main.append(
    head("Job", id, tools),
    problem.node,
    h("div", { class: "grid" }, wide(6, card("Deliveries", "oldest first", timeline)), wide(6, card("Job", null, about)), wide(12, card("Request", "sent to the subscriber", request))),
  );
  let shown = "";

  const load = loader(
    problem,
    async () => {
      await subscriptions();
      const [job, attempts] = await Promise.all([get(path`/api/v1/jobs/${id}`), getAll(path`/api/v1/jobs/${id}/attempts`, "attempts")]);
      const event = job.eventId ? await get(path`/api/v1/events/${job.eventId}`).catch(() => null) : null;
      return { job, attempts, event };
    },
    ({ job, attempts, event }) => {
      const key = JSON.stringify([job, attempts]);
      if (key === shown) return;
      shown = key;
      tools.replaceChildren(...allowed(job).map((verb) => decideButton(verb, job, load)));
      about.replaceChildren(facts(factsOf(job)));
      timeline.replaceChildren(...runsOf(attempts).map(entry), ...next(job, attempts));
      request.replaceChildren(...requestOf(job, event));
    },
  );
  every(2000, load, signal);
}

function decideButton(verb, job, again) {
  const act = async () => {
    if (await decide(verb, job)) await again();
  };
  return h("button", { type: "button", class: verb === "retry" ? "changes portal primary" : "changes danger-quiet", onclick: act }, LABELS[verb]);
}

function factsOf(job) {
  const group = PORTAL ? (job.group ?? "none") : h("a", { href: `#/groups?key=${encodeURIComponent(job.groupKey)}` }, job.group ?? "default");
  const event = job.eventId ? h("a", { class: "mono", href: `#/events/${encodeURIComponent(job.eventId)}` }, job.eventId) : "none: the job was created directly";
  return [
    ["Id", copyable(job.id)],
    ["Status", badge(job.status, kindOf(job.status))],
    ["Event", event],
    ["Subscription", job.subscriptionId ? h("a", { href: addressOf(job.subscriptionId) }, nameOf(job.subscriptionId)) : "none"],
    ["Type", job.type],
    ["Group", group],
    ["Number in its key", job.keySequence ?? "none"],
    ["On error", { BLOCK_ON_ERROR: "blocks its group", NEXT_ON_ERROR: "the next job continues", IMMEDIATE: "order does not matter" }[job.mode]],
    ...(PORTAL ? [] : [["Pool", job.pool]]),
    ["Created", format.moment(job.createdAt)],
    ["Due", format.moment(job.dueAt)],
    ["Finished", format.moment(job.finishedAt)],
    ["Expires", format.moment(job.expiresAt)],
    ["Attempts spent", `${job.attemptsSpent} scheduled, ${format.plural(job.deliveries, "delivery", "deliveries")} in total`],
    ["Last error", job.lastError ?? format.NONE],
  ];
}

// Deliveries that were deferred in a row for the same reason are shown as one.
function runsOf(attempts) {
  const runs = [];
  for (const attempt of attempts) {
    const last = runs.at(-1)?.at(-1);
    if (last && last.outcome === "DEFERRED" && attempt.outcome === "DEFERRED" && last.error === attempt.error) runs.at(-1).push(attempt);
    else runs.push([attempt]);
  }
  return runs;
}

function entry(run) {
  const [first, attempt] = [run[0], run.at(-1)];
  const name = run.length === 1 ? `Delivery ${attempt.number}` : `Deliveries ${first.number} to ${attempt.number}`;
  const answered = attempt.statusCode === null ? "no answer" : `HTTP ${attempt.statusCode}`;
  return h(
    "li",
    { "data-kind": kindOf(attempt.outcome) },
    h("div", { class: "line" }, h("strong", {}, name), badge(attempt.outcome, kindOf(attempt.outcome)), h("span", {}, answered), h("span", {}, format.took(attempt.durationMs))),
    h("div", { class: "when" }, run.length === 1 ? format.moment(attempt.at) : `${format.moment(first.at)} to ${format.moment(attempt.at)}`),
    attempt.error ? h("p", {}, attempt.error) : null,
    attempt.response ? h("details", {}, h("summary", {}, "Response"), code(attempt.response)) : null,
  );
}

function next(job, attempts) {
  if (job.status === "PENDING") return [h("li", {}, attempts.length ? "Next delivery " : "First delivery ", new Date(job.dueAt) > new Date() ? format.ago(job.dueAt) : "when its turn comes", ".")];
  if (job.status === "QUEUED") return [h("li", {}, "In the queue, waiting for the router.")];
  if (job.status === "PROCESSING") return [h("li", {}, "Being delivered.")];
  return attempts.length ? [] : [h("li", {}, "No deliveries.")];
}

function requestOf(job, event) {
  const body = event ? JSON.stringify(event.event, null, 2) : "payload" in job ? JSON.stringify(job.payload, null, 2) : (job.payloadBase64 ?? null);
  const headers = Object.keys(job.headers);
  return [
    facts([
      ["POST", job.target],
      ["Content type", job.contentType],
      ["Own headers", headers.length ? headers.join("\n") : "none besides those of the subscription"],
      ["Signature", job.subscriptionId ? "webhook-id, webhook-timestamp and webhook-signature, new for each delivery" : "none: the job has no subscription"],
    ]),
    h("p", {}),
    body === null ? h("p", { class: "empty" }, "The event is no longer stored.") : code(body),
  ];
}
