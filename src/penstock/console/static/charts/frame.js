// What all charts share: a fixed height, a redraw when the width changes, a legend, a text when empty.
import { h, s, setText } from "../components/dom.js";

// `paint(svg, width, height)` draws into an empty SVG. `label` is what a screen reader says.
export function frame({ height, label, paint }) {
  const svg = s("svg", { height, role: "img", "aria-label": label });
  const note = h("p", { class: "chart-empty", hidden: true });
  const tip = h("div", { class: "chart-tip", hidden: true });
  const legend = h("div", { class: "chart-legend" });
  const node = h("figure", { class: "chart" }, svg, note, tip, legend);
  let width = 0;

  function redraw() {
    if (width < 40) return;
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    paint(svg, width, height);
  }

  new ResizeObserver(([entry]) => {
    const found = Math.floor(entry.contentRect.width);
    if (found !== width) {
      width = found;
      redraw();
    }
  }).observe(node);

  return {
    node,
    svg,
    tip,
    redraw,
    // Show a reason instead of a chart, or the chart again.
    say(reason) {
      setText(note, reason ?? "");
      note.hidden = !reason;
    },
    describe: (text) => svg.setAttribute("aria-label", text),
    // Names with the class of their colour: [["p50", "s-1"], …].
    explain(entries) {
      const key = JSON.stringify(entries);
      if (legend.dataset.key === key) return;
      legend.dataset.key = key;
      legend.replaceChildren(...entries.map(([name, cls]) => h("span", { title: name }, h("i", { class: `swatch ${cls}` }), name)));
    },
  };
}

// About four round numbers from 0 to at least `most`.
export function ticks(most) {
  if (!(most > 0)) return [0, 1];
  const rough = most / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const marks = [0];
  while (marks.at(-1) < most * 0.999) marks.push(Math.round((marks.at(-1) + step) * 1e9) / 1e9);
  return marks;
}

export function shorten(text, most) {
  return text.length <= most ? text : `${text.slice(0, Math.ceil(most / 2) - 1)}…${text.slice(-Math.floor(most / 2))}`;
}
