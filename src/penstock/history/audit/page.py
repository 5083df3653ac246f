"""An audit as lines of a table, and as an HTML page."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import quote

from penstock.domain.job_state import JobStatus
from penstock.domain.outcome import AttemptOutcome
from penstock.history.audit.findings import WAITING_EVENTS, AuditResult, Finding, FindingKind
from penstock.history.audit.lateness import LATENESS_COLUMNS, lateness_cells
from penstock.history.audit.screen import UNRECORDED
from penstock.history.page import Section, element, figures, page, table

GUARANTEES: Mapping[FindingKind, str] = {
    FindingKind.LOST: "every subscription that wanted an event has a job for it",
    FindingKind.UNDELIVERED: "every completed job has a delivery on record",
    FindingKind.OVERTAKEN: "deliveries of a key begin in order",
    FindingKind.OVERLAP: "one delivery of a key at a time",
    FindingKind.DUPLICATE: "a delivered job is not delivered again",
    FindingKind.UNKNOWN_JOB: "every attempt has a job",
    FindingKind.DAMAGED: "every row has possible values",
}

FINDING_COLUMNS = ("kind", "at", "group", "job", "conflicts with", "what")
_LARGEST_MS = 253_402_300_799_999


def summary(result: AuditResult) -> list[tuple[str, str, int]]:
    """Return the name, the text and the number of findings of each guarantee."""
    return [(kind.value, says, result.totals.get(kind, 0)) for kind, says in GUARANTEES.items()]


def looked_at(result: AuditResult) -> list[tuple[str, int]]:
    """Return what the audit has read."""
    counts = result.counts
    statuses = [(f"jobs {status.value}", counts.get(status.value, 0)) for status in JobStatus]
    outcomes = [(f"attempts {outcome.value}", counts.get(outcome.value, 0)) for outcome in AttemptOutcome]
    others = [
        ("events that wait for their jobs", counts.get(WAITING_EVENTS, 0)),
        ("deliveries begun but not recorded", counts.get(UNRECORDED, 0)),
    ]
    return [
        ("jobs", sum(number for _, number in statuses)),
        *[each for each in statuses if each[1]],
        ("attempts", sum(number for _, number in outcomes)),
        *[each for each in outcomes if each[1]],
        *others,
    ]


def finding_cells(finding: Finding) -> tuple[str, str, str, str, str, str]:
    """Return a finding under FINDING_COLUMNS."""
    return (
        finding.kind.value,
        moment(finding.at_ms),
        finding.group_key or finding.subscription_id or "",
        _attempt(finding.job_id or finding.event_id, finding.number),
        _attempt(finding.other_job_id, finding.other_number),
        finding.detail,
    )


def address(console: str, finding: Finding) -> str | None:
    """Return where the web page at `console` shows what a finding is about; None if it knows nothing of it."""
    if finding.kind is FindingKind.UNKNOWN_JOB:
        return None
    if finding.job_id is not None:
        return _job_address(console, finding.job_id)
    if finding.event_id is not None:
        return f"{console.rstrip('/')}/#/jobs?q={quote(finding.event_id, safe='')}"
    return None


def _job_address(console: str, job_id: str) -> str:
    return f"{console.rstrip('/')}/#/jobs/{quote(job_id, safe='')}"


def moment(epoch_ms: int | None) -> str:
    """Return a time for people, in UTC; a number that is not a time is returned as it is."""
    if epoch_ms is None:
        return ""
    if not 0 <= epoch_ms <= _LARGEST_MS:
        return str(epoch_ms)
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def verdict(result: AuditResult) -> str:
    """Return the audit in one sentence."""
    window = result.window
    since = moment(window.since_ms) if window.since_ms > 0 else "the beginning"
    total = sum(result.totals.values())
    found = "nothing was broken" if result.is_clean else f"{total:,} findings"
    return f"From {since} until {moment(window.until_ms)}: {found}."


def html_page(result: AuditResult, console: str) -> str:
    """Return the audit as a self-contained page, whose findings link to the web page at `console`."""
    title = "Penstock audit: clean" if result.is_clean else "Penstock audit: findings"
    sections = [
        Section("Guarantees", table(("check", "guarantee", "findings"), summary(result)), wide=True),
        Section("How late", table(LATENESS_COLUMNS, lateness_cells(result.lateness), "Nothing was due."), wide=True),
        Section("Looked at", figures(looked_at(result)), wide=True),
        Section(
            "Findings",
            table(FINDING_COLUMNS, [_linked(console, each) for each in result.findings], "There are none."),
            note=_note(result.findings, sum(result.totals.values())),
            wide=True,
        ),
    ]
    return page(title, sections, lead=verdict(result))


def _linked(console: str, finding: Finding) -> list[object]:
    *cells, job, other, detail = finding_cells(finding)
    other_address = None if finding.other_job_id is None else _job_address(console, finding.other_job_id)
    return [*cells, _link(job, address(console, finding)), _link(other, other_address), detail]


def _link(text: str, to: str | None) -> object:
    return text if to is None else element("a", text, href=to)


def _note(shown: Sequence[Finding], total: int) -> str:
    return f"The first {len(shown):,} of {total:,}." if len(shown) < total else ""


def _attempt(name: str | None, number: int | None) -> str:
    if name is None:
        return ""
    return name if number is None else f"{name} (attempt {number})"
