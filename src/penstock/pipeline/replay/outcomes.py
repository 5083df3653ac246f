"""Deliveries written down in bulk: what comes while a write is under way goes into the next one."""

import asyncio

from penstock.events.replay import ReplayAttempt, ReplayProgress
from penstock.events.store.replays import Part, Replays

NOTHING = ReplayProgress()


class Outcomes:
    """Keeps what a task's deliveries came to; `stopped` is set once the replay is to stop."""

    def __init__(self, replays: Replays, part: Part) -> None:
        self._replays = replays
        self._part = part
        self._waiting: list[tuple[ReplayAttempt | None, ReplayProgress, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self.stopped = asyncio.Event()

    async def keep(self, attempt: ReplayAttempt | None, by: ReplayProgress = NOTHING) -> None:
        """Return when it is kept; ReplayTakenOver or DatabaseFailed if it is not."""
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((attempt, by, kept))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="write outcomes")
        await kept

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            by = ReplayProgress(*(sum(counts) for counts in zip(*(_counts(of) for _, of, _ in batch), strict=True)))
            attempts = [attempt for attempt, _, _ in batch if attempt is not None]
            try:
                if not await self._replays.record(self._part, attempts, by):
                    self.stopped.set()
            except Exception as error:
                _settle(batch, error)
            else:
                _settle(batch, None)
        self._writing = None


def _counts(by: ReplayProgress) -> tuple[int, int, int]:
    return by.done, by.failed, by.held_back


def _settle(
    batch: list[tuple[ReplayAttempt | None, ReplayProgress, "asyncio.Future[None]"]], error: Exception | None
) -> None:
    for _, _, kept in batch:
        if kept.done():
            continue
        if error is None:
            kept.set_result(None)
        else:
            kept.set_exception(error)
