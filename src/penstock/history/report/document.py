"""The report as one HTML file."""

from penstock.events.statistics import COARSE_BOUNDS_MS
from penstock.history.page import Html, Section, figures, notice, page, table
from penstock.history.report.charts import Bar, ChartLine, TimeAxis, bars, heat_map, lines
from penstock.history.report.figures import MOST, Figures, ReportTotals
from penstock.history.report.period import ReportPeriod

_BOUNDS = [f"{bound} ms" if bound < 1000 else f"{bound // 1000} s" for bound in COARSE_BOUNDS_MS]
_BUCKETS = (*(f"≤ {bound}" for bound in _BOUNDS), f"> {_BOUNDS[-1]}")
_NO_ATTEMPT = "There were no attempts in this period."


def document(report: Figures) -> str:
    """Return the whole page."""
    sections = [
        Section("Totals", _totals(report.totals), wide=True),
        Section(
            "Latency over time",
            _latency(report),
            "How long endpoints took to answer. A stronger colour means more attempts.",
            True,
        ),
        Section("Attempts over time", _attempts(report), "Every attempt of a job after its first is a retry.", True),
        Section(
            "Backlog over time",
            _backlog(report),
            "Jobs that were due and waited for their first attempt, at the end of each step. Those that waited beyond "
            "the end of the period are not in it.",
            True,
        ),
        Section(
            "Subscriptions and event types",
            _subscriptions(report),
            f"The {MOST} with the most attempts. Waiting is the time from when a job was due to its first attempt.",
            True,
        ),
        Section("Groups by volume", _groups(report), "Attempts of each group; failed ones are red."),
        Section(
            "Partition skew",
            _partitions(report),
            f"Attempts in each of {len(report.partitions)} partitions, by the hash of the groups.",
        ),
        Section("Why attempts failed", _reasons(report), "Deferred attempts are retried and do not count.", True),
        Section("Slowest endpoints", _endpoints(report), "By the 99th percentile of their latency.", True),
    ]
    return page(f"Deliveries of {report.span.title}", sections, f"From {report.source}.")


def _totals(totals: ReportTotals) -> Html:
    if not totals.attempts:
        return notice(_NO_ATTEMPT)
    tried = totals.delivered + totals.failed + totals.refused
    return figures(
        [
            ("attempts", f"{totals.attempts:,}"),
            ("delivered", f"{totals.delivered:,}"),
            ("success rate", f"{totals.delivered / tried:.2%}" if tried else "–"),
            ("failed", f"{totals.failed:,}"),
            ("refused", f"{totals.refused:,}"),
            ("deferred", f"{totals.deferred:,}"),
            ("jobs", f"{totals.jobs:,}"),
            ("groups", f"{totals.groups:,}"),
            ("latency p50", _duration(totals.p50_ms)),
            ("latency p99", _duration(totals.p99_ms)),
            ("wait p50", _duration(totals.wait_p50_ms)),
            ("wait p99", _duration(totals.wait_p99_ms)),
            ("wait, mean", _duration(totals.wait_mean_ms)),
            ("wait, longest", _duration(totals.wait_longest_ms)),
        ]
    )


def _latency(report: Figures) -> Html:
    places = {step_ms: place for place, step_ms in enumerate(report.span.steps)}
    counts = {(places[cell.step_ms], cell.bucket): cell.attempts for cell in report.cells if cell.step_ms in places}
    return heat_map(counts, _axis(report.span), _BUCKETS, "Latency over time", _NO_ATTEMPT)


def _attempts(report: Figures) -> Html:
    series = [
        ChartLine("first attempts", [step.first for step in report.steps], "1"),
        ChartLine("retries", [step.retries for step in report.steps], "2"),
        ChartLine("failed", [step.failed for step in report.steps], "bad"),
    ]
    return lines(series, _axis(report.span), "Attempts over time", _NO_ATTEMPT)


def _backlog(report: Figures) -> Html:
    series = [ChartLine("waiting", [step.waiting for step in report.steps], "1")]
    return lines(series, _axis(report.span), "Backlog over time", _NO_ATTEMPT)


def _subscriptions(report: Figures) -> Html:
    rows = [
        (
            found.subscription or "(none)",
            found.event_type or "(unknown)",
            found.attempts,
            found.failed,
            _duration(found.wait_p50_ms),
            _duration(found.wait_p99_ms),
            _duration(found.p99_ms),
        )
        for found in report.subscriptions
    ]
    columns = ("subscription", "event type", "attempts", "failed", "wait p50", "wait p99", "response p99")
    return table(columns, rows, _NO_ATTEMPT)


def _axis(span: ReportPeriod) -> TimeAxis:
    return TimeAxis([span.name(step_ms) for step_ms in span.steps], [span.mark(step_ms) for step_ms in span.steps])


def _groups(report: Figures) -> Html:
    drawn = [
        Bar(group.group_key, group.attempts, f"{group.attempts:,} · {_duration(group.busy_ms)} busy", group.failed)
        for group in report.groups
    ]
    return bars(drawn, "Groups by volume", _NO_ATTEMPT)


def _partitions(report: Figures) -> Html:
    even = sum(load.attempts for load in report.partitions) / max(len(report.partitions), 1)
    drawn = [
        Bar(
            f"partition {load.partition}",
            load.attempts,
            f"{load.attempts:,} · {load.groups:,} groups · {load.attempts / even:.2f} × even" if even else "0",
        )
        for load in report.partitions
    ]
    return bars(drawn, "Partition skew", _NO_ATTEMPT)


def _reasons(report: Figures) -> Html:
    drawn = [
        Bar(
            found.reason,
            found.attempts,
            f"{found.attempts:,} · {found.outcome.lower()} · {_endpoint_count(found.endpoints)}",
        )
        for found in report.reasons
    ]
    delivered = "There were no failures."
    return bars(drawn, "Why attempts failed", delivered if report.totals.attempts else _NO_ATTEMPT)


def _endpoints(report: Figures) -> Html:
    rows = [
        (found.endpoint, found.attempts, found.failed, found.p50_ms, found.p95_ms, found.p99_ms)
        for found in report.endpoints
    ]
    columns = ("endpoint", "attempts", "failed", "p50 ms", "p95 ms", "p99 ms")
    unsent = "Nothing was sent: all attempts ended before a request."
    return table(columns, rows, unsent if report.totals.attempts else _NO_ATTEMPT)


def _endpoint_count(count: int) -> str:
    return "1 endpoint" if count == 1 else f"{count:,} endpoints"


def _duration(value: float | None) -> str:
    if value is None:
        return "–"
    if value < 1000:
        return f"{value:.0f} ms"
    return f"{value / 1000:,.1f} s" if value < 120_000 else f"{value / 60_000:,.0f} min"
