"""The report's page: well formed whatever the names, and it says why a chart is empty."""

from collections.abc import Sequence
from html.parser import HTMLParser

import pytest

from penstock.history.page import Html, Section, element, page, table
from penstock.history.report.charts import Bar, ChartLine, TimeAxis, bars, lines, tick_step
from penstock.history.report.document import document
from penstock.history.report.figures import (
    Cell,
    EndpointFigures,
    Figures,
    Group,
    PartitionFigures,
    Reason,
    ReportTotals,
    Step,
    SubscriptionFigures,
)
from penstock.history.report.period import ReportPeriod, day_period, week_period
from penstock.spark.errors import InvalidPipelineOption

VOID = {"meta", "br", "img", "link", "input", "hr"}
HOSTILE = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "</svg></section><h1>owned",
    "&lt;b&gt; &amp; ]]> --> ",
    "\u202egnp.exe\u2066",
    "\x00\x07\x1b[31m\ud83d",
    "javascript:alert(1)",
    "",
    "x" * 5000,
    "日本語 \U0001f600 \u0301",
]
DAY = day_period("2026-11-01")


class Page(HTMLParser):
    """Elements in order; fails when one is closed that is not open."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")


def report(names: Sequence[str] = (), span: ReportPeriod = DAY) -> Figures:
    """A report in which every name there can be is one of these."""
    attempts = len(names)
    steps = span.steps if names else []
    return Figures(
        span=span,
        source=f"the lake {''.join(names)}",
        totals=ReportTotals(
            attempts=attempts, delivered=attempts, failed=0, refused=0, deferred=0, jobs=attempts, groups=attempts,
            repaired=0, wait_mean_ms=1.5 if names else None, wait_longest_ms=3 if names else None,
            p50_ms=1 if names else None, p99_ms=2 if names else None,
        ),
        groups=[Group(group_key=name, attempts=9, failed=3, busy_ms=400_000) for name in names],
        partitions=[PartitionFigures(partition=number, groups=1, attempts=5) for number in range(4)] if names else [],
        reasons=[Reason(reason=name, outcome="FAILED", attempts=2, endpoints=1) for name in names],
        endpoints=[
            EndpointFigures(endpoint=name, attempts=5, failed=1, p50_ms=1, p95_ms=2, p99_ms=3) for name in names
        ],
        steps=[Step(step_ms=step_ms, first=place, retries=1) for place, step_ms in enumerate(steps)],
        subscriptions=[
            SubscriptionFigures(
                subscription_id="s", subscription=name, event_type=name, attempts=3, failed=1, wait_p50_ms=1,
                wait_p99_ms=2, p99_ms=None,
            )
            for name in names
        ],
        cells=[Cell(step_ms=step_ms, bucket=place % 17, attempts=place) for place, step_ms in enumerate(steps)],
    )  # fmt: skip


@pytest.mark.parametrize("span", [DAY, week_period("2026-W44")])
def test_hostile_names_stay_text(span: ReportPeriod) -> None:
    text = document(report(HOSTILE, span))

    parsed = Page(text.encode().decode())
    harmless = Page(document(report(["a"] * len(HOSTILE), span)))
    assert parsed.tags == harmless.tags
    assert {name for name, _ in parsed.attributes} == {name for name, _ in harmless.attributes}
    assert not {"script", "img", "a", "iframe", "foreignobject"} & set(parsed.tags)
    assert not any(name.startswith("on") or name in ("href", "src") for name, _ in parsed.attributes)
    for name in HOSTILE[:4]:
        assert any(name.strip() in " ".join(told.split()) or name in told for told in parsed.texts)
    assert not any(ord(letter) < 32 and letter not in "\n\t" for letter in text)
    assert "http" not in text.replace("http-equiv", "")


def test_an_empty_report_says_why_in_each_chart() -> None:
    parsed = Page(document(report()))

    assert "svg" not in parsed.tags
    assert sum(told.startswith("There were no attempts") for told in parsed.texts) == parsed.tags.count("h2")


def test_a_page_escapes_what_is_not_html() -> None:
    text = page("<t>", [Section("<s>", table(["<c>"], [["<v>", 1234, True, Html("<b>bold</b>")]]), "<n>")], "<l>")

    assert [told for told in Page(text).texts if told.startswith("<")] == [
        "<t>",
        "<t>",
        "<l>",
        "<s>",
        "<n>",
        "<c>",
        "<v>",
    ]
    assert '<td class="number">1,234</td>' in text
    assert "<td>True</td>" in text
    assert "<b>bold</b>" in text
    assert "Content-Security-Policy" in text


def test_an_attribute_cannot_be_left() -> None:
    assert element("i", title='"><b>', stroke_width=2) == '<i title="&quot;&gt;&lt;b&gt;" stroke-width="2"></i>'


def test_bars_are_in_proportion_and_long_names_are_cut() -> None:
    drawn = bars([Bar("long " * 400, 50, "50", 25), Bar("short", 100, "100"), Bar(" ", 0, "0")], "t", "none")

    widths = [value for name, value in Page(drawn).attributes if name == "width"]
    of_rows = ["100%", "100%", "50.00%", "25.00%", "100%", "100%", "100.00%", "100%", "100%", "0.00%"]
    assert widths == of_rows
    assert len(drawn) < 2000
    assert "(empty)" in drawn


def test_lines_end_at_the_top_and_the_bottom() -> None:
    axis = TimeAxis(["x", "y"], ["x", ""])
    drawn = lines([ChartLine("a", [0, 40], "1")], axis, "t", "none")

    assert 'points="250.0,1000.0 750.0,0.0"' in drawn
    assert lines([ChartLine("a", [0, 0], "1")], axis, "t", "none") == '<p class="notice">none</p>'


@pytest.mark.parametrize(("largest", "step"), [(1, 1), (4, 1), (5, 2), (17, 5), (40, 10), (41, 20), (999_999, 500_000)])
def test_grid_lines_are_few_and_round(largest: int, step: int) -> None:
    assert tick_step(largest) == step


def test_a_week_is_its_seven_days() -> None:
    span = week_period("2026-W44")

    assert span.days == [f"2026-10-{day}" for day in range(26, 32)] + ["2026-11-01"]
    assert len(span.steps) == 56
    assert span.until_ms == DAY.until_ms
    assert span.name(span.steps[1]) == "Mon 26 03:00"
    assert [mark for step_ms in span.steps if (mark := span.mark(step_ms))][:2] == ["Mon", "Tue"]
    assert [mark for step_ms in DAY.steps if (mark := DAY.mark(step_ms))][:2] == ["00:00", "04:00"]


@pytest.mark.parametrize("text", ["2026-13-01", "yesterday", "2026-W01", "", "2026-11-01T00:00:00"])
def test_what_is_no_day_is_refused(text: str) -> None:
    with pytest.raises(InvalidPipelineOption, match="not a day"):
        day_period(text)


@pytest.mark.parametrize("text", ["2026-W00", "2026-W54", "2026-11-01", "W44"])
def test_what_is_no_week_is_refused(text: str) -> None:
    with pytest.raises(InvalidPipelineOption, match="not a week"):
        week_period(text)
