// A chart of vertical bars, one per partition, with a line at their mean.
import { s } from "../components/dom.js";
import { frame, ticks } from "./frame.js";

const LEFT = 46;
const TOP = 12;
const BOTTOM = 22;

export function columns({ height = 180, label, show, empty }) {
  let values = [];
  const place = frame({ height, label, paint });

  function paint(svg, width) {
    const total = values.reduce((sum, value) => sum + value, 0);
    place.say(total > 0 ? null : empty);
    place.explain(total > 0 ? [["messages in a partition", "s-1"], ["dashed: their mean", "s-6"]] : []);
    if (!(total > 0)) return;
    const marks = ticks(Math.max(...values));
    const bottom = height - BOTTOM;
    const y = (value) => bottom - (value / marks.at(-1)) * (bottom - TOP);
    for (const mark of marks) {
      svg.append(s("line", { class: "axis", x1: LEFT, x2: width, y1: y(mark), y2: y(mark) }));
      svg.append(s("text", { x: LEFT - 6, y: y(mark) + 4, "text-anchor": "end" }, show(mark)));
    }
    const step = (width - LEFT) / values.length;
    values.forEach((value, index) => {
      const title = s("title", {}, `partition ${index}: ${show(value)}`);
      const x = LEFT + index * step + step * 0.15;
      svg.append(s("rect", { class: "bar s-1", x, y: y(value), width: Math.min(step * 0.7, 80), height: bottom - y(value), rx: 2 }, title));
      if (step > 14) svg.append(s("text", { x: x + Math.min(step * 0.35, 40), y: height - 6, "text-anchor": "middle" }, String(index)));
    });
    const mean = y(total / values.length);
    svg.append(s("line", { class: "mean", x1: LEFT, x2: width, y1: mean, y2: mean }));
    place.describe(`${label}. ${values.map((value, index) => `${index}: ${show(value)}`).join(", ")}`);
  }

  return {
    node: place.node,
    update(newValues) {
      values = newValues;
      place.redraw();
    },
  };
}
