"""The port to what is kept of replays, on the database that has their jobs."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType

from penstock.domain.subscription import Subscription
from penstock.edge.clock import Clock
from penstock.jobs import catalog
from penstock.jobs import replays_keeping as keeping
from penstock.jobs.replays import Replay, ReplayAttempt, ReplayOrder, ReplayProgress
from penstock.jobs.replays_keeping import Load, Part
from penstock.jobs.sql_repository import Database
from penstock.jobs.transaction import Transaction


class Replays(AbstractAsyncContextManager["Replays"]):
    """Replays and their progress; open it with `async with`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def __aenter__(self) -> "Replays":
        await self._database.open(self._clock.now_ms())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._database.close()

    async def add(self, replay_id: str, order: ReplayOrder, total: int, requested_at_ms: int) -> Replay:
        """Keep a new replay, which is in its first run."""

        def work(tx: Transaction) -> Replay:
            keeping.add(tx, replay_id, order, total, requested_at_ms)
            return keeping.get(tx, replay_id)

        return await self._database.write(work)

    async def get(self, replay_id: str) -> Replay:
        """A replay; ReplayNotFound."""
        return await self._database.read(lambda tx: keeping.get(tx, replay_id))

    async def go_on(self, replay_id: str) -> Replay:
        """Begin another run of a replay; an earlier one that still goes on can keep nothing more."""
        return await self._database.write(lambda tx: keeping.go_on(tx, replay_id))

    async def stop(self, replay_id: str) -> None:
        """Ask all tasks of a replay to come to an end."""
        await self._database.write(lambda tx: tx.all("stop_replay", id=replay_id))

    async def end(self, replay: Replay) -> None:
        """A run has been through all jobs."""
        now_ms = self._clock.now_ms()
        await self._database.write(lambda tx: tx.all("end_replay", id=replay.id, run=replay.run, now_ms=now_ms))

    async def progress(self, replay_id: str) -> ReplayProgress:
        """How far a replay is."""
        return await self._database.read(lambda tx: keeping.progress(tx, replay_id))

    async def attempts(self, replay_id: str) -> list[ReplayAttempt]:
        """The deliveries that a replay made directly."""
        return await self._database.read(lambda tx: keeping.attempts(tx, replay_id))

    # What tasks do with their part

    async def own(self, part: Part) -> bool:
        """Take a part; False if the replay is to stop."""
        return await self._database.write(lambda tx: keeping.own(tx, part))

    async def loads(self, replay_id: str, job_ids: Sequence[str]) -> list[Load]:
        """Jobs with what their delivery needs, without those that were delivered."""
        return await self._database.read(lambda tx: keeping.loads(tx, replay_id, job_ids))

    async def subscriptions(self) -> dict[str, Subscription]:
        """All subscriptions as they are now, by id."""
        found = await self._database.read(catalog.list_subscriptions)
        return {subscription.id: subscription for subscription in found}

    async def record(self, part: Part, attempts: Sequence[ReplayAttempt], by: ReplayProgress) -> bool:
        """Keep deliveries; False if the replay is to stop. ReplayTakenOver keeps nothing."""
        return await self._database.write(lambda tx: keeping.record(tx, part, attempts, by))

    async def make_copies(self, part: Part, due_ms: Sequence[tuple[str, int | None]]) -> bool:
        """Make the copies of jobs, each due at its time; False if the replay is to stop."""
        now_ms = self._clock.now_ms()
        return await self._database.write(lambda tx: keeping.make_copies(tx, part, due_ms, now_ms))
