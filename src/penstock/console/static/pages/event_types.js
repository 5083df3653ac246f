// Event types: what may be published, with schemas and examples.
import { code } from "../components/code.js";
import { badge, h } from "../components/dom.js";
import { card, head, loader, trouble } from "../components/parts.js";
import { getAll } from "../data/api.js";
import { every } from "../data/poll.js";

const ON_MISMATCH = {
  reject: ["events that differ are refused", "warn"],
  warn: ["events that differ get a warning", "info"],
  off: ["not checked", ""],
};

export function mount(main, { signal }) {
  const problem = trouble();
  const listed = h("div");
  main.append(head("Event types", "What events say: a description, JSON Schemas by version, and examples. They are set with penstock event-types set."), problem.node, listed);
  let shown = "";
  const load = loader(problem, () => getAll("/api/v1/event-types", "eventTypes"), (rows) => {
    const content = JSON.stringify(rows);
    if (content === shown) return;
    shown = content;
    listed.replaceChildren(...(rows.length ? rows.map(typeCard) : [h("p", { class: "empty" }, "No event types. Events of any type are accepted as they are.")]));
  });
  every(5000, load, signal);
}

function typeCard(row) {
  const versions = [...row.versions].reverse();
  const state = versions.length ? badge(...ON_MISMATCH[row.validation]) : null;
  return card(row.type, row.description, state, ...versions.map((each, index) => version(each, index === 0)));
}

function version(each, newest) {
  const title = `Version ${each.version}${newest ? ", the newest" : ""}`;
  return h(
    "details",
    { open: newest },
    h("summary", {}, title),
    code(JSON.stringify(each.schema)),
    ...each.examples.map((example, index) => h("details", {}, h("summary", {}, `Example ${index + 1}`), code(JSON.stringify(example)))),
  );
}
