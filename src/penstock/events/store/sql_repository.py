"""The repository on a SQL database: each call is one piece of work, done by the modules named for what they do."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from penstock.cluster import LeaderLease
from penstock.domain.event import StoredEvent
from penstock.domain.job import Attempt, AttemptPlace, CreatedJob, DispatchJob, NewJob
from penstock.domain.job_state import JobStatus
from penstock.domain.subscription import Pool, Subscription
from penstock.edge.clock import Clock
from penstock.events.errors import EventNotFound
from penstock.events.store import archive, changes, deliveries, inspection, lanes, leader, listing, subscriptions
from penstock.events.store import inspection as oldest_waiting
from penstock.events.store import jobs as deciding
from penstock.events.store import jobs as making
from penstock.events.store.archive import Month
from penstock.events.store.changes import ChangePage, KeptChange
from penstock.events.store.deliveries import Begin, Beginning, Verdict
from penstock.events.store.inspection import FinishedJob, FinishedPlace, HeldGroup, LaneState, OldestWaiting
from penstock.events.store.lanes import Lanes
from penstock.events.store.listing import JobFilter, JobPage
from penstock.events.store.replays import Replays
from penstock.events.store.repository import JobRepository
from penstock.events.store.signal import JobSignal
from penstock.events.store.statements import event_of
from penstock.events.store.statistics import Statistics
from penstock.events.store.transaction import Transaction

Result = TypeVar("Result")
Work = Callable[[Transaction], Result]


class Database(Protocol):
    """A database that does work in transactions."""

    @property
    def signal(self) -> JobSignal:
        """Called when jobs may be claimed."""
        ...

    async def open(self, now_ms: int) -> None:
        """Connect, and bring the tables up to date."""

    async def close(self) -> None:
        """Hang up."""

    async def write(self, work: Work[Result]) -> Result:
        """Do work as a whole or not at all."""
        ...

    async def write_one(self, work: Work[Result]) -> Result:
        """Do work that is one statement."""
        ...

    async def read(self, work: Work[Result]) -> Result:
        """Do work that changes nothing."""
        ...

    def trouble(self) -> str | None:
        """What is known to keep it from taking changes, in a sentence; None if nothing is."""
        ...

    async def keep_months(self, now_ms: int) -> None:
        """Have room for what this month and the next bring to the archive."""

    async def drop_before(self, before_ms: int) -> None:
        """Drop from the archive what is from before the start of a month."""


class SqlRepository(JobRepository):
    """Jobs in SQLite or PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def signal(self) -> JobSignal:
        return self._database.signal

    @property
    def lanes(self) -> Lanes:
        return Lanes(self._database)

    @property
    def statistics(self) -> Statistics:
        return Statistics(self._database)

    def replays(self, clock: Clock) -> Replays:
        return Replays(self._database, clock)

    async def open(self, now_ms: int) -> None:
        await self._database.open(now_ms)

    async def close(self) -> None:
        await self._database.close()

    def trouble(self) -> str | None:
        return self._database.trouble()

    async def publish(self, events: Sequence[StoredEvent], jobs: Sequence[NewJob], now_ms: int) -> list[str]:
        return await self._write(making.publish, events, jobs, now_ms)

    async def add_events(self, events: Sequence[StoredEvent]) -> list[str]:
        return await self._database.write(lambda tx: making.add_events(tx, events, fanned_out=False))

    async def count_events_to_fan_out(self, most: int) -> int:
        ((count,),) = await self._database.read(lambda tx: tx.all("count_events_to_fan_out", most=most))
        return int(count)

    async def fan_out(self, event_ids: Sequence[str], jobs: Sequence[NewJob], now_ms: int) -> list[str]:
        return await self._write(making.fan_out, event_ids, jobs, now_ms)

    async def get_event(self, event_id: str) -> StoredEvent:
        row = await self._database.read(lambda tx: tx.first("event", id=event_id))
        if row is None:
            raise EventNotFound(event_id)
        return event_of(row)

    async def create_jobs(self, jobs: Sequence[NewJob], now_ms: int) -> list[CreatedJob]:
        return await self._write(making.create_jobs, jobs, now_ms)

    async def get_job(self, job_id: str) -> DispatchJob:
        return await self._read(listing.get_job, job_id)

    async def list_jobs(self, which: JobFilter, cursor: str | None, most: int) -> JobPage:
        return await self._read(listing.list_jobs, which, cursor, most)

    async def attempts_of(self, job_id: str, after: AttemptPlace, most: int) -> list[Attempt]:
        return await self._read(listing.attempts_of, job_id, after, most)

    async def counts(self) -> dict[JobStatus, int]:
        return await self._database.read(listing.counts)

    async def oldest_waiting(self, now_ms: int) -> OldestWaiting:
        return await self._read(oldest_waiting.oldest_waiting, now_ms)

    async def held_groups(self, after: str, most: int) -> list[HeldGroup]:
        return await self._read(inspection.held_groups, after, most)

    async def most_urgent_groups(self, most: int) -> list[HeldGroup]:
        return await self._read(inspection.most_urgent_groups, most)

    async def lane_of(self, group_key: str, most: int) -> LaneState:
        return await self._read(inspection.lane_of, group_key, most)

    async def finished_lately(self, since_ms: int, before: FinishedPlace, most: int) -> list[FinishedJob]:
        return await self._read(inspection.finished_lately, since_ms, before, most)

    async def cancel(self, job_ids: Sequence[str], now_ms: int) -> None:
        await self._write(deciding.cancel, job_ids, now_ms)

    async def retry(self, job_ids: Sequence[str], now_ms: int) -> None:
        await self._write(deciding.retry, job_ids, now_ms)

    async def retry_group(self, group_key: str, now_ms: int, most: int) -> list[str]:
        return await self._write(deciding.retry_group, group_key, now_ms, most)

    async def ignore(self, job_ids: Sequence[str], now_ms: int) -> None:
        await self._write(deciding.ignore, job_ids, now_ms)

    async def cancel_of_subscription(self, subscription_id: str, now_ms: int, most: int) -> int:
        return await self._write(deciding.cancel_of_subscription, subscription_id, now_ms, most)

    async def do_chores(self, now_ms: int) -> None:
        for chore in await self._read(lanes.chores_due, now_ms):
            while await self._database.write(chore) == lanes.AT_ONCE:
                continue

    async def recover_stale(self, now_ms: int, most: int, token: int | None = None) -> list[str]:
        return await self._write(lanes.recover_stale, now_ms, most, token)

    async def extend_leases(self, job_ids: Sequence[str], lease_until_ms: int) -> list[str]:
        rows = await self._database.write_one(
            lambda tx: tx.all("extend_leases", ids=list(job_ids), lease_until_ms=lease_until_ms)
        )
        return [job_id for (job_id,) in rows]

    async def expire_due(self, now_ms: int, most: int) -> int:
        return await self._write(lanes.expire_due, now_ms, most)

    async def next_due_ms(self) -> int | None:
        return await self._database.read(lanes.next_due_ms)

    async def begin(self, job_id: str, owner: str, now_ms: int, lease_until_ms: int) -> Begin:
        wanted = (job_id, owner, now_ms, lease_until_ms)
        job = await self._database.write_one(lambda tx: deliveries.begin_quickly(tx, *wanted))
        return (
            Begin(Beginning.BEGUN, job) if job is not None else await self._write(deliveries.begin_or_explain, *wanted)
        )

    async def finish(self, job_id: str, attempt: Attempt, verdict: Verdict, now_ms: int) -> bool:
        return await self._database.write_one(lambda tx: deliveries.finish(tx, job_id, attempt, verdict, now_ms))

    async def add_subscription(self, subscription: Subscription) -> None:
        await self._write(subscriptions.add_subscription, subscription)

    async def change_subscription(self, subscription: Subscription) -> None:
        await self._write(subscriptions.change_subscription, subscription)

    async def pause_subscription(self, subscription_id: str) -> None:
        await self._write(subscriptions.set_paused, subscription_id, True)

    async def resume_subscription(self, subscription_id: str) -> None:
        await self._write(subscriptions.set_paused, subscription_id, False)

    async def delete_subscription(self, subscription_id: str) -> None:
        await self._write(subscriptions.delete_subscription, subscription_id)

    async def get_subscription(self, subscription_id: str) -> Subscription:
        return await self._read(subscriptions.get_subscription, subscription_id)

    async def list_subscriptions(self) -> list[Subscription]:
        return await self._database.read(subscriptions.list_subscriptions)

    async def put_pool(self, pool: Pool) -> None:
        await self._write(subscriptions.put_pool, pool)

    async def get_pool(self, code: str) -> Pool:
        return await self._read(subscriptions.get_pool, code)

    async def list_pools(self) -> list[Pool]:
        return await self._database.read(subscriptions.list_pools)

    async def delete_pool(self, code: str) -> None:
        await self._write(subscriptions.delete_pool, code)

    async def acquire_lease(self, name: str, holder: str, now_ms: int, ttl_ms: int) -> LeaderLease | None:
        return await self._write(leader.acquire, name, holder, now_ms, ttl_ms)

    async def renew_lease(self, lease: LeaderLease, now_ms: int, ttl_ms: int) -> LeaderLease | None:
        return await self._write(leader.renew, lease, now_ms, ttl_ms)

    async def release_lease(self, lease: LeaderLease, now_ms: int) -> bool:
        return await self._write(leader.give_up, lease, now_ms)

    async def keep_change(self, change: KeptChange) -> None:
        await self._write(changes.keep_change, change)

    async def list_changes(self, cursor: str | None, most: int) -> ChangePage:
        return await self._read(changes.list_changes, cursor, most)

    async def archive_finished(self, before_ms: int, now_ms: int, most: int) -> int:
        await self._database.keep_months(now_ms)
        return await self._write(archive.archive_finished, before_ms, most)

    async def purge_archive(self, before_ms: int) -> None:
        await self._database.drop_before(Month.of(before_ms).start_ms)

    async def forget_events(self, before_ms: int, most: int) -> int:
        return await self._write(archive.forget_events, before_ms, most)

    async def _write(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await self._database.write(lambda tx: work(tx, *arguments))

    async def _read(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await self._database.read(lambda tx: work(tx, *arguments))
