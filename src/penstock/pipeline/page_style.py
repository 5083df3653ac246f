"""The look of the pipeline's HTML reports: light and dark, on a phone and on a wide screen, without any asset."""

STYLE = """
:root { color-scheme: light dark; --paper: #fcfcfb; --card: #fff; --ink: #1b1e23; --muted: #5d6470; --line: #dfe2e6;
  --series-1: #2563a8; --series-2: #b4530a; --good: #1a7f4b; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --paper: #14161a; --card: #1c1f25; --ink: #e6e8eb; --muted: #9aa3af;
  --line: #343a43; --series-1: #6ea8e6; --series-2: #e8964f; --good: #5cc48d;
  --bad: #f2857c; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .5rem 0 0; }
h2 { font-size: 1.05rem; margin: 0 0 .25rem; }
header p, footer, .note { color: var(--muted); margin: .15rem 0 .75rem; }
.note { font-size: .85rem; }
main { display: grid; gap: 1rem; grid-template-columns: minmax(0, 1fr); margin: 1rem 0; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 1rem; min-width: 0; }
@media (min-width: 60rem) { main { grid-template-columns: repeat(2, minmax(0, 1fr)); } .wide { grid-column: 1 / -1; } }
dl { display: grid; gap: .75rem 1rem; grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); margin: 0; }
dt { color: var(--muted); font-size: .85rem; }
dd { margin: 0; font-size: 1.45rem; font-variant-numeric: tabular-nums; }
.table { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; }
th { text-align: left; color: var(--muted); font-weight: 600; white-space: nowrap; }
th, td { padding: .3rem .75rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top;
  overflow-wrap: anywhere; min-width: 4rem; unicode-bidi: isolate; }
td:first-child:not(.number) { min-width: 13rem; }
th.number, .number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.notice { color: var(--muted); border: 1px dashed var(--line); border-radius: 6px; padding: 1rem; margin: .5rem 0 0; }
.good { color: var(--good); } .bad { color: var(--bad); }
svg { display: block; overflow: hidden; }
svg text { fill: var(--muted); font-size: 12px; font-family: inherit; unicode-bidi: isolate; }
svg text.strong { fill: var(--ink); }
.rail { fill: var(--line); fill-opacity: .5; } .fill-1 { fill: var(--series-1); } .fill-bad { fill: var(--bad); }
polyline { fill: none; stroke-width: 2; stroke-linejoin: round; }
.line-1 { stroke: var(--series-1); } .line-2 { stroke: var(--series-2); } .line-bad { stroke: var(--bad); }
.swatch-1 { background: var(--series-1); } .swatch-2 { background: var(--series-2); }
.swatch-bad { background: var(--bad); }
svg .grid { stroke: var(--line); stroke-width: 1; }
.bars > div { display: flex; flex-wrap: wrap; gap: 0 .75rem; margin-bottom: .6rem; font-size: .85rem; }
.bars .name { flex: 1 1 0; min-width: 0; overflow: hidden; text-overflow: ellipsis; white-space: nowrap;
  unicode-bidi: isolate; }
.bars .told { color: var(--muted); font-variant-numeric: tabular-nums; }
.heat { display: grid; grid-template-columns: auto minmax(0, 1fr); }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1rem; list-style: none; padding: 0; margin: .5rem 0 0;
  font-size: .85rem; color: var(--muted); }
.legend i { display: inline-block; width: .75rem; height: .75rem; border-radius: 2px; margin-right: .4rem; }
@media print { body { max-width: none; } section { break-inside: avoid; } }
"""
