"""One HTML page that needs nothing else: the frame of the pipeline's reports. Whatever is put into it is escaped."""

import re
from collections.abc import Iterable, Sequence
from html import escape

import msgspec

from penstock.pipeline.page_style import STYLE

# Not allowed in HTML at all, escaped or not; half a surrogate pair cannot even be written to a file.
_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


class Html(str):
    """Text that is HTML already. All other text is escaped where it enters a page."""

    __slots__ = ()


class Section(msgspec.Struct, frozen=True):
    """A part of a page; a wide one takes the whole row on a large screen."""

    title: str
    body: Html
    note: str = ""
    wide: bool = False


def html(value: object) -> Html:
    """A value as HTML: as it is if it is HTML, else escaped."""
    if isinstance(value, Html):
        return value
    return Html(escape(_FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", str(value)), quote=True))


def joined(parts: Iterable[object]) -> Html:
    """Several values, one after the other."""
    return Html("".join(map(html, parts)))


def element(name: str, *content: object, **attributes: object) -> Html:
    """An element with its contents; `class_` is the attribute `class`, and `stroke_width` is `stroke-width`."""
    given = joined(Html(f' {key.rstrip("_").replace("_", "-")}="{html(value)}"') for key, value in attributes.items())
    return Html(f"<{name}{given}>{joined(content)}</{name}>")


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str = "There is nothing to show.") -> Html:
    """Rows under their column names, numbers to the right; without rows the sentence that says why."""
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
    """A few numbers in large type, each with its name."""
    return element("dl", *(element("div", element("dt", name), element("dd", value)) for name, value in values))


def notice(text: str) -> Html:
    """A sentence in place of what is not there."""
    return element("p", text, class_="notice")


def page(title: str, sections: Sequence[Section], lead: str = "") -> str:
    """The whole page."""
    # The policy lets the page load and run nothing, even if something slipped through the escaping.
    head = Html(
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f'<meta name="color-scheme" content="light dark"><title>{html(title)}</title><style>{STYLE}</style>'
    )
    header = element("header", element("h1", title), element("p", lead) if lead else "")
    main = element("main", *map(_section, sections))
    body = element("body", header, main, element("footer", "Made by Penstock. Times are UTC."))
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>{body}</html>\n'


def _section(section: Section) -> Html:
    note = element("p", section.note, class_="note") if section.note else ""
    kind = {"class_": "wide"} if section.wide else {}
    return element("section", element("h2", section.title), note, section.body, **kind)


def _cell(value: object) -> Html:
    return element("td", f"{value:,}" if _is_number(value) else value, **_kind(_is_number(value)))


def _is_number(value: object) -> bool:
    # A switch is a word, not a number.
    return isinstance(value, int | float) and not isinstance(value, bool)


def _kind(is_number: bool) -> dict[str, str]:
    return {"class_": "number"} if is_number else {}
