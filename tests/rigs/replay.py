"""Jobs that are over, for replays: made as publishers make them, and then moved to where a test wants them."""

import asyncio
from collections.abc import Sequence
from threading import Event as ThreadEvent
from typing import Any

from penstock.domain.event import StoredEvent
from penstock.domain.ids import TsidFactory
from penstock.domain.job import DispatchJob
from penstock.domain.job_state import JobStatus
from penstock.domain.replay import Replay, ReplayAttempt, ReplayProgress, ReplayRequest, ReplaySelection
from penstock.domain.subscription import Subscription
from penstock.edge.clock import SystemClock
from penstock.events.fan_out.rule import FanOut
from penstock.events.store.repository.replays import Replays
from penstock.events.store.statements import codes_of
from penstock.history.replay.task import replays_in
from penstock.spark.database import SparkDatabase
from tests.rigs.job_database import fetch, with_repository

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
EVERYTHING = ReplaySelection(from_ms=0)
NEVER = ThreadEvent()


class ReplayRig:
    """A database of jobs, and a short word for each step."""

    def __init__(self, database: SparkDatabase) -> None:
        self.database = database
        self.clock = SystemClock()
        self.ids = TsidFactory(1)

    def new_id(self) -> str:
        return self.ids.next_id(self.clock.now_ms())

    def subscribe(self, target: str, name: str = "billing", **fields: Any) -> Subscription:
        """A subscription to everything."""
        subscription = Subscription(
            id=self.new_id(), name=name, pattern="**", target=target, secrets=(SECRET,), **fields
        )
        self._with_repository(lambda repository: repository.add_subscription(subscription))
        return subscription

    def publish(self, keys: Sequence[str], subscription: Subscription) -> list[str]:
        """One event per key, in order; the ids of their jobs."""
        now_ms = self.clock.now_ms()
        events = [
            StoredEvent(
                id=self.new_id(),
                source="shop",
                type="orders:created",
                received_ms=now_ms + number,
                group=key,
                data=b'{"number":%d}' % number,
            )
            for number, key in enumerate(keys)
        ]
        fan_out = FanOut([subscription])
        jobs = [job for event in events for job in fan_out.jobs(event)]
        self._with_repository(lambda repository: repository.publish(events, jobs, now_ms))
        return [job.id for job in jobs]

    def end(self, job_ids: Sequence[str], status: JobStatus = JobStatus.COMPLETED) -> None:
        """Jobs are over."""
        code = codes_of(status)[0]
        changes = f"state = {code}, attempt_count = 1, delivery_count = 1, finished_at_ms = created_at_ms"
        self.execute(f"UPDATE jobs SET {changes} WHERE id IN ({', '.join(repr(job_id) for job_id in job_ids)})")
        self.execute("DELETE FROM lanes")

    def execute(self, text: str) -> list[tuple[Any, ...]]:
        """A statement past the repository."""
        return fetch(self.database, text)

    def job(self, job_id: str) -> DispatchJob:
        job: DispatchJob = self._with_repository(lambda repository: repository.get_job(job_id))
        return job

    def begin(self, selection: ReplaySelection = EVERYTHING, total: int = 0, **order: Any) -> Replay:
        """A replay in its first run."""
        replay_id, now_ms = self.new_id(), self.clock.now_ms() + 1_000_000
        replay: Replay = self._with_replays(
            lambda replays: replays.add(replay_id, ReplayRequest(selection=selection, **order), total, now_ms)
        )
        return replay

    def go_on(self, replay: Replay) -> Replay:
        again: Replay = self._with_replays(lambda replays: replays.go_on(replay.id))
        return again

    def progress(self, replay: Replay) -> ReplayProgress:
        progress: ReplayProgress = self._with_replays(lambda replays: replays.progress(replay.id))
        return progress

    def attempts(self, replay: Replay) -> list[ReplayAttempt]:
        attempts: list[ReplayAttempt] = self._with_replays(lambda replays: replays.attempts(replay.id))
        return attempts

    def _with_repository(self, use: Any) -> Any:
        return with_repository(self.database, use, self.clock.now_ms())

    def _with_replays(self, use: Any) -> Any:
        async def run() -> Any:
            async with replays_in(self.database, self.clock) as replays:
                return await use(replays)

        return asyncio.run(run())


__all__ = ["EVERYTHING", "NEVER", "SECRET", "ReplayRig", "Replays"]
