"""Looking up jobs: one, its attempts, pages of many."""

import msgspec

from penstock.core.ids import first_id_of
from penstock.core.job_state import JobStatus
from penstock.core.limits import SECOND_MS
from penstock.jobs.errors import JobNotFound
from penstock.jobs.fan_out import check_job_id
from penstock.jobs.model_attempt import Attempt, AttemptOutcome, AttemptPlace
from penstock.jobs.model_job import DispatchJob
from penstock.jobs.queries import JOB_COLUMNS
from penstock.jobs.rows import job_of
from penstock.jobs.stored_state import STATUS_OF, codes_of
from penstock.jobs.transaction import Transaction
from penstock.telemetry.errors import BadCursor

_LONGEST_FAN_OUT_MS = 7 * 24 * 60 * 60 * SECOND_MS

# A page shows what became of jobs, not what they carry.
_COLUMNS = ", ".join("NULL AS payload" if name == "payload" else name for name in JOB_COLUMNS)


class JobFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which jobs to list; what is not given does not matter."""

    status: JobStatus | None = None
    subscription_id: str | None = None
    group_key: str | None = None
    event_id: str | None = None
    tenant: str | None = None
    type: str | None = None
    created_from_ms: int | None = None
    created_to_ms: int | None = None
    archived: bool = False


class JobPage(msgspec.Struct, frozen=True):
    """Jobs, the newest first and without their payloads; the cursor asks for the next page, None after the last."""

    jobs: list[DispatchJob]
    cursor: str | None


def list_jobs(tx: Transaction, which: JobFilter, cursor: str | None, most: int) -> JobPage:
    """One page of jobs."""
    conditions, values = _conditions(which, cursor)
    table = "archived_jobs" if which.archived else "jobs"
    where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    text = f"SELECT {_COLUMNS} FROM {table} {where}ORDER BY id DESC LIMIT :most"
    jobs = [job_of(row) for row in tx.select(text, {**values, "most": most + 1})]
    return JobPage(jobs[:most], jobs[most - 1].id if len(jobs) > most else None)


def get_job(tx: Transaction, job_id: str) -> DispatchJob:
    """A job, archived or not; JobNotFound."""
    row = tx.first("job", id=job_id) or tx.first("archived_job", id=job_id)
    if row is None:
        raise JobNotFound(job_id)
    return job_of(row)


def attempts_of(tx: Transaction, job_id: str, after: AttemptPlace, most: int) -> list[Attempt]:
    """The deliveries of a job behind a place, the first one first."""
    after_number, after_ms = after
    rows = tx.all("attempts_of_job", id=job_id, after_number=after_number, after_ms=after_ms, most=most)
    return [
        Attempt(
            number=number,
            outcome=AttemptOutcome(outcome),
            at_ms=at_ms,
            duration_ms=duration_ms,
            status_code=status_code,
            response=response,
            error=error,
        )
        for number, outcome, at_ms, duration_ms, status_code, response, error in rows
    ]


def counts(tx: Transaction) -> dict[JobStatus, int]:
    """How many jobs have each status; archived ones are not counted."""
    found = dict.fromkeys(JobStatus, 0)
    for state, count in tx.all("counts_by_state"):
        found[STATUS_OF[state]] += count
    return found


def _conditions(which: JobFilter, cursor: str | None) -> tuple[list[str], dict[str, object]]:
    values: dict[str, object] = {
        name: value
        for name in ("subscription_id", "group_key", "event_id", "tenant", "type")
        if (value := getattr(which, name)) is not None
    }
    conditions = [f"{name} = :{name}" for name in values]
    if which.subscription_id is not None:
        # The key of each of its groups begins with its id: PostgreSQL has an index of those only.
        conditions.append("group_key >= :first_key AND group_key < :end_of_keys")
        values |= {"first_key": f"{which.subscription_id}:", "end_of_keys": f"{which.subscription_id};"}
    if which.created_from_ms is not None:
        # Ids are in the order of time, which is what there is an index of; a job may be made long after its event.
        conditions.append("created_at_ms >= :created_from_ms AND id >= :first_id")
        values["created_from_ms"] = which.created_from_ms
        values["first_id"] = first_id_of(which.created_from_ms - _LONGEST_FAN_OUT_MS)
    if which.created_to_ms is not None:
        conditions.append("created_at_ms < :created_to_ms AND id < :last_id")
        values |= {"created_to_ms": which.created_to_ms, "last_id": first_id_of(which.created_to_ms + SECOND_MS)}
    if which.status is not None:
        conditions.append(f"{{stored state}} IN ({', '.join(map(str, codes_of(which.status)))})")
    if cursor is not None:
        conditions.append("id < :cursor")
        values["cursor"] = _checked(cursor)
    return conditions, values


def _checked(cursor: str) -> str:
    try:
        check_job_id(cursor)
    except ValueError:
        raise BadCursor(cursor) from None
    return cursor
