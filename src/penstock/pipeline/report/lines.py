"""Lines over time. Only the lines stretch with the page, not the letters and not their width."""

from collections.abc import Sequence
from math import floor, log10

import msgspec

from penstock.pipeline.page import Html, element, joined, notice
from penstock.pipeline.report.heat_map import TimeAxis, time_marks

_PLOT_HEIGHT = 180
_TOP = 16
_FOOT = 22
_TICKS = 4


class Line(msgspec.Struct, frozen=True):
    """A name, a number for each step, and which of the page's colours."""

    name: str
    values: Sequence[int]
    colour: str


def lines(series: Sequence[Line], axis: TimeAxis, title: str, empty: str) -> Html:
    """The lines with their grid and legend; when all are zero, the sentence that says why."""
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
    """The distance of grid lines: 1, 2 or 5 times a power of ten, so that there are few."""
    rough = max(1.0, largest / _TICKS)
    power = 10 ** floor(log10(rough))
    return int(next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough))


def _grid_line(value: int, top: int) -> list[Html]:
    y = _TOP + _PLOT_HEIGHT * (1 - value / top)
    return [
        element("line", x1=0, x2="100%", y1=f"{y:.1f}", y2=f"{y:.1f}", class_="grid"),
        element("text", f"{value:,}", x=0, y=f"{y - 3:.1f}"),
    ]


def _drawn(line: Line, top: int) -> Html:
    # Each step is as wide as in the heat map, and its number stands in its middle.
    width = 1000 / len(line.values)
    points = " ".join(
        f"{(place + 0.5) * width:.1f},{1000 * (1 - value / top):.1f}" for place, value in enumerate(line.values)
    )
    return element("polyline", points=points, class_=f"line-{line.colour}", vector_effect="non-scaling-stroke")


def _legend(series: Sequence[Line]) -> Html:
    entries = (
        element("li", element("i", class_=f"swatch-{line.colour}"), f"{line.name}: {sum(line.values):,}")
        for line in series
    )
    return element("ul", *entries, class_="legend")
