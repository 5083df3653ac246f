// Pipeline: Spark's streaming queries, if Spark is used.
import { lines } from "../charts/lines.js";
import { h } from "../components/dom.js";
import * as format from "../components/format.js";
import { card, head } from "../components/parts.js";
import { table } from "../components/table.js";
import { get } from "../data/api.js";
import { TICK_MS } from "../data/live.js";
import { every } from "../data/poll.js";

const KEPT = 300;
const STATES = { RUNNING: "good", FINISHED: "good", STARTING: "info", WAITING: "warn", FAILED: "bad" };

export function mount(main, { signal }) {
  const notice = h("div", { class: "notice", hidden: true });
  const listed = table({
    columns: [
      { name: "Query", text: (row) => row.name },
      { name: "State", badge: (row) => [row.status, STATES[row.status] ?? ""] },
      { name: "Batch", text: (row) => format.count(row.batchId), class: "number" },
      { name: "Rows", text: (row) => format.count(row.rows), class: "number" },
      { name: "Rows per second", text: (row) => format.rate(row.rowsPerSecond), class: "number" },
      { name: "Batch took", text: (row) => format.span(row.batchDurationMs / 1000), class: "number" },
      { name: "Lag", text: (row) => (row.lag === null || row.lag === undefined ? format.NONE : format.plural(row.lag, "row")), class: "number" },
      { name: "Restarts", text: (row) => format.count(row.restarts), class: "number" },
      { name: "Last error", text: lastError, class: "long" },
    ],
    key: (row) => row.name,
    empty: "No query has started yet.",
  });
  const speed = lines({ label: "Rows per second by query", series: [], show: format.rate, least: 1, empty: "Collecting data. The chart starts in a few seconds.", quiet: "No rows while this page was open." });
  const lag = lines({ label: "Waiting rows by query", series: [], show: format.count, least: 4, empty: "No query reports its lag." });
  const content = h("div", {}, card("Streaming queries", null, listed.node), card("Rows per second", "by query", speed.node), card("Lag", "waiting rows by query", lag.node));
  main.append(head("Pipeline", "Fan-out, dispatch and facts on Spark."), notice, content);
  let history = [];

  every(TICK_MS, async () => {
    try {
      const found = await get("/api/pipeline");
      if (!found.reachable) throw new Error(found.detail);
      notice.hidden = true;
      content.hidden = false;
      listed.update(found.queries);
      history = [...history, [Date.now(), found.queries]].slice(-KEPT);
      draw(speed, history, "rowsPerSecond");
      draw(lag, history, "lag");
    } catch (error) {
      content.hidden = true;
      notice.hidden = false;
      notice.replaceChildren(
        h("strong", {}, "No pipeline is running here. "),
        h("span", {}, error.message),
        h("p", {}, "With --engine inline, the API's process creates and publishes jobs, and this page is empty. Start Spark with penstock pipeline run."),
      );
    }
  }, signal);
}

function lastError(row) {
  const again = row.retryInSeconds === null ? "" : ` (restarts in ${format.span(row.retryInSeconds)})`;
  return row.lastError === null ? "" : row.lastError + again;
}

function draw(chart, history, measure) {
  const names = [...new Set(history.flatMap(([, queries]) => queries.filter((each) => each[measure] !== null && each[measure] !== undefined).map((each) => each.name)))];
  const series = names.map((name, index) => ({ name, cls: `s-${(index % 8) + 1}` }));
  const rows = history.map(([, queries]) => names.map((name) => queries.find((each) => each.name === name)?.[measure] ?? null));
  chart.update(names.length ? history.map(([ms]) => ms) : [], names.length ? rows : [], series);
}
