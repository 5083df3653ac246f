// The frame around the pages: menu, theme, sign-in, and the page for the current address.
import { h, setText } from "./components/dom.js";
import { signIn } from "./components/sign_in.js";
import { startTheme } from "./components/theme.js";
import { token } from "./data/api.js";
import { loadCaller } from "./data/caller.js";
import { live, startLive, watch } from "./data/live.js";
import * as changes from "./pages/changes.js";
import * as event from "./pages/event.js";
import * as eventTypes from "./pages/event_types.js";
import * as groups from "./pages/groups.js";
import * as job from "./pages/job.js";
import * as jobs from "./pages/jobs.js";
import * as overview from "./pages/overview.js";
import * as pipeline from "./pages/pipeline.js";
import * as pools from "./pages/pools.js";
import * as queue from "./pages/queue.js";
import * as queues from "./pages/queues.js";
import * as subscription from "./pages/subscription.js";
import * as subscriptions from "./pages/subscriptions.js";
import * as warnings from "./pages/warnings.js";

const MENU = [
  ["overview", "Overview", overview],
  ["queues", "Queues", queues, queue],
  ["pools", "Pools", pools],
  ["groups", "Groups", groups],
  ["jobs", "Jobs", jobs, job],
  ["subscriptions", "Subscriptions", subscriptions, subscription],
  ["event-types", "Event types", eventTypes],
  ["pipeline", "Pipeline", pipeline],
  ["warnings", "Warnings", warnings],
  ["changes", "Changes", changes],
];
const DETAILS = { events: event };

const main = document.getElementById("main");
const menu = document.getElementById("menu");
const menuButton = document.getElementById("menu-button");
const warningCount = h("span", { class: "count", hidden: true });
let leaving = new AbortController();
let session = new AbortController();

function address() {
  const [place, query = ""] = (location.hash.replace(/^#\/?/, "") || "overview").split("?");
  const [name, ...rest] = place.split("/").map(decodeURIComponent);
  return { name, detail: rest.join("/"), query: new URLSearchParams(query) };
}

function showPage() {
  const { name, detail, query } = address();
  const entry = MENU.find(([each]) => each === name);
  const page = detail ? (entry?.[3] ?? DETAILS[name]) : entry?.[2];
  leaving.abort();
  leaving = new AbortController();
  menu.classList.remove("open");
  menuButton.setAttribute("aria-expanded", "false");
  for (const link of menu.querySelectorAll("a")) {
    if (link.dataset.name === (entry?.[0] ?? (name === "events" ? "jobs" : ""))) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${entry?.[1] ?? "Penstock"} · Penstock`;
  main.replaceChildren();
  main.dataset.page = name;
  if (!page) {
    main.append(h("h1", {}, "Page not found"), h("p", {}, h("a", { href: "#/overview" }, "Go to the overview")));
    return;
  }
  page.mount(main, { signal: leaving.signal, detail, query });
}

function showConnection() {
  const connection = document.getElementById("connection");
  connection.dataset.state = live.troubles.api ? "lost" : "live";
  setText(connection, live.troubles.api ? "not connected" : "live");
  const open = live.router?.sum("router_warnings") ?? 0;
  setText(warningCount, open);
  warningCount.hidden = open === 0;
}

async function start() {
  session = new AbortController();
  const { signal } = session;
  await loadCaller();
  if (signal.aborted) return;
  document.getElementById("sign-out-button").hidden = !token.get();
  startLive(session.signal);
  watch(showConnection, session.signal);
  showPage();
}

function askToSignIn() {
  if (session.signal.aborted) return;
  session.abort();
  leaving.abort();
  token.clear();
  signIn(main, start);
}

for (const [name, title] of MENU) {
  menu.append(h("a", { href: `#/${name}`, "data-name": name }, title, name === "warnings" ? warningCount : null));
}
menuButton.addEventListener("click", () => {
  const open = menu.classList.toggle("open");
  menuButton.setAttribute("aria-expanded", String(open));
});
document.getElementById("sign-out-button").addEventListener("click", () => {
  token.clear();
  location.reload();
});
document.addEventListener("sign-in-needed", askToSignIn);
window.addEventListener("hashchange", () => {
  if (location.hash.startsWith("#main")) return;
  if (!session.signal.aborted) showPage();
  main.focus({ preventScroll: true });
  window.scrollTo(0, 0);
});
startTheme(document.getElementById("theme-button"));
start();
