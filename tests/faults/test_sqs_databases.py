"""Queues over several databases, of which some are missing, empty, older or swapped, after a crash at any step.

The files are copied before every commit of creation and deletion: each copy is what kill -9 would have left then.
"""

import asyncio
import json
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.domain.errors import FailedPrecondition
from penstock.domain.ids import TsidFactory
from penstock.engine.store.port import Shares, Store, WriteBatch
from penstock.engine.store.sqlite import SqliteStore
from penstock.sqs.model import CreateQueueRequest, QueueUrlRequest, SendMessageRequest
from penstock.sqs.server import SqsServerSettings, open_service
from penstock.sqs.service import ServiceSettings, SqsService
from penstock.testing.clock import VirtualClock
from tests.services.sqs_actions import act

NAMES = ("", "a", "b")
SPLIT = "split.fifo"
GROUPS = [f"g{number}" for number in range(8)]
PLACEMENTS = {SPLIT: ["a", "a", "b", "b"], "whole.fifo": ["b", "b"]}
HERE = {"plain": 1, "whole.fifo": 2}
"""The messages of the queues that exist all the time."""


class CopiedStore(SqliteStore):
    """Calls back before each commit that creates, changes or removes queues."""

    def __init__(self, path: Path, before: Callable[[], None] | None) -> None:
        super().__init__(path, durability="survives-process-crash-only")
        self._before = before

    def apply(self, batch: WriteBatch) -> Shares:
        changes_catalog = batch.put_streams or batch.put_queues or batch.drop_streams or batch.shrink_streams
        if self._before is not None and changes_catalog:
            self._before()
        return super().apply(batch)


class Copies:
    """The databases as they were before each commit, and whether the split queue was there then."""

    def __init__(self, live: Path, kept: Path) -> None:
        self.live = live
        self.kept = kept
        self.count = 0
        self.split: list[bool | None] = []
        """What a client knows: the queue with its messages exists, does not, or was not answered yet."""
        self.known: bool | None = False

    def take(self) -> None:
        shutil.copytree(self.live, self.kept / str(self.count))
        self.split.append(self.known)
        self.count += 1


def path_of(directory: Path, name: str) -> Path:
    return directory / (name or "own") / "sqs.db"


def stores(directory: Path, names: tuple[str, ...], before: Callable[[], None] | None) -> dict[str, Store]:
    for name in names:
        path_of(directory, name).parent.mkdir(parents=True, exist_ok=True)
    return {name: CopiedStore(path_of(directory, name), before) for name in names}


@asynccontextmanager
async def served(
    directory: Path,
    names: tuple[str, ...] = NAMES,
    before: Callable[[], None] | None = None,
    given_up: tuple[str, ...] = (),
) -> AsyncIterator[SqsService]:
    settings = SqsServerSettings(service=ServiceSettings(placements=PLACEMENTS, given_up=given_up))
    opening = open_service(stores(directory, names, before), VirtualClock(), TsidFactory(1), settings)
    async with opening as service:
        yield service


async def create(service: SqsService, name: str, partitions: int = 1) -> str:
    attributes = {"FifoQueue": "true", "PartitionCount": str(partitions)} if name.endswith(".fifo") else {}
    url: str = (await act(service, "CreateQueue", CreateQueueRequest(name, attributes))).queue_url
    return url


async def send(service: SqsService, url: str, group: str) -> None:
    request = SendMessageRequest(url, group)
    if url.endswith(".fifo"):
        request.message_group_id = request.message_deduplication_id = group
    await act(service, "SendMessage", request)


async def tell_the_story(live: Path, kept: Path) -> Copies:
    """Create the split queue, fill it, delete it, and create it again; copy the files before every such commit."""
    copies = Copies(live, kept)
    async with served(live) as service:
        await send(service, await create(service, "plain"), "x")
        url = await create(service, "whole.fifo", 2)
        for group in GROUPS[:2]:
            await send(service, url, group)
    async with served(live, before=copies.take) as service:
        await create_split(service, copies)
        copies.known = None
        await act(service, "DeleteQueue", QueueUrlRequest(service.queues[SPLIT].name))
        copies.known = False
        await removed(service)
        await create_split(service, copies)
    return copies


async def create_split(service: SqsService, copies: Copies) -> None:
    copies.known = None
    url = await create(service, SPLIT, 4)
    for group in GROUPS:
        await send(service, url, group)
    copies.known = True
    copies.take()


async def removed(service: SqsService) -> None:
    """Wait until the reaper has nothing left to remove."""
    while service._catalog.work.is_set():  # noqa: ASYNC110 its end is not announced
        await asyncio.sleep(0.001)


async def contents(service: SqsService) -> dict[str, int]:
    return {name: sum(counters.total for counters in queue.counters()) for name, queue in service.queues.items()}


def check(found: dict[str, int], split: bool | None) -> None:
    assert {name: found.get(name) for name in HERE} == HERE
    if split is not None:
        assert (SPLIT in found) is split
    if split:
        assert found[SPLIT] >= len(GROUPS)


class Damage(NamedTuple):
    """What happened to a database between the crash and the start."""

    database: str
    kind: str
    other: str = ""

    def apply(self, directory: Path, kept: Path) -> tuple[str, ...]:
        """Do it, and return the databases that are configured."""
        where = path_of(directory, self.database).parent
        if self.kind == "missing":
            return tuple(name for name in NAMES if name != self.database)
        if self.kind == "swapped":
            there = path_of(directory, self.other).parent
            where.rename(directory / "aside")
            there.rename(where)
            (directory / "aside").rename(there)
            return NAMES
        shutil.rmtree(where)
        if self.kind == "older":
            shutil.copytree(path_of(kept / self.other, self.database).parent, where)
        return NAMES


DAMAGES = [
    *(Damage(name, "missing") for name in ("a", "b")),
    *(Damage(name, "empty") for name in NAMES),
    *(Damage(one, "swapped", other) for one, other in (("", "a"), ("", "b"), ("a", "b"))),
]


def copy_of(kept: Path, number: int, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(kept / str(number), to)
    return to


@pytest.fixture
async def story(tmp_path: Path) -> Copies:
    (tmp_path / "kept").mkdir()
    return await tell_the_story(tmp_path / "live", tmp_path / "kept")


async def test_a_crash_at_any_step_of_creation_and_deletion(story: Copies, tmp_path: Path) -> None:
    assert {True, False, None} == set(story.split)
    for number, split in enumerate(story.split):
        directory = copy_of(story.kept, number, tmp_path / "case")
        async with served(directory) as service:
            first = await contents(service)
            check(first, split)
            await removed(service)
            assert not [name for name in all_streams(service) if name.startswith("#") and name != "#databases"]
        async with served(directory) as service:
            assert await contents(service) == first


def all_streams(service: SqsService) -> list[str]:
    return [name for shell in service._databases.values() for name in shell.ledger.catalog.streams]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: "-".join(damage).strip("-"))
async def test_a_database_that_is_not_there_stops_the_start_and_costs_nothing(
    story: Copies, tmp_path: Path, damage: Damage
) -> None:
    """Whatever the crash left: once the right databases are back, everything is."""
    for number, split in enumerate(story.split):
        directory = copy_of(story.kept, number, tmp_path / "case")
        names = damage.apply(directory, story.kept)
        with pytest.raises(FailedPrecondition) as caught:
            async with served(directory, names):
                pass
        assert (repr(damage.database) if damage.database else "the server's own database") in caught.value.message
        if damage.kind == "swapped":
            damage.apply(directory, story.kept)
        elif damage.kind == "empty":
            where = path_of(directory, damage.database).parent
            shutil.rmtree(where)
            shutil.copytree(path_of(story.kept / str(number), damage.database).parent, where)
        async with served(directory) as service:
            check(await contents(service), split)


@pytest.mark.parametrize("database", ["a", "b"])
async def test_an_older_database_never_costs_the_messages_of_another(
    story: Copies, tmp_path: Path, database: str
) -> None:
    """One database is from an earlier moment than the other: served is what both have, or the start is refused."""
    other = "b" if database == "a" else "a"
    refused = 0
    for number, split in enumerate(story.split):
        for earlier in range(number):
            directory = copy_of(story.kept, number, tmp_path / "case")
            Damage(database, "older", str(earlier)).apply(directory, story.kept)
            try:
                async with served(directory) as service:
                    await removed(service)
            except FailedPrecondition as error:
                refused += f" of {SPLIT} " in error.message
            if split:
                # Only the word of the other database, that the queue was deleted, may remove its partitions.
                where = path_of(directory, other).parent
                after = SqliteStore(where / "sqs.db")
                _, queues = after.open()
                found = [queue for queue in queues if queue.name.startswith(SPLIT)]
                assert len(found) == 2
                assert all(after.totals(queue.id).messages for queue in found)
                after.close()
    assert refused


async def test_what_is_lost_for_good_can_be_given_up(story: Copies, tmp_path: Path) -> None:
    number = story.split.index(True)
    for given_up, names in (("a", ("", "b")), ("a", NAMES), (SPLIT, NAMES)):
        directory = copy_of(story.kept, number, tmp_path / "case")
        if given_up == "a":
            Damage("a", "empty").apply(directory, story.kept)
        else:
            Damage("a", "older", "0").apply(directory, story.kept)
        with pytest.raises(FailedPrecondition, match=f"--give-up {given_up}|--give-up '{given_up}'"):
            async with served(directory, names):
                pass
        async with served(directory, names, given_up=(given_up,)) as service:
            check(await contents(service), False)
            await removed(service)
        async with served(directory, names) as service:
            check(await contents(service), False)


async def test_databases_of_the_first_release_know_nothing_of_each_other_yet(story: Copies, tmp_path: Path) -> None:
    number = story.split.index(True)
    directory = copy_of(story.kept, number, tmp_path / "case")
    for name in NAMES:
        forget_intents(path_of(directory, name))
    with pytest.raises(FailedPrecondition, match=f"partition 0 of {SPLIT} belongs to the database 'a'"):
        async with served(directory, ("", "b")):
            pass
    async with served(directory) as service:
        check(await contents(service), True)
    async with served(directory) as service:
        check(await contents(service), True)


def forget_intents(path: Path) -> None:
    """Rewrite a database as the first release wrote it."""
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM streams WHERE name = '#databases'")
        for table in ("streams", "queues"):
            for key, config in database.execute(f"SELECT id, config FROM {table}").fetchall():
                record = json.loads(config)
                record.pop("birth")
                record.pop("state")
                database.execute(f"UPDATE {table} SET config = ? WHERE id = ?", (json.dumps(record).encode(), key))


async def test_the_messages_of_a_deleted_queue_go_a_few_at_a_time(tmp_path: Path) -> None:
    left: list[int] = []
    totals: list[Callable[[], int]] = []
    async with served(tmp_path, before=lambda: left.extend(total() for total in totals)) as service:
        url = await create(service, "plain")
        for _ in range(250):
            await send(service, url, "x")
        (partition,) = service.queues["plain"].partitions
        store, queue_id = partition.shell.ledger.store, partition.queue.id
        totals.append(lambda: store.totals(queue_id).messages)
        await act(service, "DeleteQueue", QueueUrlRequest(url))
        # A queue of the same name can be created while the old one is being removed.
        await send(service, await create(service, "plain"), "y")
        await removed(service)
        left.append(store.totals(queue_id).messages)
        assert (left[0], left[-1]) == (250, 0)
        assert max(before - after for before, after in pairwise(left)) == 100
        assert await contents(service) == {"plain": 1}
