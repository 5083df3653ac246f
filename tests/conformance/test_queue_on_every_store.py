"""The queue behaves the same on every store; what is durable also survives a restart."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from penstock.domain.ids import TsidFactory
from penstock.domain.message import Message, TypedValue
from penstock.engine.async_shell import AsyncShell
from penstock.engine.errors import LeaseNotFound, QueueNotFound
from penstock.engine.ledger import Ledger
from penstock.engine.pending import Receipt
from penstock.engine.queue.entry import Entry
from penstock.engine.queue.policy import DeadLetterAt, Grouping, QueuePolicy, Window
from penstock.engine.store.memory import MemoryStore
from penstock.engine.store.port import Store
from penstock.engine.store.postgres import PostgresStore
from penstock.engine.store.sqlite import SqliteStore
from penstock.engine.stored_queue import StoredQueue
from penstock.engine.stream import Stream
from penstock.testing.clock import VirtualClock
from tests.rigs.virtual_pauses import until

LONG_S = 60.0
DEDUP_MS = 300_000
WINDOW = Window(messages=20, size_bytes=10_000, lookahead=60)
POLICIES = {
    "plain": QueuePolicy(lease_ms=30_000),
    "grouped": QueuePolicy(grouping=Grouping.ONE, lease_ms=30_000),
    "batched": QueuePolicy(grouping=Grouping.BATCH, lease_ms=30_000),
    "mortal": QueuePolicy(lease_ms=30_000, max_deliveries=2, dead_letter_at=DeadLetterAt.RECEIVE),
    "brief": QueuePolicy(lease_ms=30_000, retention_ms=60_000),
}


class Rig:
    """A shell on a store that can be made again; each queue is called after its policy, perhaps with a number."""

    def __init__(self, make_store: Callable[[], Store]) -> None:
        self.make_store = make_store
        self.clock = VirtualClock()
        self.factory = TsidFactory(1)
        self.sent = 0

    async def open(self) -> None:
        store = self.make_store()
        self.durable = store.durable
        self.ledger = Ledger(store, self.factory, WINDOW)
        self.ledger.catalog.open(self.now_ms, lambda record: POLICIES[record.name.rstrip("2")], lambda _: DEDUP_MS)
        self.shell = AsyncShell(self.ledger, self.clock)

    async def restart(self) -> None:
        await self.shell.close()
        await self.open()

    async def add(self, *queues: str, stream: str = "s") -> None:
        """A stream with some queues."""
        catalog = self.ledger.catalog
        if stream not in catalog.streams:
            await self.shell.commit(catalog.create_stream(stream, self.now_ms, dedup_window_ms=DEDUP_MS))
        for name in queues:
            policy = POLICIES[name.rstrip("2")]
            await self.shell.commit(catalog.create_queue(catalog.stream(stream), name, policy, self.now_ms))

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    def stream(self, name: str = "s") -> Stream:
        return self.ledger.catalog.stream(name)

    def queue(self, name: str) -> StoredQueue:
        return self.ledger.catalog.queue(name)

    async def send(self, *groups: str, size: int = 10, dedup_id: str = "", delay_s: int = 0) -> list[Receipt]:
        """One message for each group named, "" for none, in one batch; their ids are m1, m2 and so on."""
        messages = []
        for group in groups:
            self.sent += 1
            due_ms = self.now_ms + delay_s * 1000 if delay_s else 0
            messages.append(
                Message(f"m{self.sent}", b"x" * size, self.now_ms, size, group, dedup_id=dedup_id, deliver_at_ms=due_ms)
            )
        pending = self.ledger.send(self.stream(), messages, self.now_ms)
        await self.shell.commit(pending)
        return pending.receipts

    async def receive(self, queue: str, limit: int = 100, *, max_bytes: int | None = None) -> list[Entry]:
        return await self.shell.receive(self.queue(queue), limit, max_bytes=max_bytes)

    async def ids(self, queue: str, limit: int = 100, *, max_bytes: int | None = None) -> list[str]:
        return [entry.message.id for entry in await self.receive(queue, limit, max_bytes=max_bytes)]

    async def ack(self, queue: str, *entries: Entry) -> None:
        leases = [entry.lease_id for entry in entries]
        await self.shell.commit(self.ledger.ack(self.queue(queue), leases, self.now_ms))

    def nack(self, queue: str, entry: Entry, delay_ms: int | None = None) -> None:
        self.ledger.release(self.queue(queue), entry.lease_id, self.now_ms, delay_ms)
        self.shell.kick()

    async def written(self) -> None:
        """Until everything that has gathered is committed."""
        self.shell.kick()
        await until(lambda: not self.ledger.has_unwritten() and self.shell._committing is None)

    def later(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.shell.tick()

    async def drain(self, queue: str, limit: int = 7) -> list[str]:
        seen: list[str] = []
        while entries := await self.receive(queue, limit):
            seen += [entry.message.id for entry in entries]
            await self.ack(queue, *entries)
        return seen


@pytest_asyncio.fixture(params=["memory", "sqlite", "postgres"])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    make: Callable[[], Store]
    if request.param == "memory":
        make = MemoryStore
    elif request.param == "sqlite":
        make = lambda: SqliteStore(tmp_path / "queue.db", durability="survives-process-crash-only")  # noqa: E731
    else:
        url = request.getfixturevalue("postgres_database")
        make = lambda: PostgresStore(url)  # noqa: E731
    made = Rig(make)
    await made.open()
    yield made
    await made.shell.close()


def numbered(first: int, last: int) -> list[str]:
    return [f"m{number}" for number in range(first, last + 1)]


async def test_a_batch_is_received_in_order_and_gone_when_acknowledged(rig: Rig) -> None:
    await rig.add("plain")
    receipts = await rig.send(*[""] * 10)
    assert [receipt.message_id for receipt in receipts] == numbered(1, 10)
    assert [receipt.seq for receipt in receipts] == sorted({receipt.seq for receipt in receipts})
    entries = await rig.receive("plain", 4)
    assert [entry.message.id for entry in entries] == numbered(1, 4)
    assert [entry.receive_count for entry in entries] == [1] * 4
    await rig.ack("plain", *entries)
    assert await rig.drain("plain") == numbered(5, 10)
    assert rig.queue("plain").counters().total == 0


async def test_a_message_comes_as_it_was_sent(rig: Rig) -> None:
    await rig.add("plain")
    message = Message(
        "id with spaces",
        bytes(range(256)),
        rig.now_ms,
        300,
        "group/ü",
        {"plain": "text", "typed": TypedValue("Number.int", b"42"), "": "empty key"},
        "dedup",
    )
    await rig.shell.commit(rig.ledger.send(rig.stream(), [message], rig.now_ms))
    if rig.durable:
        await rig.restart()
    (entry,) = await rig.receive("plain")
    assert entry.message == message


async def test_a_receive_is_bounded_by_bytes(rig: Rig) -> None:
    await rig.add("plain")
    await rig.send("", "", "", "", size=400)
    assert await rig.ids("plain", max_bytes=1_000) == ["m1", "m2"]
    assert await rig.ids("plain", max_bytes=100) == ["m3"]


async def test_an_arrival_answers_a_waiting_receive(rig: Rig) -> None:
    await rig.add("plain")
    waiter = asyncio.create_task(rig.shell.receive(rig.queue("plain"), 10, wait_s=LONG_S))
    await until(lambda: len(rig.shell._waiters.get(rig.queue("plain").id, ())) == 1)
    await rig.send("")
    assert [entry.message.id for entry in await asyncio.wait_for(waiter, LONG_S)] == ["m1"]


async def test_a_wait_in_vain_ends_with_nothing(rig: Rig) -> None:
    await rig.add("plain")
    assert await rig.shell.receive(rig.queue("plain"), 10, wait_s=0.01) == []


async def test_a_returned_message_comes_back(rig: Rig) -> None:
    await rig.add("plain")
    await rig.send("", "")
    one, _ = await rig.receive("plain")
    rig.nack("plain", one)
    (again,) = await rig.receive("plain")
    assert (again.message.id, again.receive_count) == ("m1", 2)
    rig.nack("plain", again, 5_000)
    assert rig.queue("plain").counters().delayed == 1
    assert await rig.ids("plain") == []
    rig.later(5)
    assert await rig.ids("plain") == ["m1"]


async def test_a_lease_that_runs_out_brings_its_message_back(rig: Rig) -> None:
    await rig.add("plain")
    await rig.send("", "")
    one, two = await rig.receive("plain")
    rig.ledger.set_deadline(rig.queue("plain"), one.lease_id, rig.now_ms + 90_000, rig.now_ms)
    rig.later(30)
    assert rig.queue("plain").counters().visible == 1
    assert await rig.ids("plain") == ["m2"]
    with pytest.raises(LeaseNotFound):
        await rig.ack("plain", Entry(0, two.message, lease_id=2))
    await rig.ack("plain", one)
    rig.later(30)
    assert await rig.drain("plain") == ["m2"]


async def test_a_delayed_message_waits_for_its_time(rig: Rig) -> None:
    await rig.add("plain")
    await rig.send("", delay_s=10)
    await rig.send("")
    assert await rig.drain("plain") == ["m2"]
    rig.later(10)
    assert await rig.drain("plain") == ["m1"]


async def test_one_message_of_a_group_at_a_time(rig: Rig) -> None:
    await rig.add("grouped")
    await rig.send(*"aabba")
    entries = await rig.receive("grouped")
    assert [entry.message.id for entry in entries] == ["m1", "m3"]
    assert await rig.ids("grouped") == []
    rig.nack("grouped", entries[0], 1_000)
    await rig.ack("grouped", entries[1])
    assert await rig.ids("grouped") == ["m4"]
    rig.later(1)
    assert await rig.drain("grouped") == ["m1", "m2", "m5"]


async def test_several_messages_of_a_group_in_one_receive(rig: Rig) -> None:
    await rig.add("batched")
    await rig.send(*"aaab")
    entries = await rig.receive("batched", 2)
    assert [entry.message.id for entry in entries] == ["m1", "m2"]
    assert await rig.ids("batched") == ["m4"]
    await rig.ack("batched", entries[1])
    rig.nack("batched", entries[0])
    assert await rig.ids("batched") == ["m1", "m3"]


async def test_duplicates_are_answered_with_the_first_message(rig: Rig) -> None:
    await rig.add("plain")
    (first,) = await rig.send("", dedup_id="d")
    (second,) = await rig.send("", dedup_id="d")
    assert second == Receipt("m1", first.seq)
    assert await rig.drain("plain") == ["m1"]
    if rig.durable:
        await rig.restart()
    (third,) = await rig.send("", dedup_id="d")
    assert third == second
    assert await rig.drain("plain") == []
    rig.later(DEDUP_MS / 1000)
    (fourth,) = await rig.send("", dedup_id="d")
    assert fourth.message_id == "m4"
    assert await rig.drain("plain") == ["m4"]


async def test_dead_letters_move_to_another_stream(rig: Rig) -> None:
    await rig.add("mortal")
    await rig.add("plain", stream="dead")
    source, target = rig.queue("mortal"), rig.stream("dead")

    def hand_over(entries: list[Entry]) -> None:
        rig.ledger.move(source, entries, target, [entry.message for entry in entries])

    source.on_dead_letters = hand_over
    await rig.send("", "")
    for _ in range(2):
        one, two = await rig.receive("mortal")
        rig.nack("mortal", one)
        rig.nack("mortal", two)
    assert source.counters().visible == 2
    assert await rig.receive("mortal") == []
    await rig.written()
    if rig.durable:
        await rig.restart()
    assert rig.queue("mortal").counters().total == 0
    assert await rig.drain("plain") == ["m1", "m2"]


async def test_waiting_messages_are_redriven(rig: Rig) -> None:
    await rig.add("plain")
    await rig.add("plain2", stream="other")
    await rig.send(*[""] * 50)
    held = await rig.receive("plain", 1)
    moved = 0
    while rig.queue("plain").counters().visible or rig.queue("plain").stored:
        assert await rig.receive("plain", 0) == []  # reads on when the window is empty
        pending, count = rig.ledger.redrive(rig.queue("plain"), rig.stream("other"), rig.now_ms, 15)
        await rig.shell.commit(pending)
        moved += count
    assert moved == 49
    await rig.ack("plain", *held)
    assert rig.queue("plain").counters().total == 0
    assert await rig.drain("plain2") == numbered(2, 50)


async def test_a_purge_empties_one_queue_only(rig: Rig) -> None:
    await rig.add("plain", "plain2")
    await rig.send(*[""] * 40)
    (held, *_) = await rig.receive("plain", 3)
    await rig.shell.commit(rig.ledger.catalog.purge(rig.queue("plain")))
    assert rig.queue("plain").counters().total == 0
    with pytest.raises(LeaseNotFound):
        await rig.ack("plain", held)
    await rig.send("")
    if rig.durable:
        await rig.restart()
    assert await rig.drain("plain") == ["m41"]
    assert await rig.drain("plain2") == numbered(1, 41)


async def test_a_peek_changes_nothing(rig: Rig) -> None:
    await rig.add("grouped")
    await rig.send("a", "a", "b", "")
    await rig.receive("grouped", 1)
    before = rig.queue("grouped").counters()
    first = rig.queue("grouped").engine.peek(0, 3)
    rest = rig.queue("grouped").engine.peek(first[-1].seq, 3)
    assert [entry.message.id for entry in (*first, *rest)] == numbered(1, 4)
    assert rig.queue("grouped").counters() == before


async def test_the_counters_say_what_there_is(rig: Rig) -> None:
    await rig.add("plain")
    await rig.send(*[""] * 30, size=7)
    await rig.send("", size=7, delay_s=60)
    entries = await rig.receive("plain", 4)
    rig.nack("plain", entries[0], 10_000)
    await rig.ack("plain", entries[1])
    counters = rig.queue("plain").counters()
    assert (counters.leased, counters.leased_bytes, counters.settling) == (2, 14, 0)
    assert (counters.total, counters.total_bytes) == (30, 210)
    assert rig.queue("plain").total == 30
    assert rig.queue("plain").total_bytes == 210


async def test_two_queues_of_a_stream_go_their_own_ways(rig: Rig) -> None:
    await rig.add("plain")
    await rig.send("")
    await rig.add("plain2")
    await rig.send("", "", "")
    entries = await rig.receive("plain")
    assert [entry.message.id for entry in entries] == numbered(1, 4)
    await rig.ack("plain", *entries[:2])
    assert await rig.drain("plain2") == numbered(2, 4)
    for entry in entries[2:]:
        rig.nack("plain", entry)
    await rig.shell.commit(rig.ledger.catalog.drop_queue(rig.queue("plain2")))
    if rig.durable:
        await rig.restart()
    with pytest.raises(QueueNotFound):
        rig.queue("plain2")
    assert await rig.drain("plain") == ["m3", "m4"]


@pytest.mark.parametrize("queue", ["plain", "grouped", "batched"])
async def test_a_backlog_deeper_than_the_window(rig: Rig, queue: str) -> None:
    await rig.add(queue)
    for number in range(50):
        await rig.send(*[f"g{(number * 6 + index) % 8}" for index in range(6)])
    if rig.durable:
        assert rig.queue(queue).engine.held <= WINDOW.messages + 6
        await rig.restart()
    assert rig.queue(queue).counters().total == 300
    seen: list[str] = []
    groups: dict[str, list[int]] = {}
    while entries := await rig.receive(queue, 7):
        for entry in entries:
            seen.append(entry.message.id)
            groups.setdefault(entry.message.group, []).append(entry.seq)
        await rig.ack(queue, *entries)
    assert sorted(seen) == sorted(numbered(1, 300))
    assert all(seqs == sorted(seqs) for seqs in groups.values())
    assert rig.queue(queue).total == rig.queue(queue).counters().total == 0


async def test_messages_past_their_retention_are_swept(rig: Rig) -> None:
    await rig.add("brief")
    await rig.send("", "")
    rig.later(30)
    await rig.send("")
    rig.later(30)
    rig.ledger.sweep(rig.now_ms)
    await rig.written()
    assert rig.queue("brief").counters().total == 1
    assert await rig.drain("brief") == ["m3"]


async def test_what_is_durable_survives_a_restart(rig: Rig) -> None:
    await rig.add("grouped", "plain")
    await rig.send(*"abab", "", "")
    await rig.send("a", delay_s=60)
    one, two, _ = await rig.receive("grouped", 3)
    await rig.ack("grouped", one)
    rig.nack("grouped", two)
    if not rig.durable:
        pytest.skip("a store in memory does not survive")
    await rig.restart()
    assert rig.queue("grouped").counters().total == 6
    assert rig.queue("plain").counters().total == 7
    entries = {entry.message.id: entry for entry in await rig.receive("grouped")}
    assert entries[two.message.id].receive_count == 2
    assert one.message.id not in entries
    await rig.ack("grouped", *entries.values())
    await rig.drain("grouped")
    assert rig.queue("grouped").counters().total == 1
    rig.later(60)
    assert await rig.drain("grouped") == ["m7"]
    assert await rig.drain("plain") == numbered(1, 7)
    (after,) = await rig.send("")
    assert after.seq > two.seq
