"""The port to whatever keeps events, subscriptions, pools, jobs and attempts.

Every implementation passes tests/conformance/test_job_repository.py. Every call is kept as a whole or not at all;
DatabaseFailed when the database refused or did not answer. `now_ms` is the caller's clock: nodes keep theirs together
to well within a lease. What only a leader may do takes its fencing `token` and raises StaleLeader when another has
followed; None where there is only one scheduler.
"""

from collections.abc import Sequence
from typing import Protocol

from penstock.cluster import LeaderLease
from penstock.domain.event import StoredEvent
from penstock.domain.job import Attempt, AttemptPlace, CreatedJob, DispatchJob, NewJob
from penstock.domain.job_state import JobStatus
from penstock.domain.subscription import Pool, Subscription
from penstock.edge.clock import Clock
from penstock.events.store.changes import ChangePage, KeptChange
from penstock.events.store.deliveries import Begin, Verdict
from penstock.events.store.inspection import FinishedJob, FinishedPlace, HeldGroup, LaneState, OldestWaiting
from penstock.events.store.lanes import Lanes
from penstock.events.store.listing import JobFilter, JobPage
from penstock.events.store.replays import Replays
from penstock.events.store.signal import JobSignal
from penstock.events.store.statistics import Statistics


class JobRepository(Protocol):
    """Jobs and what belongs to them, kept in a database."""

    @property
    def signal(self) -> JobSignal:
        """Called when there may be jobs to claim; PostgreSQL calls for other processes too."""
        ...

    @property
    def lanes(self) -> Lanes:
        """The lanes that jobs wait in, for whoever publishes from them."""
        ...

    @property
    def statistics(self) -> Statistics:
        """What was delivered, minute by minute."""
        ...

    def replays(self, clock: Clock) -> Replays:
        """Replays of these jobs."""
        ...

    async def open(self, now_ms: int) -> None:
        """Connect and bring the tables up to date; safe when several nodes start at once."""

    async def close(self) -> None:
        """Finish what was asked, and hang up."""

    def trouble(self) -> str | None:
        """What is known to keep it from taking changes, in a sentence; None if nothing is. It may ask the disk."""
        ...

    # Events

    async def publish(self, events: Sequence[StoredEvent], jobs: Sequence[NewJob], now_ms: int) -> list[str]:
        """Keep events with the jobs they cause; the id of each, or of the same event told before, whose jobs are not
        made again.
        """
        ...

    async def add_events(self, events: Sequence[StoredEvent]) -> list[str]:
        """Keep events whose jobs are made later, by `fan_out`; the id of each, or of the same event told before."""
        ...

    async def count_events_to_fan_out(self, most: int) -> int:
        """How many events wait for their jobs, counted up to so many."""
        ...

    async def fan_out(self, event_ids: Sequence[str], jobs: Sequence[NewJob], now_ms: int) -> list[str]:
        """Make the jobs of those events that still wait for theirs; the ids of these events. All jobs of an event are
        made in one call: to do it twice makes none twice.
        """
        ...

    async def get_event(self, event_id: str) -> StoredEvent:
        """An event; EventNotFound."""
        ...

    # Jobs

    async def create_jobs(self, jobs: Sequence[NewJob], now_ms: int) -> list[CreatedJob]:
        """Make jobs; for a known idempotency key of a tenant the answer is the job that has it."""
        ...

    async def get_job(self, job_id: str) -> DispatchJob:
        """A job, archived or not; JobNotFound."""
        ...

    async def list_jobs(self, which: JobFilter, cursor: str | None, most: int) -> JobPage:
        """A page of jobs, the newest first."""
        ...

    async def attempts_of(self, job_id: str, after: AttemptPlace, most: int) -> list[Attempt]:
        """The deliveries of a job behind a place, the first one first."""
        ...

    async def counts(self) -> dict[JobStatus, int]:
        """How many jobs have each status, archived ones left out. It looks at all of them: do not ask all the time."""
        ...

    async def oldest_waiting(self, now_ms: int) -> OldestWaiting:
        """Since when the one that has waited longest waits, looked up in indexes: it may be asked all the time."""
        ...

    async def held_groups(self, after: str, most: int) -> list[HeldGroup]:
        """Groups that wait for a job that failed and come after a key, in the order of their keys."""
        ...

    async def most_urgent_groups(self, most: int) -> list[HeldGroup]:
        """Groups that wait for a job that failed, those in ERROR first, then the longest held."""
        ...

    async def lane_of(self, group_key: str, most: int) -> LaneState:
        """The first jobs of a group that are not over, in order, and its counts."""
        ...

    async def finished_lately(self, since_ms: int, before: FinishedPlace, most: int) -> list[FinishedJob]:
        """Jobs finished after a moment that stand behind a place, the last one first."""
        ...

    async def cancel(self, job_ids: Sequence[str], now_ms: int) -> None:
        """Give up PENDING and QUEUED jobs; JobNotFound or WrongJobStatus, and then none."""

    async def retry(self, job_ids: Sequence[str], now_ms: int) -> None:
        """Begin anew with jobs in ERROR; JobNotFound or WrongJobStatus, and then none."""

    async def retry_group(self, group_key: str, now_ms: int, most: int) -> list[str]:
        """Begin anew with a group's jobs in ERROR, in order; the ids."""
        ...

    async def ignore(self, job_ids: Sequence[str], now_ms: int) -> None:
        """Give up jobs in ERROR, so that their groups move on; JobNotFound or WrongJobStatus, and then none."""

    async def cancel_of_subscription(self, subscription_id: str, now_ms: int, most: int) -> int:
        """Give up PENDING and QUEUED jobs of a subscription, at most so many; how many."""
        ...

    # The scheduler

    async def do_chores(self, now_ms: int) -> None:
        """See to what has come due or run out; to be done before lanes are read."""

    async def recover_stale(self, now_ms: int, most: int, token: int | None = None) -> list[str]:
        """QUEUED and PROCESSING jobs whose lease is over go back to PENDING, at most so many; their ids."""
        ...

    async def extend_leases(self, job_ids: Sequence[str], lease_until_ms: int) -> list[str]:
        """QUEUED and PROCESSING jobs are known to be on their way; the ids of those whose lease is longer now."""
        ...

    async def expire_due(self, now_ms: int, most: int) -> int:
        """Give up PENDING and QUEUED jobs past their `expires_at_ms`, at most so many; how many."""
        ...

    async def next_due_ms(self) -> int | None:
        """The next moment at which there are chores to do, if nothing else happens."""
        ...

    # The delivery

    async def begin(self, job_id: str, owner: str, now_ms: int, lease_until_ms: int) -> Begin:
        """A job has reached its delivery: it is PROCESSING now, or the answer says why not."""
        ...

    async def finish(self, job_id: str, attempt: Attempt, verdict: Verdict, now_ms: int) -> bool:
        """End the delivery whose number the attempt has; False, and nothing kept, when the job has moved on since."""
        ...

    # Subscriptions and pools

    async def add_subscription(self, subscription: Subscription) -> None:
        """Keep a new subscription; SubscriptionExists when the tenant has one of that name."""

    async def change_subscription(self, subscription: Subscription) -> None:
        """Keep what a subscription says now; whether it is paused is left as it is."""

    async def pause_subscription(self, subscription_id: str) -> None:
        """Take no more of its jobs; SubscriptionNotFound."""

    async def resume_subscription(self, subscription_id: str) -> None:
        """Take its jobs again; SubscriptionNotFound."""

    async def delete_subscription(self, subscription_id: str) -> None:
        """Forget a subscription; its jobs stay until they are cancelled. SubscriptionNotFound."""

    async def get_subscription(self, subscription_id: str) -> Subscription:
        """A subscription; SubscriptionNotFound."""
        ...

    async def list_subscriptions(self) -> list[Subscription]:
        """All subscriptions, the oldest first."""
        ...

    async def put_pool(self, pool: Pool) -> None:
        """Keep a pool, new or changed."""

    async def get_pool(self, code: str) -> Pool:
        """A pool; PoolNotFound."""
        ...

    async def list_pools(self) -> list[Pool]:
        """All pools, by code."""
        ...

    async def delete_pool(self, code: str) -> None:
        """Forget a pool; PoolNotFound."""

    # The leader's lease

    async def acquire_lease(self, name: str, holder: str, now_ms: int, ttl_ms: int) -> LeaderLease | None:
        """Take a lease that nobody holds, with the next token; None while somebody does."""
        ...

    async def renew_lease(self, lease: LeaderLease, now_ms: int, ttl_ms: int) -> LeaderLease | None:
        """Hold a lease for longer; None when it has run out or another has it."""
        ...

    async def release_lease(self, lease: LeaderLease, now_ms: int) -> bool:
        """Let the next one have it at once; False when it was not held any more."""
        ...

    # What people changed

    async def keep_change(self, change: KeptChange) -> None:
        """Keep that somebody changed something."""

    async def list_changes(self, cursor: str | None, most: int) -> ChangePage:
        """A page of what people changed, the newest first."""
        ...

    # What is over

    async def archive_finished(self, before_ms: int, now_ms: int, most: int) -> int:
        """Move jobs finished before to the archive, at most so many; how many.

        An ERROR of a BLOCK_ON_ERROR job stays until somebody retries or ignores it.
        """
        ...

    async def purge_archive(self, before_ms: int) -> None:
        """Drop archived jobs, and all attempts, of months that ended before."""

    async def forget_events(self, before_ms: int, most: int) -> int:
        """Delete events received before that no job outside the archive needs, at most so many; how many.

        What people changed before is forgotten too.
        """
        ...
