"""The charts of a report as inline SVG: bars, heat map and lines, which stretch with the page."""

from collections.abc import Mapping, Sequence
from math import floor, log10, sqrt

import msgspec

from penstock.history.page import Html, element, joined, notice

_NAME_CHARACTERS = 300
_HEIGHT = 8
_ROW_HEIGHT = 18
_FOOT = 22
_FAINTEST = 0.12
_NAMES_WIDTH = 70
_PLOT_HEIGHT = 180
_TOP = 16
_TICKS = 4


class Bar(msgspec.Struct, frozen=True):
    """A name, its number, the label at the end of its line, and which part of the bar is bad."""

    name: str
    value: int
    label: str
    bad: int = 0


def bars(rows: Sequence[Bar], title: str, empty: str) -> Html:
    """Return one bar for each row; without rows, the sentence `empty`."""
    if not rows:
        return notice(empty)
    largest = max(1, *(bar.value for bar in rows))
    return element("div", *(_bar(bar, largest) for bar in rows), class_="bars", role="group", aria_label=title)


def _bar(bar: Bar, largest: int) -> Html:
    whole = 100 * bar.value / largest
    bad = whole * bar.bad / bar.value if bar.value else 0.0
    parts = [_part("100%", "rail"), _part(f"{whole:.2f}%", "fill-1")]
    if bad:
        parts.append(_part(f"{bad:.2f}%", "fill-bad"))
    name = bar.name[:_NAME_CHARACTERS] if bar.name.strip() else "(empty)"
    return element(
        "div",
        element("span", name, class_="name", title=name),
        element("span", bar.label, class_="value"),
        element("svg", *parts, width="100%", height=_HEIGHT, aria_hidden="true"),
    )


def _part(width: str, kind: str) -> Html:
    return element("rect", x=0, y=0, width=width, height=_HEIGHT, rx=2, class_=kind)


class TimeAxis(msgspec.Struct, frozen=True):
    """The names of the columns, and the labels below them, most of which are empty."""

    names: Sequence[str]
    marks: Sequence[str]


def heat_map(
    counts: Mapping[tuple[int, int], int], axis: TimeAxis, rows: Sequence[str], title: str, empty: str
) -> Html:
    """Return counts by column and row, from the bottom up; empty rows above and below are left out."""
    counts = {place: count for place, count in counts.items() if count}
    if not counts:
        return notice(empty)
    shown = range(min(row for _, row in counts), max(row for _, row in counts) + 1)
    height = len(shown) * _ROW_HEIGHT
    tops = {row: (shown[-1] - row) * _ROW_HEIGHT for row in shown}
    largest = max(counts.values())
    width = 100 / len(axis.names)
    names = [element("text", rows[row], x=_NAMES_WIDTH - 6, y=tops[row] + 13, text_anchor="end") for row in shown]
    cells = [
        element(
            "rect",
            element("title", f"{axis.names[column]}, {rows[row]}: {count:,}"),
            x=f"{column * width:.3f}%",
            y=tops[row],
            width=f"{width:.3f}%",
            height=_ROW_HEIGHT - 1,
            class_="fill-1",
            fill_opacity=f"{_depth(count, largest):.3f}",
        )
        for (column, row), count in sorted(counts.items())
    ]
    return element(
        "div",
        element("svg", *names, width=_NAMES_WIDTH, height=height, aria_hidden="true"),
        element(
            "svg",
            *cells,
            *time_marks(axis, height + 16),
            width="100%",
            height=height + _FOOT,
            role="img",
            aria_label=title,
        ),
        class_="heat",
    )


def time_marks(axis: TimeAxis, y: int) -> list[Html]:
    """Return the labels below the columns, where they begin."""
    width = 100 / len(axis.marks)
    return [element("text", mark, x=f"{column * width:.3f}%", y=y) for column, mark in enumerate(axis.marks) if mark]


def _depth(count: int, largest: int) -> float:
    # The square root, so that one large cell does not make all others look empty.
    return _FAINTEST + (1 - _FAINTEST) * sqrt(count / largest)


class ChartLine(msgspec.Struct, frozen=True):
    """A name, a number for each step, and one of the page's colours."""

    name: str
    values: Sequence[int]
    colour: str


def lines(series: Sequence[ChartLine], axis: TimeAxis, title: str, empty: str) -> Html:
    """Return the lines with their grid and legend; if all are zero, the sentence `empty`."""
    largest = max((value for line in series for value in line.values), default=0)
    if not largest:
        return notice(empty)
    step = tick_step(largest)
    top = step * -(-largest // step)
    grid = [part for value in range(0, top + 1, step) for part in _grid_line(value, top)]
    drawn = [_drawn(line, top) for line in series if any(line.values)]
    plot = element("svg", *drawn, x=0, y=_TOP, width="100%", height=_PLOT_HEIGHT, viewBox="0 0 1000 1000",
                   preserveAspectRatio="none")  # fmt: skip
    marks = time_marks(axis, _TOP + _PLOT_HEIGHT + 18)
    height = _TOP + _PLOT_HEIGHT + _FOOT
    chart = element("svg", *grid, plot, *marks, width="100%", height=height, role="img", aria_label=title)
    return joined([chart, _legend(series)])


def tick_step(largest: int) -> int:
    """Return the distance of grid lines: 1, 2 or 5 times a power of ten, so that there are few."""
    rough = max(1.0, largest / _TICKS)
    power = 10 ** floor(log10(rough))
    return int(next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough))


def _grid_line(value: int, top: int) -> list[Html]:
    y = _TOP + _PLOT_HEIGHT * (1 - value / top)
    return [
        element("line", x1=0, x2="100%", y1=f"{y:.1f}", y2=f"{y:.1f}", class_="grid"),
        element("text", f"{value:,}", x=0, y=f"{y - 3:.1f}"),
    ]


def _drawn(line: ChartLine, top: int) -> Html:
    # Steps are as wide as in the heat map, with the value in the middle.
    width = 1000 / len(line.values)
    points = " ".join(
        f"{(place + 0.5) * width:.1f},{1000 * (1 - value / top):.1f}" for place, value in enumerate(line.values)
    )
    return element("polyline", points=points, class_=f"line-{line.colour}", vector_effect="non-scaling-stroke")


def _legend(series: Sequence[ChartLine]) -> Html:
    entries = (
        element("li", element("i", class_=f"swatch-{line.colour}"), f"{line.name}: {sum(line.values):,}")
        for line in series
    )
    return element("ul", *entries, class_="legend")
