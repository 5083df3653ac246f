"""Creating jobs, keeping events with the jobs they cause, and what people decide about jobs."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from penstock.domain.event import StoredEvent
from penstock.domain.job import CreatedJob, NewJob
from penstock.domain.order import LaneKey, lane_of, tiered_sequence
from penstock.events.errors import EventNotFound, JobNotFound, WrongJobStatus
from penstock.events.store.database import RepositoryPart, Row, Transaction, adds, reads, writes
from penstock.events.store.repository.lanes import LaneOrigin, call_lanes, move_and_wake
from penstock.events.store.repository.numbering import key_numbers
from penstock.events.store.statements import CODE_OF_MODE, STATUS_OF, StoredState, event_of

_encode = msgspec.json.Encoder(order="deterministic").encode
_CANCELLABLE = (StoredState.WAITING, StoredState.READY, StoredState.QUEUED)


class EventRecords(RepositoryPart):
    """Events, and the jobs they cause."""

    @adds
    def publish(self, tx: Transaction, events: Sequence[StoredEvent], jobs: Sequence[NewJob], now_ms: int) -> list[str]:
        """Keep events with the jobs they cause; return the id of each event.

        Of an event that is known already, return the id it has; its jobs are not created again.
        """
        ids = insert_events(tx, events, fanned_out=True)
        new = {event.id for event, kept_id in zip(events, ids, strict=True) if event.id == kept_id}
        _insert_jobs(tx, [job for job in jobs if job.event_id in new], now_ms)
        return ids

    @adds
    def add_events(self, tx: Transaction, events: Sequence[StoredEvent]) -> list[str]:
        """Keep events whose jobs `fan_out` creates later; return the id of each, as `publish` does."""
        return insert_events(tx, events, fanned_out=False)

    @reads
    def count_events_to_fan_out(self, tx: Transaction, most: int) -> int:
        """Return how many events wait for their jobs, counted up to `most`."""
        return int(tx.all("count_events_to_fan_out", most=most)[0][0])

    @writes
    def fan_out(self, tx: Transaction, event_ids: Sequence[str], jobs: Sequence[NewJob], now_ms: int) -> list[str]:
        """Create the jobs of those events that still wait for theirs; return the ids of these events.

        All jobs of an event are created in one call: to do it twice creates none twice.
        """
        # First, so that of two who do the same work at the same time the second waits, and then finds it done: even if
        # jobs of the first are in the archive by now, where no index would show them.
        waiting = {event_id for (event_id,) in tx.all("fan_out_events", ids=list(event_ids))}
        _insert_jobs(tx, [job for job in jobs if job.event_id in waiting], now_ms, in_bulk=True)
        return [event_id for event_id in event_ids if event_id in waiting]

    @reads
    def data_of_events(self, tx: Transaction, event_ids: Sequence[str]) -> dict[str, bytes]:
        """Return the data of events by their ids."""
        return {event_id: bytes(data) for event_id, data in tx.all("data_of_events", ids=list(event_ids))}

    @reads
    def get_event(self, tx: Transaction, event_id: str) -> StoredEvent:
        """Return an event; EventNotFound."""
        row = tx.first("event", id=event_id)
        if row is None:
            raise EventNotFound(event_id)
        return event_of(row)


class JobRecords(RepositoryPart):
    """Jobs: created, and cancelled, retried or ignored by people.

    A decision about some jobs applies to all of them or, with JobNotFound or WrongJobStatus, to none.
    """

    @adds
    def create_jobs(self, tx: Transaction, jobs: Sequence[NewJob], now_ms: int) -> list[CreatedJob]:
        """Create jobs; for a known idempotency key of a tenant return the job that has it."""
        return insert_new_jobs(tx, jobs, now_ms)

    @writes
    def cancel(self, tx: Transaction, job_ids: Sequence[str], now_ms: int) -> None:
        """Give up PENDING and QUEUED jobs."""
        _all_or_none(tx, job_ids, _cancel(tx, tx.all("groups_of_jobs", ids=list(job_ids)), now_ms), "cancelled")

    @writes
    def retry(self, tx: Transaction, job_ids: Sequence[str], now_ms: int) -> None:
        """Retry jobs in ERROR."""
        jobs = tx.all("groups_of_jobs", ids=list(job_ids))
        _all_or_none(tx, job_ids, [job.id for job in move_and_wake(tx, "retry_jobs", jobs, now_ms=now_ms)], "retried")

    @writes
    def ignore(self, tx: Transaction, job_ids: Sequence[str], now_ms: int) -> None:
        """Give up jobs in ERROR, so that their groups move on."""
        jobs = tx.all("groups_of_jobs", ids=list(job_ids))
        _all_or_none(tx, job_ids, [job.id for job in move_and_wake(tx, "ignore_jobs", jobs, now_ms=now_ms)], "ignored")

    @writes
    def retry_group(self, tx: Transaction, group_key: str, now_ms: int, most: int) -> list[str]:
        """Retry up to `most` jobs of a group that are in ERROR, in order; return their ids."""
        errors = tx.all("errors_of_group", group_key=group_key, most=most)
        moved = {job.id for job in move_and_wake(tx, "retry_jobs", errors, now_ms=now_ms)}
        return [job_id for job_id, _ in errors if job_id in moved]

    @writes
    def cancel_of_subscription(self, tx: Transaction, subscription_id: str, now_ms: int, most: int) -> int:
        """Give up PENDING and QUEUED jobs of a subscription, `most` at a time; return how many."""
        jobs = tx.all("unfinished_of_subscription", subscription_id=subscription_id, most=most)
        return len(_cancel(tx, jobs, now_ms))


def insert_new_jobs(tx: Transaction, jobs: Sequence[NewJob], now_ms: int) -> list[CreatedJob]:
    """Keep jobs; of one whose idempotency key is known, return the job that has it."""
    _insert_jobs(tx, jobs, now_ms)
    known = _ids_by_key(tx, jobs)
    ids = [known.get((job.tenant, job.idempotency_key), job.id) for job in jobs]
    return [CreatedJob(job_id, job_id == job.id) for job_id, job in zip(ids, jobs, strict=True)]


def insert_events(tx: Transaction, events: Sequence[StoredEvent], *, fanned_out: bool) -> list[str]:
    """Keep events; return the id of each, or of the same event published before."""
    if tx.bulk("insert_events", [_event_row(event, fanned_out) for event in events]) == len(events):
        return [event.id for event in events]
    kept = _ids_of_known(tx, events)
    return [kept[event.tenant, event.source, event.cloud_id] for event in events]


def _insert_jobs(tx: Transaction, jobs: Sequence[NewJob], now_ms: int, *, in_bulk: bool = False) -> None:
    lanes: dict[LaneKey, LaneOrigin] = {}
    planned = False
    for job in jobs:
        if job.due_at_ms <= now_ms:
            lane = lane_of(job.group_key, job.mode)
            # Of several jobs of a lane the pool of the first counts.
            if lane not in lanes:
                lanes[lane] = LaneOrigin(job.subscription_id, job.pool)
        else:
            planned = True
    # Keys are locked before lanes, here as everywhere, so that no two transactions wait for each other.
    numbers = key_numbers(tx, jobs, now_ms)
    rows = [_job_row(job, now_ms, number) for job, number in zip(jobs, numbers, strict=True)]
    if in_bulk:
        # Before the lanes, which would be locked all the while. They are locked when the jobs become visible: whoever
        # finds one empty and drops it has done so before, or waits and then sees the jobs.
        tx.load_jobs(rows)
        call_lanes(tx, lanes)
    else:
        call_lanes(tx, lanes)
        tx.bulk("insert_jobs", rows)
    if planned:
        tx.announce()


def _ids_by_key(tx: Transaction, jobs: Iterable[NewJob]) -> dict[tuple[str, str | None], str]:
    keys: defaultdict[str, list[str]] = defaultdict(list)
    for job in jobs:
        if job.idempotency_key is not None:
            keys[job.tenant].append(job.idempotency_key)
    return {
        (of_tenant, key): job_id
        for tenant, wanted in keys.items()
        for job_id, of_tenant, key in tx.all("jobs_by_idempotency_key", tenant=tenant, keys=wanted)
    }


def _ids_of_known(tx: Transaction, events: Iterable[StoredEvent]) -> dict[tuple[str, str, str], str]:
    by_tenant: defaultdict[str, list[StoredEvent]] = defaultdict(list)
    for event in events:
        by_tenant[event.tenant].append(event)
    return {
        (tenant, source, external_id): event_id
        for tenant, of_tenant in by_tenant.items()
        for event_id, source, external_id in tx.all(
            "known_events",
            tenant=tenant,
            external_ids=[event.cloud_id for event in of_tenant],
            sources=sorted({event.source for event in of_tenant}),
        )
    }


def _job_row(job: NewJob, now_ms: int, key_sequence: int | None) -> Row:
    due_at_ms = job.due_at_ms
    state = StoredState.READY if due_at_ms <= now_ms else StoredState.WAITING
    return (
        job.id,
        job.tenant,
        job.type,
        job.event_id,
        job.subscription_id,
        job.group,
        job.group_key,
        tiered_sequence(job.sequence, high_priority=job.high_priority),
        CODE_OF_MODE[job.mode],
        int(state),
        job.target,
        job.pool,
        job.payload,
        job.content_type,
        _encode(dict(job.headers)).decode() if job.headers else "{}",
        job.idempotency_key,
        job.scheduled_for_ms,
        due_at_ms,
        job.expires_at_ms,
        job.created_at_ms,
        now_ms,
        key_sequence,
    )


def _event_row(event: StoredEvent, fanned_out: bool) -> Row:
    return (
        event.id,
        event.tenant,
        event.source,
        event.cloud_id,
        event.type,
        event.subject,
        event.time_ms,
        event.data,
        event.content_type,
        event.group,
        _encode(dict(event.attributes)).decode(),
        event.received_ms,
        int(fanned_out),
    )


def _cancel(tx: Transaction, jobs: Sequence[Row], now_ms: int) -> list[str]:
    # A job may pass from one state to the next meanwhile, but only until its lane is locked by the first of these.
    return [
        job.id
        for state in _CANCELLABLE
        for job in move_and_wake(tx, "cancel_jobs", jobs, state=int(state), now_ms=now_ms)
    ]


def _all_or_none(tx: Transaction, job_ids: Sequence[str], moved: Sequence[str], wanted: str) -> None:
    """Raise, which rolls everything back, unless all jobs have moved."""
    left = set(job_ids).difference(moved)
    if left:
        states: dict[str, int] = dict(tx.all("states_of_jobs", ids=sorted(left)))
        for job_id in sorted(left):
            if job_id not in states:
                raise JobNotFound(job_id)
            raise WrongJobStatus(job_id, STATUS_OF[states[job_id]], wanted)
