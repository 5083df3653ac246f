"""The benchmark of the scheduler: a poll costs the same with finished jobs, and finds its batch each time."""

from pathlib import Path

from penstock.events.store.sqlite import sqlite_repository
from penstock.tools.bench.scheduler import finish_in_sqlite, flat_ratio
from penstock.tools.bench.scheduler_backlog import opened

# More polls than a lane may have jobs in the queue at once.
POLLS = 20


async def test_every_poll_finds_its_batch_though_nothing_is_delivered(tmp_path: Path) -> None:
    full, empty = sqlite_repository(tmp_path / "full.db"), sqlite_repository(tmp_path / "empty.db")
    async with opened(full), opened(empty):
        finish_in_sqlite(str(tmp_path / "full.db"), 100)
        assert await flat_ratio(full, empty, POLLS) > 0
