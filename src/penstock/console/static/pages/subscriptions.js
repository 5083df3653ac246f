// Subscriptions: which events go where.
import { badge, h, setKind, setText } from "../components/dom.js";
import * as format from "../components/format.js";
import { card, head, loader, trouble } from "../components/parts.js";
import { changeTarget, edit, rotate, test, togglePause } from "../components/subscription_actions.js";
import { table } from "../components/table.js";
import { PORTAL } from "../data/api.js";
import { every } from "../data/poll.js";
import { subscriptions } from "../data/subscriptions.js";

const ERRORS = { BLOCK_ON_ERROR: "an error blocks its key", NEXT_ON_ERROR: "continues after an error", IMMEDIATE: "order does not matter" };

// Return the address of a subscription's page.
export const addressOf = (id) => `#/subscriptions/${encodeURIComponent(id)}`;

// Return a subscription's settings in words.
export function inWords(row) {
  const retries = row.retryDelaysS.length ? `retries after ${row.retryDelaysS.map((wait) => format.span(wait)).join(", ")}` : "no retries";
  const words = [...(PORTAL ? [] : [`pool ${row.pool}`]), ERRORS[row.mode], retries, `timeout ${format.span(row.timeoutS)}`];
  if (row.filter.length) words.push(format.plural(row.filter.length, "filter condition"));
  if (row.filterExpression) words.push(`if ${row.filterExpression}`);
  if (row.body === "binary") words.push("attributes in headers");
  if (row.body === "slack") words.push("as a text for a chat");
  if (row.oauth2) words.push(`OAuth2 token of ${row.oauth2.tokenUrl}`);
  if (row.clientCertificate) words.push(`client certificate of ${row.clientCertificate.subject}, until ${row.clientCertificate.expiresAt.slice(0, 10)}`);
  if (row.unkeyed === "ordered") words.push("events without a key in order");
  if (row.highPriority) words.push("high priority");
  if (row.deadLetterTopic && !PORTAL) words.push(`dead letters to ${row.deadLetterTopic}`);
  if (row.secrets > 1) words.push(`${row.secrets} secrets sign: finish the rotation`);
  return words.join(" · ");
}

export function stateBadge(row) {
  return row.paused ? badge("paused", "warn") : badge("delivering", "good");
}

export function mount(main, { signal }) {
  const problem = trouble();
  const add = h("button", { type: "button", class: "primary changes", onclick: () => edit(null).then(load) }, "New subscription…");
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
    const button = (name, text, act) => h("button", { type: "button", "data-part": name, class: "small", onclick: () => act(current()).then(load) }, text);
    return h(
      "div",
      { class: "subscription" },
      h("div", { class: "line" }, h("a", { class: "wrap strong", "data-part": "name" }), h("span", { class: "badge", "data-part": "state" })),
      h("div", { class: "mono wrap" }, part("pattern"), " → ", part("target")),
      h("div", { class: "about" }, part("about")),
      h("div", { class: "buttons changes portal" }, button("test", "Test", test), button("pause", "Pause…", togglePause), button("change", PORTAL ? "Change URL…" : "Edit…", PORTAL ? changeTarget : edit), button("rotate", "Rotate secret…", rotate)),
    );
  }

  function show(node, row) {
    const write = (name, text) => setText(node.querySelector(`[data-part="${name}"]`), text);
    const link = node.querySelector('[data-part="name"]');
    setText(link, row.name);
    link.setAttribute("href", addressOf(row.id));
    write("state", row.paused ? "paused" : "delivering");
    setKind(node.querySelector('[data-part="state"]'), row.paused ? "warn" : "good");
    write("pattern", row.pattern);
    write("target", row.target);
    write("about", inWords(row));
    write("pause", row.paused ? "Resume" : "Pause…");
    write("rotate", row.secrets > 1 ? "Finish rotation…" : "Rotate secret…");
  }
}
