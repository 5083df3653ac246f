// A chart of stacked areas over time.
import { s } from "../components/dom.js";
import { timeChart } from "./time_axes.js";

export function area(options) {
  const total = (row) => row.reduce((sum, value) => sum + (value ?? 0), 0);
  const most = (rows) => Math.max(options.least ?? 0, ...rows.map(total));
  return timeChart({ ...options, most, draw });
}

function draw({ x, y, times, rows, named }) {
  const floor = rows.map(() => 0);
  return named.map(({ cls }, series) => {
    const below = rows.map((_, index) => `${x(times[index]).toFixed(1)} ${y(floor[index]).toFixed(1)}`);
    rows.forEach((row, index) => {
      floor[index] += row[series] ?? 0;
    });
    const above = rows.map((_, index) => `${x(times[index]).toFixed(1)} ${y(floor[index]).toFixed(1)}`);
    return s("path", { class: `area ${cls}`, d: `M${above.join("L")}L${below.reverse().join("L")}Z` });
  });
}
