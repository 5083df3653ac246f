"""Horizontal bars, each under its name: readable at any width."""

from collections.abc import Sequence

import msgspec

from penstock.pipeline.page import Html, element, notice

_NAME_CHARACTERS = 300
_HEIGHT = 8


class Bar(msgspec.Struct, frozen=True):
    """A name, its number, what is written at the end of its line, and which part of the bar is bad."""

    name: str
    value: int
    told: str
    bad: int = 0


def bars(rows: Sequence[Bar], title: str, empty: str) -> Html:
    """One bar for each; without any, the sentence that says why."""
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
        element("span", bar.told, class_="told"),
        element("svg", *parts, width="100%", height=_HEIGHT, aria_hidden="true"),
    )


def _part(width: str, kind: str) -> Html:
    return element("rect", x=0, y=0, width=width, height=_HEIGHT, rx=2, class_=kind)
