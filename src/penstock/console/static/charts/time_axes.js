// Charts over time: axes, and a cursor that follows the pointer or the arrow keys and shows the values.
import { h, s } from "../components/dom.js";
import * as format from "../components/format.js";
import { frame, ticks } from "./frame.js";

const LEFT = 52;
const RIGHT = 8;
const TOP = 10;
const BOTTOM = 22;

// `series` is [{name, cls}]; `draw(plot)` adds the shapes of the data, `most(values)` is the top of the scale. `empty`
// is shown while there are no values, `quiet` while all of them are zero.
export function timeChart({ height = 190, label, series, show, draw, most, empty, quiet }) {
  let times = [];
  let rows = [];
  let named = series;
  let at = null;
  const place = frame({ height, label, paint });

  function plotOf(width) {
    const right = width - RIGHT;
    const bottom = height - BOTTOM;
    const top = ticks(most(rows)).at(-1);
    const [first, last] = [times[0], times.at(-1)];
    const x = (ms) => (last === first ? right : LEFT + ((ms - first) / (last - first)) * (right - LEFT));
    return { x, y: (value) => bottom - (value / top) * (bottom - TOP), left: LEFT, right, bottom, times, rows, named };
  }

  function paint(svg, width) {
    const silent = quiet && rows.every((row) => row.every((value) => !value));
    const reason = times.length < 2 ? empty : silent ? quiet : null;
    place.say(reason);
    place.explain(reason ? [] : named.map(({ name, cls }) => [name, cls]));
    if (reason) {
      place.describe(`${label}. ${reason}`);
      place.tip.hidden = true;
      return;
    }
    const plot = plotOf(width);
    for (const mark of ticks(most(rows))) {
      const y = plot.y(mark);
      svg.append(s("line", { class: "axis", x1: LEFT, x2: plot.right, y1: y, y2: y }));
      svg.append(s("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, show(mark)));
    }
    const labels = Math.max(2, Math.floor(width / 130));
    for (let index = 0; index < labels; index += 1) {
      const ms = times[0] + ((times.at(-1) - times[0]) * index) / (labels - 1);
      const anchor = index === 0 ? "start" : index === labels - 1 ? "end" : "middle";
      svg.append(s("text", { x: plot.x(ms), y: height - 5, "text-anchor": anchor }, format.at(ms)));
    }
    svg.append(...draw(plot));
    place.describe(`${label}. Now: ${named.map(({ name }, index) => `${name} ${show(rows.at(-1)[index])}`).join(", ")}.`);
    point(svg, plot);
  }

  function point(svg, plot) {
    place.tip.hidden = at === null;
    if (at === null) return;
    const index = Math.min(Math.max(at, 0), times.length - 1);
    const x = plot.x(times[index]);
    svg.append(s("line", { class: "cursor", x1: x, x2: x, y1: TOP, y2: plot.bottom }));
    place.tip.replaceChildren(
      h("div", { class: "at" }, format.at(times[index])),
      ...named.map(({ name, cls }, row) =>
        h("div", { class: "row" }, h("span", {}, h("i", { class: `swatch ${cls}` }), name), h("span", {}, show(rows[index][row]))),
      ),
    );
    const leftHalf = x < plot.left + (plot.right - plot.left) / 2;
    place.tip.style.left = leftHalf ? `${x + 12}px` : "auto";
    place.tip.style.right = leftHalf ? "auto" : `${plot.right - x + 20}px`;
  }

  function move(index) {
    at = index;
    place.redraw();
  }

  place.svg.setAttribute("tabindex", "0");
  place.svg.addEventListener("pointermove", (event) => {
    if (times.length < 2) return;
    const box = place.svg.getBoundingClientRect();
    const share = (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT);
    const ms = times[0] + share * (times.at(-1) - times[0]);
    move(times.reduce((best, time, index) => (Math.abs(time - ms) < Math.abs(times[best] - ms) ? index : best), 0));
  });
  place.svg.addEventListener("pointerleave", () => move(null));
  place.svg.addEventListener("blur", () => move(null));
  place.svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step === undefined || times.length < 2) return;
    event.preventDefault();
    move(Math.min(Math.max((at ?? times.length) + step, 0), times.length - 1));
  });

  return {
    node: place.node,
    // Values by time: rows[i] has one value per series, null where there is none.
    update(newTimes, newRows, newSeries = series) {
      [times, rows, named] = [newTimes, newRows, newSeries];
      place.redraw();
    },
  };
}
