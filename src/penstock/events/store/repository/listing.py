"""Looking up jobs: one, its attempts, pages of many.

A key, such as `order-17`, finds jobs of all subscriptions: each has a lane of its own for a key. No index has the keys
alone, as every index is written with every move of a job. So each subscription is asked for the newest job of its lane,
and then only those lanes are read that the page may have jobs of.
"""

from heapq import merge
from itertools import islice

import msgspec

from penstock.domain.errors import InvalidArgument
from penstock.domain.ids import check_job_id, first_id_of
from penstock.domain.job import Attempt, AttemptPlace, DispatchJob
from penstock.domain.job_state import JobStatus
from penstock.domain.limits import SECOND_MS
from penstock.events.errors import JobNotFound
from penstock.events.payload_search import PayloadField
from penstock.events.store.database import RepositoryPart, Transaction, reads
from penstock.events.store.statements import attempt_of, codes_of, counts_of, job_of
from penstock.http.errors import BadCursor

MOST_SEARCHED = 5000
"""Jobs whose payloads one request looks at."""

_SEARCHED_AT_ONCE = 500
_LONGEST_FAN_OUT_MS = 7 * 24 * 60 * 60 * SECOND_MS


class JobFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which jobs to list; a field that is not given does not restrict them."""

    status: JobStatus | None = None
    subscription_id: str | None = None
    group_key: str | None = None
    key: str | None = None
    """In the lane of every subscription."""
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


class JobListing(RepositoryPart):
    """Jobs, their attempts and their numbers."""

    @reads
    def get_job(self, tx: Transaction, job_id: str) -> DispatchJob:
        """Return a job, archived or not; JobNotFound."""
        row = tx.first("job", id=job_id) or tx.first("archived_job", id=job_id)
        if row is None:
            raise JobNotFound(job_id)
        return job_of(row)

    @reads
    def list_jobs(self, tx: Transaction, which: JobFilter, cursor: str | None, most: int) -> JobPage:
        """Return a page of jobs, the newest first; InvalidArgument for a key in the archive."""
        return _page(tx, which, cursor, most)

    @reads
    def search_jobs(
        self, tx: Transaction, which: JobFilter, field: PayloadField, cursor: str | None, most: int
    ) -> JobPage:
        """Return a page of jobs whose payload has a value in a field, the newest first.

        No index has the payloads: one page looks at up to MOST_SEARCHED jobs, and its cursor asks for earlier ones
        even if it has found none.
        """
        found: list[DispatchJob] = []
        for _ in range(MOST_SEARCHED // _SEARCHED_AT_ONCE):
            page = _page(tx, which, cursor, _SEARCHED_AT_ONCE)
            payloads = _payloads(tx, [job.id for job in page.jobs], archived=which.archived)
            for job in page.jobs:
                if field.matches(payloads.get(job.id) or b""):
                    found.append(job)
                    if len(found) == most:
                        return JobPage(found, None if page.cursor is None and job is page.jobs[-1] else job.id)
            cursor = page.cursor
            if cursor is None:
                break
        return JobPage(found, cursor)

    @reads
    def attempts_of(self, tx: Transaction, job_id: str, after: AttemptPlace, most: int) -> list[Attempt]:
        """Return the deliveries of a job after a place, the first one first."""
        after_number, after_ms = after
        rows = tx.all("attempts_of_job", id=job_id, after_number=after_number, after_ms=after_ms, most=most)
        return [attempt_of(row) for row in rows]

    @reads
    def counts(self, tx: Transaction) -> dict[JobStatus, int]:
        """Return how many jobs have each status, without archived ones. It reads all of them: do not ask often."""
        return counts_of(tx.all("counts_by_state"))


def _page(tx: Transaction, which: JobFilter, cursor: str | None, most: int) -> JobPage:
    conditions, values = _conditions(which, cursor)
    if which.key is None:
        jobs = _newest(tx, conditions, values, most + 1, archived=which.archived)
    elif which.archived:
        raise InvalidArgument("a key is only searched among jobs that are not archived: give the whole group key")
    else:
        jobs = _jobs_of_key(tx, which.key, conditions, values, most + 1)
    return JobPage(jobs[:most], jobs[most - 1].id if len(jobs) > most else None)


def _payloads(tx: Transaction, ids: list[str], *, archived: bool) -> dict[str, bytes | None]:
    """Return the payloads of jobs, their own or their events'."""
    return dict(tx.all("payloads_of_archived_jobs" if archived else "payloads_of_jobs", ids=ids))


def _newest(
    tx: Transaction, conditions: list[str], values: dict[str, object], most: int, *, archived: bool
) -> list[DispatchJob]:
    table = "archived_jobs" if archived else "jobs"
    where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    text = f"SELECT {{listed columns}} FROM {table} {where}ORDER BY id DESC LIMIT :most"
    return [job_of(row) for row in tx.select(text, {**values, "most": most})]


def _jobs_of_key(
    tx: Transaction, key: str, conditions: list[str], values: dict[str, object], most: int
) -> list[DispatchJob]:
    """Return the newest jobs of a key that meet the conditions, the newest first."""
    found: list[DispatchJob] = []
    for newest_id, group_key in _lanes(tx, key, conditions, values)[:most]:
        if len(found) == most and found[-1].id > newest_id:
            # Nothing of this lane comes before what was found, nor of those after it.
            break
        of_lane = _jobs_of_lane(tx, group_key, conditions, values, most)
        found = list(islice(merge(found, of_lane, key=lambda job: job.id, reverse=True), most))
    return found


def _lanes(tx: Transaction, key: str, conditions: list[str], values: dict[str, object]) -> list[tuple[str, str]]:
    """Return the newest matching job of each lane that has one, the newest first, and the lane's group key."""
    matching = " AND ".join(["group_key = lane.group_key", *conditions])
    text = (
        f"SELECT (SELECT id FROM jobs WHERE {matching} ORDER BY id DESC LIMIT 1), lane.group_key "
        "FROM (SELECT id || :end_of_key AS group_key FROM subscriptions) AS lane"
    )
    rows = tx.select(text, {**values, "end_of_key": f":{key}"})
    return sorted(((newest_id, group_key) for newest_id, group_key in rows if newest_id is not None), reverse=True)


def _jobs_of_lane(
    tx: Transaction, group_key: str, conditions: list[str], values: dict[str, object], most: int
) -> list[DispatchJob]:
    matching = " AND ".join(["group_key = :lane", *conditions])
    text = f"SELECT {{listed columns}} FROM jobs WHERE {matching} ORDER BY id DESC LIMIT :most"
    return [job_of(row) for row in tx.select(text, {**values, "lane": group_key, "most": most})]


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
    times, time_values = _created_between(which)
    conditions += times
    values |= time_values
    if which.status is not None:
        # A lane is read by its group: no index of states or times must look like the way there, lane after lane.
        state = "{stored state}" if which.key is None else "state"
        conditions.append(f"{state} IN ({', '.join(map(str, codes_of(which.status)))})")
    if cursor is not None:
        conditions.append("id < :cursor")
        values["cursor"] = _checked(cursor)
    return conditions, values


def _created_between(which: JobFilter) -> tuple[list[str], dict[str, object]]:
    conditions: list[str] = []
    values: dict[str, object] = {}
    if which.created_from_ms is not None:
        conditions.append("created_at_ms >= :created_from_ms")
        values["created_from_ms"] = which.created_from_ms
    if which.created_to_ms is not None:
        conditions.append("created_at_ms < :created_to_ms")
        values["created_to_ms"] = which.created_to_ms
    if which.key is not None:
        return conditions, values
    # Ids are in the order of time, which is what there is an index of; a job may be created long after its event.
    if which.created_from_ms is not None:
        conditions.append("id >= :first_id")
        values["first_id"] = first_id_of(which.created_from_ms - _LONGEST_FAN_OUT_MS)
    if which.created_to_ms is not None:
        conditions.append("id < :last_id")
        values["last_id"] = first_id_of(which.created_to_ms + SECOND_MS)
    return conditions, values


def _checked(cursor: str) -> str:
    try:
        check_job_id(cursor)
    except ValueError:
        raise BadCursor(cursor) from None
    return cursor
