"""The asyncio shell: shared commits, waiting receivers without lost wake-ups, an orderly end."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from penstock.domain.ids import TsidFactory
from penstock.domain.message import Message
from penstock.engine.async_shell import AsyncShell
from penstock.engine.errors import QueueClosed, StoreFailed
from penstock.engine.ledger import Ledger
from penstock.engine.pending import Pending
from penstock.engine.queue.entry import Entry
from penstock.engine.queue.policy import Grouping, QueuePolicy, Window
from penstock.engine.store.memory import MemoryStore
from penstock.engine.store.port import Shares, Store, StoredSegment, WriteBatch
from penstock.engine.store.sqlite import SqliteStore
from penstock.engine.stored_queue import StoredQueue
from penstock.engine.stream import Stream
from penstock.testing.clock import VirtualClock
from tests.rigs.counting_loop import CountingLoop, run_counting
from tests.rigs.virtual_pauses import until

POLICY = QueuePolicy(grouping=Grouping.ONE, lease_ms=30_000)
LONG_S = 60.0


class GatedStore(SqliteStore):
    """Counts commits, and holds, refuses or breaks them when told to; so its commits are the writer thread's."""

    local = False

    def __init__(self, path: Path) -> None:
        super().__init__(path, durability="survives-process-crash-only")
        self.commits = 0
        self.gate = threading.Event()
        self.gate.set()
        self.errors: list[Exception] = []
        self.read_errors: list[Exception] = []

    def apply(self, batch: WriteBatch) -> Shares:
        assert self.gate.wait(LONG_S)
        self.commits += 1
        if self.errors:
            raise self.errors.pop(0)
        return super().apply(batch)

    def read(self, queue_id: int, from_seq: int, max_messages: int, max_bytes: int) -> list[StoredSegment]:
        if self.read_errors:
            raise self.read_errors.pop(0)
        return super().read(queue_id, from_seq, max_messages, max_bytes)


class Rig:
    """A shell with a stream and a queue of it."""

    def __init__(self, store: Store, window: Window | None = None, policy: QueuePolicy = POLICY) -> None:
        self.clock = VirtualClock()
        self.ledger = Ledger(store, TsidFactory(1), window)
        self.ledger.catalog.open(self.clock.now_ms(), lambda _: policy)
        self.shell = AsyncShell(self.ledger, self.clock)
        self.policy = policy
        self.sent = 0
        self.looks = 0
        look = self.ledger.receive

        def counted(
            queue: StoredQueue,
            now_ms: int,
            max_messages: int,
            *,
            max_bytes: int | None = None,
            lease_ms: int | None = None,
            first_always: bool = True,
        ) -> list[Entry]:
            self.looks += 1
            return look(queue, now_ms, max_messages, max_bytes=max_bytes, lease_ms=lease_ms, first_always=first_always)

        self.ledger.receive = counted  # type: ignore[method-assign]

    async def start(self) -> "Rig":
        now_ms = self.clock.now_ms()
        await self.shell.commit(self.ledger.catalog.create_stream("s", now_ms))
        await self.shell.commit(self.ledger.catalog.create_queue(self.stream, "q", self.policy, now_ms))
        return self

    @property
    def stream(self) -> Stream:
        return self.ledger.catalog.stream("s")

    @property
    def queue(self) -> StoredQueue:
        return self.ledger.catalog.queue("q")

    def gather(self, group: str = "") -> Pending:
        """Send without waiting for the commit."""
        self.sent += 1
        message = Message(f"m{self.sent}", b"x", self.clock.now_ms(), 1, group)
        return self.ledger.send(self.stream, [message], self.clock.now_ms())

    async def send(self, group: str = "") -> None:
        await self.shell.commit(self.gather(group))

    def wait(self, limit: int = 1, wait_s: float = LONG_S) -> "asyncio.Task[list[Entry]]":
        return asyncio.create_task(self.shell.receive(self.queue, limit, wait_s=wait_s))

    async def waiting(self, count: int) -> None:
        """Until this many receivers stand in line."""
        while len(self.shell._waiters.get(self.queue.id, ())) != count:
            await turn()

    async def ack(self, *entries: Entry) -> None:
        leases = [entry.lease_id for entry in entries]
        await self.shell.commit(self.ledger.ack(self.queue, leases, self.clock.now_ms()))


async def turn() -> None:
    """Let everything that is ready run once."""
    await asyncio.sleep(0)


def ids(entries: list[Entry]) -> list[str]:
    return [entry.message.id for entry in entries]


@pytest.fixture
def store(tmp_path: Path) -> GatedStore:
    return GatedStore(tmp_path / "queue.db")


@pytest_asyncio.fixture
async def disk(store: GatedStore) -> AsyncIterator[Rig]:
    rig = await Rig(store).start()
    yield rig
    store.gate.set()
    await rig.shell.close()


@pytest_asyncio.fixture
async def memory() -> AsyncIterator[Rig]:
    rig = await Rig(MemoryStore()).start()
    yield rig
    await rig.shell.close()


# Commits


async def test_sends_made_while_a_commit_is_written_share_the_next_one(disk: Rig, store: GatedStore) -> None:
    before = store.commits
    store.gate.clear()
    first = asyncio.create_task(disk.send())
    await until(lambda: disk.shell._committing is not None)
    others = [asyncio.create_task(disk.send()) for _ in range(64)]
    await until(lambda: disk.sent == 65)
    assert not any(task.done() for task in (first, *others))
    store.gate.set()
    await asyncio.gather(first, *others)
    assert store.commits - before == 2


async def test_64_senders_share_few_commits(disk: Rig, store: GatedStore) -> None:
    before = store.commits

    async def sender() -> None:
        for _ in range(20):
            await disk.send()

    await asyncio.gather(*(sender() for _ in range(64)))
    assert disk.queue.counters().total == 64 * 20
    assert store.commits - before <= 64 * 20 / 16


async def test_a_refused_commit_fails_its_callers_and_nobody_else(disk: Rig, store: GatedStore) -> None:
    await disk.send()
    (held,) = await disk.shell.receive(disk.queue, 1)
    store.gate.clear()
    store.errors = [StoreFailed("refused by the test")]
    refused = [asyncio.create_task(disk.send()) for _ in range(3)]
    refused.append(asyncio.create_task(disk.ack(held)))
    await until(lambda: disk.shell._committing is not None and disk.queue.engine.counters().settling == 1)
    await until(lambda: not disk.ledger.has_unwritten())
    kept = [asyncio.create_task(disk.send()) for _ in range(3)]
    await until(lambda: disk.sent == 7)
    store.gate.set()
    outcomes = await asyncio.gather(*refused, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreFailed] * 4
    await asyncio.gather(*kept)
    assert ids(await disk.shell.receive(disk.queue, 10)) == ["m5", "m6", "m7"]
    await disk.ack(held)
    await disk.send()
    assert disk.queue.counters().total == 4


async def test_a_store_that_breaks_fails_its_callers_and_nobody_else(disk: Rig, store: GatedStore) -> None:
    store.errors = [ValueError("not a refusal but a bug")]
    with pytest.raises(StoreFailed, match="not a refusal but a bug"):
        await disk.send()
    await disk.send()
    assert ids(await disk.shell.receive(disk.queue, 10)) == ["m2"]


async def test_a_sender_that_gives_up_holds_up_nobody(disk: Rig, store: GatedStore) -> None:
    store.gate.clear()
    senders = [asyncio.create_task(disk.send()) for _ in range(5)]
    await until(lambda: disk.shell._committing is not None)
    waiting = asyncio.create_task(disk.send())
    await until(lambda: disk.sent == 6)
    senders[2].cancel()
    waiting.cancel()
    await turn()
    store.gate.set()
    outcomes = await asyncio.gather(*senders, waiting, return_exceptions=True)
    gave_up = [isinstance(outcome, asyncio.CancelledError) for outcome in outcomes]
    assert gave_up == [False, False, True, False, False, True]
    await disk.send()
    assert disk.queue.counters().total == 7  # giving up takes nothing back


# Waiting


async def test_an_arrival_wakes_the_one_that_gets_it(memory: Rig) -> None:
    receivers = [memory.wait() for _ in range(2_000)]
    await memory.waiting(2_000)
    looks = memory.looks
    memory.gather()
    await until(receivers[0].done)
    for _ in range(5):
        await turn()
    assert memory.looks - looks == 1
    assert sum(task.done() for task in receivers) == 1
    assert ids(receivers[0].result()) == ["m1"]
    for _ in range(1_999):
        memory.gather()
    got = await asyncio.wait_for(asyncio.gather(*receivers), LONG_S)
    assert sorted(ids([entry for entries in got for entry in entries])) == sorted(f"m{n}" for n in range(1, 2_001))
    assert all(len(entries) == 1 for entries in got)
    assert memory.looks - looks <= 2_100


async def test_waiting_receivers_are_served_in_the_order_they_came(memory: Rig) -> None:
    receivers = [memory.wait() for _ in range(5)]
    await memory.waiting(5)
    for _ in range(5):
        memory.gather()
    assert [ids(await task) for task in receivers] == [["m1"], ["m2"], ["m3"], ["m4"], ["m5"]]


async def test_one_arrival_of_many_messages_wakes_as_many_as_it_takes(disk: Rig) -> None:
    receivers = [disk.wait(limit=2) for _ in range(4)]
    await disk.waiting(4)
    messages = [Message(f"m{number}", b"", 0, 1) for number in range(5)]
    now_ms = disk.clock.now_ms()
    messages = [Message(message.id, b"", now_ms, 1) for message in messages]
    await disk.shell.commit(disk.ledger.send(disk.stream, messages, now_ms))
    await until(lambda: sum(task.done() for task in receivers) == 3)
    assert [ids(task.result()) for task in receivers[:3]] == [["m0", "m1"], ["m2", "m3"], ["m4"]]
    receivers[3].cancel()


async def test_a_cancelled_receiver_passes_its_wake_up_on(memory: Rig) -> None:
    first, second = memory.wait(), memory.wait()
    await memory.waiting(2)
    memory.gather()
    first.cancel()
    assert ids(await asyncio.wait_for(second, LONG_S)) == ["m1"]
    assert first.cancelled()


async def test_a_receiver_cancelled_alone_leaves_the_message(memory: Rig) -> None:
    only = memory.wait()
    await memory.waiting(1)
    memory.gather()
    only.cancel()
    await asyncio.gather(only, return_exceptions=True)
    assert ids(await memory.shell.receive(memory.queue, 1)) == ["m1"]


async def test_a_receiver_woken_for_nothing_is_woken_again(memory: Rig) -> None:
    stays, leaves = memory.wait(), memory.wait()
    await memory.waiting(2)
    leaves.cancel()
    memory.gather()
    stolen = memory.ledger.receive(memory.queue, memory.clock.now_ms(), 1)  # before the woken one could run
    assert ids(stolen) == ["m1"]
    await asyncio.gather(leaves, return_exceptions=True)
    await memory.waiting(1)
    memory.gather()
    assert ids(await asyncio.wait_for(stays, LONG_S)) == ["m2"]


async def test_a_receiver_woken_for_nothing_keeps_its_place(memory: Rig) -> None:
    first, second = memory.wait(), memory.wait()
    await memory.waiting(2)
    memory.gather()
    memory.ledger.receive(memory.queue, memory.clock.now_ms(), 1)
    await memory.waiting(2)
    memory.gather()
    assert ids(await asyncio.wait_for(first, LONG_S)) == ["m2"]
    assert not second.done()
    second.cancel()


def test_a_thousand_waiting_receivers_do_nothing_until_their_time_ends() -> None:
    async def story(loop: CountingLoop) -> None:
        rig = await Rig(MemoryStore()).start()
        receivers = [rig.wait(wait_s=20.0) for _ in range(1_000)]
        await rig.waiting(1_000)
        before, looks = loop.rounds, rig.looks
        await asyncio.sleep(19)
        assert loop.rounds - before <= 5
        assert rig.looks == looks
        assert await asyncio.gather(*receivers) == [[]] * 1_000
        assert loop.time() == pytest.approx(20)
        await rig.shell.close()

    run_counting(story)


async def test_waiting_ends_at_its_time(memory: Rig) -> None:
    assert await memory.wait(wait_s=0.01) == []
    assert await memory.shell.receive(memory.queue, 1) == []
    await memory.waiting(0)


async def test_a_receiver_may_time_out_beside_others(memory: Rig) -> None:
    stays = memory.wait()
    leaves = [memory.wait(wait_s=0.01) for _ in range(20)]
    assert await asyncio.gather(*leaves) == [[]] * 20
    memory.gather()
    assert ids(await asyncio.wait_for(stays, LONG_S)) == ["m1"]


async def test_a_freed_group_wakes_a_waiting_receiver(disk: Rig) -> None:
    await disk.send("a")
    await disk.send("a")
    (first,) = await disk.shell.receive(disk.queue, 10)
    waiter = disk.wait()
    await disk.waiting(1)
    await disk.ack(first)
    assert ids(await asyncio.wait_for(waiter, LONG_S)) == ["m2"]


async def test_a_lease_that_runs_out_wakes_a_waiting_receiver(memory: Rig) -> None:
    memory.gather()
    await memory.shell.receive(memory.queue, 1)
    waiter = memory.wait()
    await memory.waiting(1)
    memory.clock.advance(POLICY.lease_ms / 1000)
    memory.shell.tick()
    (entry,) = await asyncio.wait_for(waiter, LONG_S)
    assert entry.receive_count == 2


async def test_leases_that_another_receiver_found_run_out_wake_a_waiting_one(memory: Rig) -> None:
    memory.gather()
    memory.gather()
    assert len(await memory.shell.receive(memory.queue, 2)) == 2
    waiter = memory.wait()
    await memory.waiting(1)
    memory.clock.advance(POLICY.lease_ms / 1000)
    assert len(await memory.shell.receive(memory.queue, 1)) == 1  # notices both leases, takes one
    memory.shell.tick()
    assert len(await asyncio.wait_for(waiter, LONG_S)) == 1


async def test_the_shell_sets_its_own_timer() -> None:
    rig = await Rig(MemoryStore(), policy=QueuePolicy(lease_ms=20)).start()
    loop = asyncio.get_running_loop()
    start_s, start_ms = loop.time(), rig.clock.now_ms()
    rig.clock.now_ms = lambda: start_ms + int((loop.time() - start_s) * 1000)  # type: ignore[method-assign]
    rig.gather()
    await rig.shell.receive(rig.queue, 1)
    (entry,) = await asyncio.wait_for(rig.wait(), LONG_S)
    assert entry.receive_count == 2
    await rig.shell.close()


@pytest.mark.parametrize("seed", range(30))
async def test_no_wake_up_is_lost_whatever_the_order(seed: int) -> None:
    rig = await Rig(MemoryStore(), policy=QueuePolicy(lease_ms=1_000_000)).start()
    chance = random.Random(seed)
    receivers: list[asyncio.Task[list[Entry]]] = []
    for _ in range(150):
        for _ in range(chance.randrange(1, 5)):  # several things within one turn of the loop
            move = chance.randrange(6)
            if move <= 1:
                receivers.append(rig.wait(limit=chance.randrange(1, 3), wait_s=chance.choice([0.0005, 0.002, LONG_S])))
            elif move == 2:
                rig.gather()
            elif move == 3 and receivers:
                chance.choice(receivers).cancel()
            elif move == 4:
                rig.ledger.receive(rig.queue, rig.clock.now_ms(), 1)
            elif move == 5 and rig.queue.engine.leased:
                lease = chance.choice(list(rig.queue.engine.leases()))
                rig.ledger.release(rig.queue, lease.lease_id, rig.clock.now_ms())
        if chance.random() < 0.5:
            await turn()
        else:
            for _ in range(12):
                await turn()
            # Everything that could run has run: no one sleeps while something is there to be had.
            receivers = [task for task in receivers if not task.done()]
            assert not (receivers and rig.queue.engine.visible)
    for task in receivers:
        task.cancel()
    await asyncio.gather(*receivers, return_exceptions=True)
    assert rig.queue.engine.held == rig.sent
    await rig.waiting(0)
    await rig.shell.close()


async def test_dropping_a_queue_answers_its_waiting_receivers(disk: Rig) -> None:
    receivers = [disk.wait() for _ in range(3)]
    await disk.waiting(3)
    await disk.shell.commit(disk.ledger.catalog.drop_queue(disk.queue))
    assert await asyncio.wait_for(asyncio.gather(*receivers), LONG_S) == [[]] * 3


# Pages


async def test_a_deep_backlog_is_read_as_it_is_needed(store: GatedStore) -> None:
    rig = await Rig(store, Window(messages=5, size_bytes=2_000, lookahead=12)).start()
    for _ in range(40):
        await rig.send()
    assert rig.queue.engine.held <= 6
    seen: list[str] = []
    while entries := await rig.shell.receive(rig.queue, 4):
        seen += ids(entries)
        await rig.ack(*entries)
    assert seen == [f"m{number}" for number in range(1, 41)]
    await rig.shell.close()


async def test_a_page_that_cannot_be_read_is_read_later(store: GatedStore) -> None:
    rig = await Rig(store, Window(messages=2, size_bytes=2_000, lookahead=12)).start()
    for _ in range(4):
        await rig.send()
    store.read_errors = [StoreFailed("unreadable for the test")] * 3
    seen: list[str] = []
    async with asyncio.timeout(LONG_S):
        while len(seen) < 4:
            entries = await rig.shell.receive(rig.queue, 4)
            seen += ids(entries)
            await rig.ack(*entries)
    assert store.read_errors == []
    assert seen == ["m1", "m2", "m3", "m4"]
    await rig.shell.close()


async def test_what_comes_back_while_a_page_cannot_be_read_is_found(store: GatedStore) -> None:
    rig = await Rig(store, Window(messages=2, size_bytes=2_000, lookahead=12), QueuePolicy()).start()
    for _ in range(4):
        await rig.send()
    store.read_errors = [StoreFailed("unreadable for the test")] * 100
    first, second = await rig.shell.receive(rig.queue, 2)
    await until(lambda: not rig.shell._paging)
    waiter = rig.wait()
    await until(lambda: bool(rig.shell._paging))
    rig.ledger.release(rig.queue, first.lease_id, rig.clock.now_ms())
    assert await asyncio.wait_for(waiter, 60) == [first]
    assert second.deadline_ms
    await rig.shell.close()


async def test_senders_and_receivers_beside_paging_lose_and_repeat_nothing(store: GatedStore) -> None:
    rig = await Rig(store, Window(messages=8, size_bytes=2_000, lookahead=40)).start()
    seen: list[str] = []

    async def sender(group: str) -> None:
        for _ in range(100):
            await rig.send(group)

    async def receiver() -> None:
        while len(seen) < 400:
            entries = await rig.shell.receive(rig.queue, 3, wait_s=0.02)
            seen.extend(ids(entries))
            await rig.ack(*entries)

    async with asyncio.timeout(LONG_S):
        await asyncio.gather(*(sender(group) for group in "abcd"), *(receiver() for _ in range(3)))
    assert len(seen) == len(set(seen)) == 400
    assert rig.queue.total == rig.queue.counters().total == 0
    await rig.shell.close()


# The end


async def test_close_answers_waiting_receivers_and_finishes_writes(tmp_path: Path, store: GatedStore) -> None:
    rig = await Rig(store).start()
    receivers = [rig.wait() for _ in range(3)]
    await rig.waiting(3)
    store.gate.clear()
    senders = [asyncio.create_task(rig.send("a")) for _ in range(3)]
    await until(lambda: rig.shell._committing is not None)
    gathered = asyncio.create_task(rig.send("a"))
    await until(lambda: rig.sent == 4)
    closing = asyncio.create_task(rig.shell.close())
    await turn()
    assert not closing.done()
    store.gate.set()
    await asyncio.gather(*senders, gathered, closing)
    got = await asyncio.gather(*receivers)
    assert ids([entry for entries in got for entry in entries]) in (["m1"], [])  # woken by the arrival, or by the end
    reopened = SqliteStore(tmp_path / "queue.db")
    _, (record,) = reopened.open()
    assert reopened.totals(record.id).messages == 4
    reopened.close()


async def test_close_answers_waiting_receivers_with_nothing(memory: Rig) -> None:
    receivers = [memory.wait() for _ in range(50)]
    await memory.waiting(50)
    await memory.shell.close()
    assert await asyncio.wait_for(asyncio.gather(*receivers), LONG_S) == [[]] * 50


@pytest.mark.parametrize("durable", [True, False])
async def test_nothing_works_after_the_end(durable: bool, store: GatedStore) -> None:
    rig = await Rig(store if durable else MemoryStore()).start()
    await rig.send()
    queue = rig.queue
    await rig.shell.close()
    with pytest.raises(QueueClosed):
        await rig.send()
    with pytest.raises(QueueClosed):
        await rig.shell.receive(queue, 1)
    with pytest.raises(QueueClosed):
        await rig.shell.receive(queue, 1, wait_s=LONG_S)


async def test_close_comes_to_an_end_while_callers_go_on(store: GatedStore, tmp_path: Path) -> None:
    rig = await Rig(store).start()
    kept = 0

    async def sender() -> None:
        nonlocal kept
        while True:
            await rig.send()
            kept += 1

    senders = [asyncio.create_task(sender()) for _ in range(8)]
    await until(lambda: kept > 50)
    await asyncio.wait_for(rig.shell.close(), 20)
    outcomes = await asyncio.wait_for(asyncio.gather(*senders, return_exceptions=True), LONG_S)
    assert [type(outcome) for outcome in outcomes] == [QueueClosed] * 8
    reopened = SqliteStore(tmp_path / "queue.db")
    _, (record,) = reopened.open()
    assert reopened.totals(record.id).messages == kept
    reopened.close()
