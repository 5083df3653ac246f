// A chart of horizontal bars, one per name, in the given order.
import { s } from "../components/dom.js";
import { frame, shorten } from "./frame.js";

const ROW = 24;
const PADDING = 6;

export function bars({ rows: shown = 10, label, show, empty }) {
  let entries = [];
  const height = shown * ROW + 2 * PADDING;
  const place = frame({ height, label, paint });

  function paint(svg, width) {
    place.say(entries.length ? null : empty);
    const names = Math.min(220, width * 0.42);
    const top = Math.max(1, ...entries.map(({ value }) => value));
    entries.slice(0, shown).forEach(({ name, value, cls, about }, index) => {
      const y = PADDING + index * ROW;
      const length = Math.max(2, (value / top) * (width - names - 70));
      const title = s("title", {}, about ?? `${name}: ${show(value)}`);
      svg.append(
        s("text", { class: "strong", x: names - 8, y: y + 16, "text-anchor": "end" }, shorten(name, Math.floor(names / 6.6)), s("title", {}, name)),
        s("rect", { class: `bar ${cls ?? "s-1"}`, x: names, y: y + 4, width: length, height: ROW - 8, rx: 3 }, title),
        s("text", { x: names + length + 6, y: y + 16 }, show(value)),
      );
    });
    const texts = entries.slice(0, shown).map(({ name, value }) => `${name} ${show(value)}`);
    place.describe(`${label}. ${texts.length ? texts.join(", ") : empty}`);
  }

  return {
    node: place.node,
    update(newEntries) {
      entries = newEntries;
      place.redraw();
    },
  };
}
