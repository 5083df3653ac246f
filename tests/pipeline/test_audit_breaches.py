"""Every kind of breach is found, with the rows that show it; what is in order, or cannot be proven, is not."""

import re
from collections.abc import Sequence
from html.parser import HTMLParser

import pytest
from pyspark.sql import SparkSession

from penstock.history.audit.audit import audit_frame
from penstock.history.audit.findings import AuditResult, FindingKind, result_of
from penstock.history.audit.page import html_page
from penstock.history.audit.window import AuditWindow
from tests.pipeline.audit_frames import attempt_frame, job_frame, no_events
from tests.pipeline.audit_model import AttemptRow, JobRow

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

T0_MS = 1_790_000_000_000
WINDOW = AuditWindow(until_ms=T0_MS + 1_000_000, taken_ms=T0_MS + 1_000_000)
HOSTILE = "<img src=x onerror=alert(1)>\x00\u202e"


class _Story:
    """Jobs and attempts, told in seconds."""

    def __init__(self) -> None:
        self.jobs: list[JobRow] = []
        self.attempts: list[AttemptRow] = []

    def job(
        self,
        name: str,
        made_s: float,
        over_s: float | None = None,
        status: str = "COMPLETED",
        *,
        mode: str = "BLOCK_ON_ERROR",
        deliveries: int = 1,
        sequence: int = 99,
        scheduled_s: float | None = None,
        damaged: bool = False,
        group: str | None = None,
    ) -> None:
        self.jobs.append(
            JobRow(
                id=name,
                group_key=None if damaged else group or name.rstrip("0123456789"),
                created_at_ms=_ms(made_s),
                finished_at_ms=None if over_s is None else _ms(over_s),
                status=status,
                mode=mode,
                delivery_count=deliveries,
                sequence=sequence,
                scheduled_for_ms=None if scheduled_s is None else _ms(scheduled_s),
            )
        )

    def attempt(self, name: str, at_s: float, took_ms: int = 100, outcome: str = "DELIVERED", number: int = 1) -> None:
        self.attempts.append(
            AttemptRow(job_id=name, number=number, outcome=outcome, at_ms=_ms(at_s), duration_ms=took_ms)
        )

    def done(self, name: str, made_s: float, at_s: float, mode: str = "BLOCK_ON_ERROR") -> None:
        """A job that was delivered at the first attempt."""
        self.job(name, made_s, at_s + 0.1, mode=mode)
        self.attempt(name, at_s)


def _ms(second: float) -> int:
    return T0_MS + round(second * 1000)


def _told() -> _Story:
    story = _Story()
    # In order; then the second goes before the first.
    story.done("fine1", 0, 1)
    story.done("fine2", 0, 2)
    story.done("swapped1", 0, 2)
    story.done("swapped2", 0, 1)
    # The first is in ERROR, and the second goes: wrong, unless failures may be passed, or someone ignored it.
    for group, mode, status in (
        ("blocked", "BLOCK_ON_ERROR", "ERROR"),
        ("passing", "NEXT_ON_ERROR", "ERROR"),
        ("ignored", "BLOCK_ON_ERROR", "CANCELLED"),
    ):
        story.job(f"{group}1", 0, 2, status, mode=mode)
        story.attempt(f"{group}1", 1, outcome="REFUSED")
        story.done(f"{group}2", 0, 3, mode=mode)
    # Retried by a person an hour later: those behind have waited.
    story.job("retried1", 0, 90.1, deliveries=2)
    story.attempt("retried1", 1, outcome="REFUSED")
    story.attempt("retried1", 90, number=2)
    story.done("retried2", 0, 91)
    # An untried job is passed by one of its kind.
    story.job("untried1", 0, None, "PENDING", mode="NEXT_ON_ERROR", deliveries=0)
    story.done("untried2", 0, 1, mode="NEXT_ON_ERROR")
    # One made for later is not there yet, nor is one that was made after the delivery with a lower sequence.
    story.job("later1", 0, None, "PENDING", scheduled_s=5, deliveries=0)
    story.job("later2", 10, None, "PENDING", sequence=1, deliveries=0)
    story.done("later3", 0, 2)
    # A replay's copy of the first has its place, but came much later.
    story.done("replayed1", 0, 1)
    story.done("replayed2", 0, 2)
    story.job("replayed1~0", 0, 50.1, group="replayed")
    story.attempt("replayed1~0", 50)
    # Two at a time: wrong, unless they are IMMEDIATE.
    for group, mode in (("together", "NEXT_ON_ERROR"), ("immediate", "IMMEDIATE")):
        story.job(f"{group}1", 0, 5, mode=mode)
        story.attempt(f"{group}1", 1, took_ms=4000)
        story.done(f"{group}2", 0, 3, mode=mode)
    story.job("repeated1", 0, 1.1)
    story.attempt("repeated1", 1)
    story.attempt("repeated1", 7, number=2)
    story.job("nothing1", 0, 1.1)
    story.attempt("nothing1", 1, outcome="FAILED")
    story.attempt("nobody1", 1)
    story.job(HOSTILE, 0, 1.1, damaged=True)
    story.attempt(HOSTILE, 1)
    story.attempt("fine1", 3, took_ms=-1, outcome="FAILED", number=2)
    return story


@pytest.fixture(scope="module")
def audited(spark: SparkSession) -> AuditResult:
    story = _told()
    jobs, attempts = job_frame(spark, story.jobs), attempt_frame(spark, story.attempts)
    seen = audit_frame(*no_events(spark), jobs, attempts, WINDOW)
    return result_of(seen.findings, seen.counts, WINDOW, 20)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (
            FindingKind.OVERTAKEN,
            [("blocked2", 1, "blocked1"), ("swapped2", 1, "swapped1"), ("untried2", 1, "untried1")],
        ),
        (FindingKind.OVERLAP, [("together2", 1, "together1")]),
        (FindingKind.DUPLICATE, [("repeated1", 2, "repeated1")]),
        (FindingKind.UNDELIVERED, [("nothing1", None, None)]),
        (FindingKind.UNKNOWN_JOB, [("nobody1", 1, None)]),
        (FindingKind.DAMAGED, [(HOSTILE, None, None), ("fine1", 2, None)]),
        (FindingKind.LOST, []),
    ],
)
def test_each_breach_is_found(
    audited: AuditResult, kind: FindingKind, expected: Sequence[tuple[str, int | None, str | None]]
) -> None:
    found = [(each.job_id, each.number, each.other_job_id) for each in audited.findings if each.kind is kind]
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert audited.totals[kind] == len(expected)


def test_a_finding_has_the_times_that_show_it(audited: AuditResult) -> None:
    (overlap,) = [each for each in audited.findings if each.kind is FindingKind.OVERLAP]
    assert (overlap.at_ms, overlap.other_at_ms, overlap.other_end_ms) == (T0_MS + 3000, T0_MS + 1000, T0_MS + 5000)
    (blocked,) = [each for each in audited.findings if each.job_id == "blocked2"]
    assert (blocked.at_ms, blocked.other_at_ms, blocked.other_end_ms) == (T0_MS + 3000, T0_MS, None)
    assert "is ERROR now" in blocked.detail


class _Texts(HTMLParser):
    """The texts of a page and its elements, which must be closed as they were opened."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.elements: set[str] = set()
        self.links: set[str] = set()
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.links |= {value or "" for name, value in attrs if name == "href"}
        if tag != "meta":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_page_tells_findings_and_lets_no_name_be_markup(audited: AuditResult) -> None:
    page = _Texts()
    page.feed(html_page(audited, "https://penstock.example/"))
    assert "img" not in page.elements
    shown = " ".join(page.texts)
    assert "swapped2 (attempt 1)" in shown
    assert "<img src=x onerror=alert(1)>" in shown
    assert re.search(r"From the beginning until 2026-\S+: 9 findings\.", shown)
    assert "https://penstock.example/#/jobs/swapped2" in page.links
    assert all(link.startswith("https://penstock.example/#/jobs") for link in page.links)
