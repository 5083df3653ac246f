// Pipeline: Spark's streaming queries, if the machine has them.
import { get } from "../api.js";
import { lines } from "../charts/lines.js";
import { h } from "../dom.js";
import * as format from "../format.js";
import { TICK_MS } from "../live.js";
import { card, head } from "../parts.js";
import { every } from "../polling.js";
import { table } from "../table.js";

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
  const speed = lines({ label: "Rows per second by query", series: [], show: format.rate, least: 1, empty: "The first values come in a few seconds.", quiet: "No rows came while this page was open." });
  const lag = lines({ label: "Rows that wait, by query", series: [], show: format.count, least: 4, empty: "No query tells its lag." });
  const content = h("div", {}, card("Streaming queries", null, listed.node), card("Rows per second", "by query", speed.node), card("Lag", "rows that wait, by query", lag.node));
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
        h("p", {}, "With --engine inline, jobs are made and published by the API's own process, and this page has nothing to show. Start Spark's part with penstock pipeline run."),
      );
    }
  }, signal);
}

function lastError(row) {
  const again = row.retryInSeconds === null ? "" : ` (started again in ${format.span(row.retryInSeconds)})`;
  return row.lastError === null ? "" : row.lastError + again;
}

function draw(chart, history, measure) {
  const names = [...new Set(history.flatMap(([, queries]) => queries.filter((each) => each[measure] !== null && each[measure] !== undefined).map((each) => each.name)))];
  const series = names.map((name, index) => ({ name, cls: `s-${(index % 8) + 1}` }));
  const rows = history.map(([, queries]) => names.map((name) => queries.find((each) => each.name === name)?.[measure] ?? null));
  chart.update(names.length ? history.map(([ms]) => ms) : [], names.length ? rows : [], series);
}
