// A chart of lines over time, with gaps for missing values.
import { s } from "../components/dom.js";
import { timeChart } from "./time_axes.js";

export function lines(options) {
  const most = (rows) => Math.max(options.least ?? 0, ...rows.flat().map((value) => value ?? 0));
  return timeChart({ ...options, most, draw });
}

function draw({ x, y, times, rows, named }) {
  return named.map(({ cls }, series) => {
    let pen = "M";
    let path = "";
    rows.forEach((row, index) => {
      const value = row[series];
      if (value === null || value === undefined) pen = "M";
      else {
        // A value alone between gaps is a dot.
        path += `${pen}${x(times[index]).toFixed(1)} ${y(value).toFixed(1)}${pen === "M" ? "h0.1" : ""}`;
        pen = "L";
      }
    });
    return s("path", { class: `line ${cls}`, d: path });
  });
}
