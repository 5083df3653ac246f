"""The repository: events, subscriptions, pools, jobs and attempts, kept in SQLite or PostgreSQL.

Each module here has the operations on one subject, with the values they take and return. They pass
tests/conformance/test_job_repository.py on both databases.
"""

from penstock.edge.clock import Clock
from penstock.events.store.database import Database, JobSignal
from penstock.events.store.repository.archive import JobArchive
from penstock.events.store.repository.changes import ChangeRecords
from penstock.events.store.repository.chores import JobChores
from penstock.events.store.repository.deliveries import JobDeliveries
from penstock.events.store.repository.erasure import Erasure
from penstock.events.store.repository.event_types import EventTypeRecords
from penstock.events.store.repository.feeds import FeedRecords
from penstock.events.store.repository.inspection import JobInspection
from penstock.events.store.repository.jobs import EventRecords, JobRecords
from penstock.events.store.repository.lanes import Lanes
from penstock.events.store.repository.leader import LeaderLeases
from penstock.events.store.repository.listing import JobListing
from penstock.events.store.repository.replays import Replays
from penstock.events.store.repository.statistics import Statistics
from penstock.events.store.repository.subscriptions import PoolRecords, SubscriptionRecords


class JobRepository(
    EventRecords,
    JobRecords,
    JobListing,
    JobInspection,
    JobChores,
    JobDeliveries,
    SubscriptionRecords,
    PoolRecords,
    LeaderLeases,
    ChangeRecords,
    FeedRecords,
    EventTypeRecords,
    JobArchive,
    Erasure,
):
    """Jobs and what belongs to them; lanes, statistics and replays stand apart, as some use nothing else.

    Each call is kept as a whole or not at all; DatabaseFailed when the database refused or did not answer. `now_ms` is
    the caller's clock: the clocks of nodes differ by much less than a lease. What only a leader may do takes its
    fencing `token` and raises StaleLeader when another leader has followed; None where there is only one scheduler.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.lanes = Lanes(database)
        self.statistics = Statistics(database)

    @property
    def signal(self) -> JobSignal:
        """Called when there may be jobs to claim; PostgreSQL calls for other processes too."""
        return self._database.signal

    def replays(self, clock: Clock) -> Replays:
        """Return the replays of these jobs."""
        return Replays(self._database, clock)

    async def open(self, now_ms: int) -> None:
        """Connect and bring the tables up to date; safe when several nodes start at once."""
        await self._database.open(now_ms)

    async def close(self) -> None:
        """Finish the calls under way, and disconnect."""
        await self._database.close()

    def trouble(self) -> str | None:
        """Return what is known to keep it from taking changes, in a sentence; None if nothing is. May ask the disk."""
        return self._database.trouble()
