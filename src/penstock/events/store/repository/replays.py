"""Replays, and how far they are, on the database that has their jobs."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import islice
from types import TracebackType

import msgspec

from penstock.domain.event import StoredEvent
from penstock.domain.job import DispatchJob
from penstock.domain.job_state import JobStatus
from penstock.domain.limits import MINUTE_MS
from penstock.domain.replay import (
    REPLAYABLE,
    Copied,
    Replay,
    ReplayAttempt,
    ReplayProgress,
    ReplayRequest,
    copy_of,
    original_id,
)
from penstock.domain.subscription import Subscription
from penstock.edge.clock import Clock
from penstock.events.errors import ReplayNotFound, ReplayTakenOver
from penstock.events.store.database import Database, RepositoryPart, Row, Transaction, reads, writes
from penstock.events.store.repository.jobs import insert_new_jobs
from penstock.events.store.repository.lanes import move_and_wake
from penstock.events.store.repository.subscriptions import SubscriptionRecords
from penstock.events.store.statements import attempt_of, event_of, job_of

KEPT_MS = 90 * 24 * 60 * MINUTE_MS
"""How long a replay can be continued, and its attempts be looked at."""
AT_A_TIME = 1000
"""How many copies one transaction creates."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ReplayRequest).decode


class ReplayPart(msgspec.Struct, frozen=True):
    """One task's share of a replay, and the task that has it."""

    replay_id: str
    run: int
    number: int
    owner: str


class ReplayLoad(msgspec.Struct, frozen=True):
    """A job to deliver once more, with its event if it had one that is still kept."""

    job: DispatchJob
    event: StoredEvent | None
    deliveries: int
    """How many this replay has made of it."""


class Replays(RepositoryPart, AbstractAsyncContextManager["Replays"]):
    """Replays and their progress; open it with `async with`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database)
        self._clock = clock

    async def __aenter__(self) -> "Replays":
        await self._database.open(self._clock.now_ms())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._database.close()

    @writes
    def add(self, tx: Transaction, replay_id: str, order: ReplayRequest, total: int, requested_at_ms: int) -> Replay:
        """Keep a new replay, which is in its first run, and forget those of long ago."""
        for statement in ("forget_replay_attempts", "forget_replay_copies", "forget_replay_parts", "forget_replays"):
            tx.all(statement, before_ms=requested_at_ms - KEPT_MS)
        definition = _encode(order).decode()
        tx.all("add_replay", id=replay_id, definition=definition, total=total, requested_at_ms=requested_at_ms)
        return _replay_of(tx.first("replay", id=replay_id), replay_id)

    @reads
    def get(self, tx: Transaction, replay_id: str) -> Replay:
        """Return a replay; ReplayNotFound."""
        return _replay_of(tx.first("replay", id=replay_id), replay_id)

    @writes
    def go_on(self, tx: Transaction, replay_id: str) -> Replay:
        """Begin another run of a replay; an earlier one that still goes on can keep nothing more. ReplayNotFound."""
        replay = _replay_of(tx.first("go_on_with_replay", id=replay_id), replay_id)
        tx.all("disown_replay_parts", id=replay_id)
        return replay

    @writes
    def stop(self, tx: Transaction, replay_id: str) -> None:
        """Ask all tasks of a replay to stop."""
        tx.all("stop_replay", id=replay_id)

    async def end(self, replay: Replay) -> None:
        """Record that a run has been through all jobs."""
        now_ms = self._clock.now_ms()
        await self._database.write(lambda tx: tx.all("end_replay", id=replay.id, run=replay.run, now_ms=now_ms))

    @reads
    def progress(self, tx: Transaction, replay_id: str) -> ReplayProgress:
        """Return how far a replay is."""
        return ReplayProgress(*tx.all("replay_progress", id=replay_id)[0])

    @reads
    def attempts(self, tx: Transaction, replay_id: str) -> list[ReplayAttempt]:
        """Return the deliveries that a replay made directly, by job."""
        rows = tx.all("attempts_of_replay", replay_id=replay_id)
        return [ReplayAttempt(row[0], attempt_of(row[1:])) for row in rows]

    @writes
    def size(self, tx: Transaction, replay: Replay, total: int) -> None:
        """Record how many jobs a replay has, which was not known when it was added."""
        tx.all("size_replay", id=replay.id, run=replay.run, total=total)

    @reads
    def newest(self, tx: Transaction, most: int) -> list[Replay]:
        """Return the newest replays, the last one first."""
        return [_replay_of(row, "") for row in tx.all("newest_replays", most=most)]

    async def copy_all(self, replay_id: str, order: ReplayRequest, job_ids: Sequence[str]) -> Copied:
        """Do a whole replay through the queue in this process, with the jobs in order."""
        replay = await self.add(replay_id, order, len(job_ids), self._clock.now_ms())
        ids = iter(job_ids)
        return await self.copy_in_order(replay, lambda most: list(islice(ids, most)))

    async def copy_in_order(self, replay: Replay, next_ids: Callable[[int], list[str]]) -> Copied:
        """Copy the jobs that `next_ids` returns, up to a number, in order, as one part of a replay."""
        part = ReplayPart(replay.id, replay.run, number=0, owner=f"{replay.run}:api")
        done = Copied(goes_on=await self.own(part))
        while done.goes_on and (job_ids := await asyncio.to_thread(next_ids, AT_A_TIME)):
            made = await self.make_copies(part, [(job_id, None) for job_id in job_ids])
            done = Copied(done.copies + made.copies, done.in_error + made.in_error, made.goes_on)
        if done.goes_on:
            await self.end(replay)
        return done

    # What tasks do with their part

    @writes
    def own(self, tx: Transaction, part: ReplayPart) -> bool:
        """Take a part; False if the replay is to stop. ReplayTakenOver when a later run has begun."""
        row = tx.first("running_replay", id=part.replay_id, run=part.run)
        if row is None:
            raise ReplayTakenOver(part.replay_id)
        tx.all("own_replay_part", replay_id=part.replay_id, part=part.number, owner=part.owner)
        return not row[0]

    @reads
    def loads(self, tx: Transaction, replay_id: str, job_ids: Sequence[str]) -> list[ReplayLoad]:
        """Return jobs with their events, in the order asked for, without those that this replay has delivered."""
        # By the original, as copies are: whichever copy of it a later run selects, it is the same webhook.
        originals = [original_id(job_id) for job_id in job_ids]
        rows = tx.all("replayed_jobs", replay_id=replay_id, ids=originals)
        deliveries = {job_id: number for job_id, number, _ in rows}
        delivered = {job_id for job_id, _, is_delivered in rows if is_delivered}
        jobs = _jobs(tx, [job_id for job_id in job_ids if original_id(job_id) not in delivered])
        wanted = sorted({job.event_id for job in jobs if job.event_id is not None})
        events = {event.id: event for event in map(event_of, tx.all("events_to_replay", ids=wanted))}
        return [ReplayLoad(job, events.get(job.event_id or ""), deliveries.get(original_id(job.id), 0)) for job in jobs]

    async def subscriptions(self) -> dict[str, Subscription]:
        """Return all subscriptions as they are now, by id."""
        found = await SubscriptionRecords(self._database).list_subscriptions()
        return {subscription.id: subscription for subscription in found}

    @writes
    def record(self, tx: Transaction, part: ReplayPart, attempts: Sequence[ReplayAttempt], by: ReplayProgress) -> bool:
        """Keep deliveries, and how far the part is with them; False if the replay is to stop.

        ReplayTakenOver, and nothing kept, when another task has the part.
        """
        goes_on = _advance(tx, part, by)
        tx.bulk("add_replay_attempts", [_attempt_row(part.replay_id, made) for made in attempts])
        return goes_on

    async def make_copies(self, part: ReplayPart, due_ms: Sequence[tuple[str, int | None]]) -> Copied:
        """Create the copies of jobs, given with when each is due; skip what this replay has copied before.

        A job in ERROR gives its place to its copy: it is CANCELLED.
        """
        return await self._make_copies(part, due_ms, self._clock.now_ms())

    @writes
    def _make_copies(
        self, tx: Transaction, part: ReplayPart, due_ms: Sequence[tuple[str, int | None]], now_ms: int
    ) -> Copied:
        due = _not_copied(tx, part.replay_id, dict(due_ms))
        whole = _deliverable(tx, _jobs(tx, list(due)))
        new_ids = tx.all("keep_copies", replay_id=part.replay_id, ids=[original_id(job.id) for job in whole])
        fresh = {job_id for (job_id,) in new_ids}
        new = [job for job in whole if original_id(job.id) in fresh]
        tx.lock_lanes({job.group_key for job in new})
        in_error = [(job.id, job.group_key) for job in new if job.status is JobStatus.ERROR]
        move_and_wake(tx, "ignore_jobs", in_error, now_ms=now_ms)
        insert_new_jobs(tx, [copy_of(job, part.replay_id, due[job.id]) for job in new], now_ms)
        goes_on = _advance(tx, part, ReplayProgress(len(new), len(due) - len(whole)))
        return Copied(len(new), len(in_error), goes_on)


def _advance(tx: Transaction, part: ReplayPart, by: ReplayProgress) -> bool:
    """Move a part on; return whether to go on. ReplayTakenOver when another task has the part."""
    row = tx.first(
        "advance_replay_part",
        replay_id=part.replay_id,
        part=part.number,
        owner=part.owner,
        **msgspec.structs.asdict(by),
    )
    if row is None:
        raise ReplayTakenOver(part.replay_id)
    return not row[0]


def _not_copied(tx: Transaction, replay_id: str, due_ms: dict[str, int | None]) -> dict[str, int | None]:
    ids = [original_id(job_id) for job_id in due_ms]
    copied = {job_id for (job_id,) in tx.all("copied_jobs", replay_id=replay_id, ids=ids)}
    return {job_id: at_ms for job_id, at_ms in due_ms.items() if original_id(job_id) not in copied}


def _deliverable(tx: Transaction, jobs: Sequence[DispatchJob]) -> list[DispatchJob]:
    """Return the jobs that are still finished, and whose event and subscription still exist."""
    events = sorted({job.event_id for job in jobs if job.event_id is not None})
    subscriptions = sorted({job.subscription_id for job in jobs if job.subscription_id is not None})
    kept = {None, *(event_id for (event_id,) in tx.all("kept_events", ids=events))}
    known = {None, *(name for (name,) in tx.all("kept_subscriptions", ids=subscriptions))}
    return [job for job in jobs if job.status in REPLAYABLE and job.event_id in kept and job.subscription_id in known]


def _jobs(tx: Transaction, ids: list[str]) -> list[DispatchJob]:
    found = {job.id: job for job in map(job_of, tx.all("jobs_to_replay", ids=ids))}
    return [found[job_id] for job_id in ids if job_id in found]


def _replay_of(row: Row | None, asked_id: str) -> Replay:
    if row is None:
        raise ReplayNotFound(asked_id)
    replay_id, definition, total, requested_at_ms, run, stop_asked, finished_at_ms = row
    return Replay(
        id=replay_id,
        request=_decode(definition),
        total=total,
        requested_at_ms=requested_at_ms,
        run=run,
        stop_asked=bool(stop_asked),
        finished_at_ms=finished_at_ms,
    )


def _attempt_row(replay_id: str, made: ReplayAttempt) -> Row:
    attempt = made.attempt
    return (
        replay_id,
        original_id(made.job_id),
        attempt.number,
        str(attempt.outcome),
        attempt.at_ms,
        attempt.duration_ms,
        attempt.status_code,
        attempt.response,
        attempt.error,
    )
