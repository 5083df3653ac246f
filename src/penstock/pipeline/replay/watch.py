"""Watching a replay from a thread of its own, while the driver's main thread waits for Spark."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from penstock.edge.clock import Clock
from penstock.events.replay import ReplayProgress
from penstock.pipeline.database import Database
from penstock.pipeline.replay.errand import replays_in

LOOK_S = 0.5

OnProgress = Callable[[ReplayProgress], None]


@contextmanager
def watched(database: Database, replay_id: str, clock: Clock, stop: Event, on_progress: OnProgress) -> Iterator[None]:
    """Tell how far a replay is while the block runs, and ask its tasks to stop once `stop` is set."""
    over = Event()
    thread = Thread(
        target=lambda: asyncio.run(_watch(database, replay_id, clock, stop, over, on_progress)), name="watch-replay"
    )
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


async def _watch(
    database: Database, replay_id: str, clock: Clock, stop: Event, over: Event, on_progress: OnProgress
) -> None:
    asked = False
    async with replays_in(database, clock) as replays:
        while not await asyncio.to_thread(over.wait, LOOK_S):
            if stop.is_set() and not asked:
                asked = True
                await replays.stop(replay_id)
            on_progress(await replays.progress(replay_id))
