"""A self-contained HTML page, light and dark, for reports and audits. Everything put into it is escaped."""

import re
from collections.abc import Iterable, Sequence
from html import escape

import msgspec

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
a { color: var(--series-1); }
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
.bars .value { color: var(--muted); font-variant-numeric: tabular-nums; }
.heat { display: grid; grid-template-columns: auto minmax(0, 1fr); }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1rem; list-style: none; padding: 0; margin: .5rem 0 0;
  font-size: .85rem; color: var(--muted); }
.legend i { display: inline-block; width: .75rem; height: .75rem; border-radius: 2px; margin-right: .4rem; }
@media print { body { max-width: none; } section { break-inside: avoid; } }
"""

# Not allowed in HTML, even escaped; a lone surrogate cannot be written to a file.
_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


class Html(str):
    """Text that is already HTML. All other text is escaped where it enters a page."""

    __slots__ = ()


class Section(msgspec.Struct, frozen=True):
    """A section of a page; a wide one takes the whole row on a large screen."""

    title: str
    body: Html
    note: str = ""
    wide: bool = False


def html(value: object) -> Html:
    """Return a value as HTML: unchanged if it is HTML, else escaped."""
    if isinstance(value, Html):
        return value
    return Html(escape(_FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", str(value)), quote=True))


def joined(parts: Iterable[object]) -> Html:
    """Return several values, one after the other."""
    return Html("".join(map(html, parts)))


def element(name: str, *content: object, **attributes: object) -> Html:
    """Return an element with its contents; `class_` is the attribute `class`, and `stroke_width` is `stroke-width`."""
    given = joined(Html(f' {key.rstrip("_").replace("_", "-")}="{html(value)}"') for key, value in attributes.items())
    return Html(f"<{name}{given}>{joined(content)}</{name}>")


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str = "There is nothing to show.") -> Html:
    """Return rows under their column names, numbers to the right; without rows, the sentence `empty`."""
    if not rows:
        return notice(empty)
    numeric = [all(_is_number(row[place]) for row in rows) for place in range(len(columns))]
    head = (
        element("th", name, scope="col", **_kind(is_number)) for name, is_number in zip(columns, numeric, strict=True)
    )
    body = (element("tr", *map(_cell, row)) for row in rows)
    return element(
        "div", element("table", element("thead", element("tr", *head)), element("tbody", *body)), class_="table"
    )


def figures(values: Sequence[tuple[str, object]]) -> Html:
    """Return a few numbers in large type, each with its name."""
    return element("dl", *(element("div", element("dt", name), element("dd", value)) for name, value in values))


def notice(text: str) -> Html:
    """Return a sentence in place of missing contents."""
    return element("p", text, class_="notice")


def page(title: str, sections: Sequence[Section], lead: str = "") -> str:
    """Return the whole page."""
    # The policy forbids loading and running anything, even if the escaping failed.
    head = Html(
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f'<meta name="color-scheme" content="light dark"><title>{html(title)}</title><style>{STYLE}</style>'
    )
    header = element("header", element("h1", title), element("p", lead) if lead else "")
    main = element("main", *map(_section, sections))
    body = element("body", header, main, element("footer", "Created by Penstock. Times are UTC."))
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>{body}</html>\n'


def _section(section: Section) -> Html:
    note = element("p", section.note, class_="note") if section.note else ""
    kind = {"class_": "wide"} if section.wide else {}
    return element("section", element("h2", section.title), note, section.body, **kind)


def _cell(value: object) -> Html:
    return element("td", f"{value:,}" if _is_number(value) else value, **_kind(_is_number(value)))


def _is_number(value: object) -> bool:
    # A bool is an int in Python, but shown as a word.
    return isinstance(value, int | float) and not isinstance(value, bool)


def _kind(is_number: bool) -> dict[str, str]:
    return {"class_": "number"} if is_number else {}
