"""A heat map: time to the right, latency upwards, the stronger the colour, the more."""

from collections.abc import Mapping, Sequence
from math import sqrt

import msgspec

from penstock.pipeline.page import Html, element, notice

_ROW_HEIGHT = 18
_FOOT = 22
_FAINTEST = 0.12
_NAMES_WIDTH = 70


class TimeAxis(msgspec.Struct, frozen=True):
    """The columns' names, and for a few of them what is written below; the others have an empty text there."""

    names: Sequence[str]
    marks: Sequence[str]


def heat_map(
    counts: Mapping[tuple[int, int], int], axis: TimeAxis, rows: Sequence[str], title: str, empty: str
) -> Html:
    """Counts by column and row; rows begin at the bottom, and those above and below all counts are left out."""
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
    """What is written below the columns, where they begin."""
    width = 100 / len(axis.marks)
    return [element("text", mark, x=f"{column * width:.3f}%", y=y) for column, mark in enumerate(axis.marks) if mark]


def _depth(count: int, largest: int) -> float:
    # The root: else one crowded cell makes all others look empty.
    return _FAINTEST + (1 - _FAINTEST) * sqrt(count / largest)
