// A heat map: a row per name, a column per time, five colours that the legend explains.
import { s } from "../components/dom.js";
import * as format from "../components/format.js";
import { frame, shorten } from "./frame.js";

const ROW = 22;
const BOTTOM = 22;

// `steps` are the four values between the five colours.
export function heatMap({ rows: shown = 10, label, show, steps, empty }) {
  let names = [];
  let times = [];
  let cells = [];
  const height = shown * ROW + BOTTOM;
  const place = frame({ height, label, paint });
  const classOf = (value) => (value === null ? "heat-none" : `heat-${steps.filter((step) => value >= step).length}`);

  function paint(svg, width) {
    place.say(names.length ? null : empty);
    const bounds = [`under ${show(steps[0])}`, ...steps.map((step) => `from ${show(step)}`)];
    place.explain(names.length ? bounds.map((text, index) => [text, `heat-${index}`]) : []);
    if (!names.length) return;
    const left = Math.min(220, width * 0.36);
    const step = (width - left) / times.length;
    names.slice(0, shown).forEach((name, row) => {
      svg.append(s("text", { class: "strong", x: left - 8, y: row * ROW + 15, "text-anchor": "end" }, shorten(name, Math.floor(left / 6.6)), s("title", {}, name)));
      cells[row].forEach((value, column) => {
        const text = value === null ? "nothing delivered" : show(value);
        const title = s("title", {}, `${name}, ${format.at(times[column])}: ${text}`);
        const size = { x: left + column * step, y: row * ROW + 1, width: Math.max(1, step - 1), height: ROW - 2 };
        svg.append(s("rect", { class: classOf(value), ...size, rx: 2 }, title));
      });
    });
    svg.append(s("text", { x: left, y: height - 5 }, format.at(times[0])));
    svg.append(s("text", { x: width, y: height - 5, "text-anchor": "end" }, format.at(times.at(-1))));
    place.describe(`${label}. Groups: ${names.slice(0, shown).join(", ")}.`);
  }

  return {
    node: place.node,
    // cells[row][column] is a value, or null where nothing happened.
    update(newNames, newTimes, newCells) {
      [names, times, cells] = [newNames, newTimes, newCells];
      place.redraw();
    },
  };
}
