"""A queue over a real store against a plain model of it, through refused commits and crashes."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.domain.ids import TsidFactory
from penstock.domain.message import Message
from penstock.engine.blocking_shell import BlockingShell
from penstock.engine.errors import LeaseNotFound, StoreFailed
from penstock.engine.ledger import Ledger
from penstock.engine.pending import Pending
from penstock.engine.queue.entry import LEASED, Entry
from penstock.engine.queue.policy import Grouping, QueuePolicy, Window
from penstock.engine.store.memory import MemoryStore
from penstock.engine.store.port import Shares, Store, StreamRecord, WriteBatch
from penstock.engine.store.sqlite import SqliteStore
from penstock.engine.stored_queue import StoredQueue
from penstock.engine.stream import Stream
from penstock.testing.clock import VirtualClock
from tests.rigs.search import examples

LEASE_MS = 20_000
DEDUP_MS = 60_000
QUEUES = st.sampled_from(["a", "b", "from-a", "from-b"])
GROUPS = st.sampled_from(["", "x", "y", "z"])
SECONDS = st.sampled_from([0, 0, 1, 5, 19, 30])


class TouchyStore(SqliteStore):
    """A store that refuses its next commit when told to."""

    refuse = False

    def apply(self, batch: WriteBatch) -> Shares:
        if self.refuse:
            self.refuse = False
            raise StoreFailed("refused by the test")
        return super().apply(batch)


class WatchedLedger(Ledger):
    """A ledger that remembers what it moved last."""

    moved: Sequence[Entry] = ()

    def move(
        self,
        source: StoredQueue,
        entries: list[Entry],
        target: Stream,
        messages: Sequence[Message],
        skips: Mapping[int, int] | None = None,
    ) -> Pending:
        self.moved = list(entries)
        return super().move(source, entries, target, messages, skips)


class Held:
    """A message as the model knows it; `deadline_ms` is 0 while no one has it."""

    def __init__(self, message: Message) -> None:
        self.message = message
        self.due_ms = message.deliver_at_ms
        self.deadline_ms = 0
        self.lease_id = 0
        self.receives = 0
        """How often it was handed out, as far as this process knows."""
        self.kept_receives = 0
        """The same, as far as it must be known after a crash."""

    def leased(self, now_ms: int) -> bool:
        return self.deadline_ms > now_ms

    def waits(self, now_ms: int) -> bool:
        return not self.leased(now_ms) and self.due_ms <= now_ms


Line = list[Held]
"""A queue in the model: everything it is responsible for, in the order it was sent."""


def heads(line: Line, grouping: Grouping, now_ms: int) -> Line:
    """What a receive may begin with: messages that order does not hold back."""
    if grouping is Grouping.NONE:
        return [held for held in line if held.waits(now_ms)]
    found: Line = []
    seen: set[str] = set()
    for held in line:
        group = held.message.group
        if held.waits(now_ms) and group not in seen:
            found.append(held)
        if group:
            seen.add(group)
    return found


def check_order(line: Line, grouping: Grouping, now_ms: int, got: list[str]) -> None:
    """Whether a receive or a move could take these, each of them in its turn."""
    first = heads(line, grouping, now_ms)
    entry = [held.message.id for held in first if grouping is Grouping.NONE or not held.message.group]
    got_loose = [name for name in got if name in entry]
    assert got_loose == entry[: len(got_loose)]
    grouped: dict[str, list[str]] = {}
    for name in got:
        if name not in entry:
            (held,) = [held for held in line if held.message.id == name]
            grouped.setdefault(held.message.group, []).append(name)
    for group, names in grouped.items():
        lane = [held for held in line if held.message.group == group]
        assert names == [held.message.id for held in lane[: len(names)]]
        assert all(held.waits(now_ms) for held in lane[: len(names)])
        if grouping is Grouping.ONE:
            assert len(names) == 1


class QueueMachine(RuleBasedStateMachine):
    """Stream `main` (with deduplication) has queue `a`, at times `b`; what is moved from one goes to `from-` it."""

    durable = True

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock()
        self.ids = TsidFactory(1)  # outlives a crash, as the clock stands still and would give the same ids again
        self.number = 0
        self.lines: dict[str, Line] = {"a": [], "from-a": [], "from-b": []}
        self.known: dict[str, tuple[int, str]] = {}
        self.first_taken: dict[tuple[str, str], int] = {}
        self.refused_once = False

    @initialize(grouping=st.sampled_from(list(Grouping)), lookahead=st.sampled_from([12, 200, 200]))
    def start(self, grouping: Grouping, lookahead: int) -> None:
        self.grouping = grouping
        self.policy = QueuePolicy(grouping=grouping, lease_ms=LEASE_MS)
        self.window = Window(messages=5, size_bytes=2_000, lookahead=lookahead)
        self.directory = tempfile.TemporaryDirectory() if self.durable else None
        self.open()
        catalog = self.ledger.catalog
        self.shell.commit(catalog.create_stream("main", self.now_ms, dedup_window_ms=DEDUP_MS))
        self.shell.commit(catalog.create_queue(catalog.stream("main"), "a", self.policy, self.now_ms))
        for name in ("from-a", "from-b"):
            self.shell.commit(catalog.create_stream_with_queue(name, self.policy, self.now_ms))

    def open(self) -> None:
        self.store: Store
        if self.directory is None:
            self.store = MemoryStore()
        else:
            path = Path(self.directory.name) / "queue.db"
            self.store = TouchyStore(path, durability="survives-process-crash-only")
        self.ledger = WatchedLedger(self.store, self.ids, self.window)
        self.shell = BlockingShell(self.ledger, self.clock)

        def dedup_window(record: StreamRecord) -> int:
            return DEDUP_MS if record.name == "main" else 0

        self.ledger.catalog.open(self.now_ms, lambda _: self.policy, dedup_window)

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    def queue(self, name: str) -> StoredQueue:
        return self.ledger.catalog.queue(name)

    def attempt(self, refuse: bool, operation: Pending) -> bool:
        """Commit an operation, or see it refused; whether it was kept."""
        if not (refuse and isinstance(self.store, TouchyStore)):
            self.shell.commit(operation)
            return True
        self.store.refuse = self.refused_once = True
        with pytest.raises(StoreFailed):
            self.shell.commit(operation)
        return False

    # Messages

    @rule(
        specs=st.lists(
            st.tuples(GROUPS, st.sampled_from([0, 0, 0, 5]), st.sampled_from(["", "", "d1", "d2"])),
            min_size=1,
            max_size=4,
        ),
        size=st.sampled_from([1, 50, 900]),
        refuse=st.sampled_from([False, False, False, True]),
    )
    def send(self, specs: list[tuple[str, int, str]], size: int, refuse: bool) -> None:
        messages = []
        for group, delay_s, dedup_id in specs:
            self.number += 1
            due_ms = self.now_ms + delay_s * 1000 if delay_s else 0
            name = f"m{self.number}"
            messages.append(Message(name, b"x", self.now_ms, size, group, dedup_id=dedup_id, deliver_at_ms=due_ms))
        send = self.ledger.send(self.ledger.catalog.stream("main"), messages, self.now_ms)
        if not self.attempt(refuse, send):
            return
        for message, receipt in zip(messages, send.receipts, strict=True):
            expires_ms, original = self.known.get(message.dedup_id, (0, ""))
            if message.dedup_id and expires_ms > self.now_ms:
                assert receipt.message_id == original
                continue
            assert receipt.message_id == message.id
            if message.dedup_id:
                self.known[message.dedup_id] = (self.now_ms + DEDUP_MS, message.id)
            for name in ("a", "b"):
                if name in self.lines:
                    self.lines[name].append(Held(message))

    @rule(name=QUEUES, limit=st.integers(1, 12))
    def receive(self, name: str, limit: int) -> None:
        if name not in self.lines:
            return
        line, now_ms, queue = self.lines[name], self.now_ms, self.queue(name)
        entries = self.shell.receive(queue, limit)
        got = [entry.message.id for entry in entries]
        assert len(got) <= limit
        check_order(line, self.grouping, now_ms, got)
        if len(got) < limit and queue.engine.held < self.window.lookahead:
            missed = {held.message.id for held in heads(line, self.grouping, now_ms)} - set(got)
            assert not missed, f"{missed} could have been had"
        by_id = {held.message.id: held for held in line}
        for entry in entries:
            held = by_id[entry.message.id]
            assert entry.message == held.message
            assert entry.deadline_ms == now_ms + LEASE_MS
            assert held.kept_receives < entry.receive_count <= held.receives + 1
            if not held.receives and held.message.group and self.grouping is not Grouping.NONE:
                lane = (name, held.message.group)
                assert entry.seq >= self.first_taken.get(lane, 0)
                self.first_taken[lane] = entry.seq
            held.receives = entry.receive_count
            held.lease_id, held.deadline_ms = entry.lease_id, entry.deadline_ms

    @rule(name=QUEUES, data=st.data(), refuse=st.sampled_from([False, False, False, True]))
    def ack(self, name: str, data: st.DataObject, refuse: bool) -> None:
        chosen = self.choose(name, data)
        if not chosen:
            return
        leases = [held.lease_id for held in chosen]
        if all(held.leased(self.now_ms) for held in chosen):
            if self.attempt(refuse, self.ledger.ack(self.queue(name), leases, self.now_ms)):
                self.lines[name] = [held for held in self.lines[name] if held not in chosen]
        else:
            with pytest.raises(LeaseNotFound):
                self.ledger.ack(self.queue(name), leases, self.now_ms)

    @rule(name=QUEUES, data=st.data(), delay_s=SECONDS)
    def nack(self, name: str, data: st.DataObject, delay_s: int) -> None:
        for held in self.choose(name, data):
            if not held.leased(self.now_ms):
                with pytest.raises(LeaseNotFound):
                    self.ledger.release(self.queue(name), held.lease_id, self.now_ms, delay_s * 1000)
                continue
            self.ledger.release(self.queue(name), held.lease_id, self.now_ms, delay_s * 1000)
            held.deadline_ms, held.due_ms = 0, self.now_ms + delay_s * 1000
            held.kept_receives = held.receives
        self.shell.commit()

    @rule(name=QUEUES, data=st.data(), seconds=st.sampled_from([1, 10, 100]))
    def move_deadline(self, name: str, data: st.DataObject, seconds: int) -> None:
        for held in self.choose(name, data):
            if held.leased(self.now_ms):
                held.deadline_ms = self.now_ms + seconds * 1000
                self.ledger.set_deadline(self.queue(name), held.lease_id, held.deadline_ms, self.now_ms)

    def choose(self, name: str, data: st.DataObject) -> Line:
        """Some messages that were handed out and not settled, their leases run out or not."""
        out = [held for held in self.lines.get(name, []) if held.deadline_ms]
        return data.draw(st.lists(st.sampled_from(out), unique_by=id, max_size=4)) if out else []

    @rule(seconds=SECONDS, run_due=st.booleans())
    def time_passes(self, seconds: int, run_due: bool) -> None:
        self.clock.advance(seconds)
        if run_due:
            self.shell.run_due()

    @rule(name=st.sampled_from(["a", "b"]), limit=st.integers(1, 6), refuse=st.booleans())
    def redrive(self, name: str, limit: int, refuse: bool) -> None:
        if name not in self.lines:
            return
        target = self.ledger.catalog.stream(f"from-{name}")
        pending, count = self.ledger.redrive(self.queue(name), target, self.now_ms, limit)
        got = [entry.message.id for entry in self.ledger.moved]
        assert count == len(got) <= limit
        check_order(self.lines[name], self.grouping, self.now_ms, got)
        if self.attempt(refuse, pending):
            moved = {held.message.id: held for held in self.lines[name] if held.message.id in got}
            self.lines[name] = [held for held in self.lines[name] if held.message.id not in got]
            self.lines[f"from-{name}"] += [Held(moved[one].message) for one in got]

    # Queues

    @rule(refuse=st.booleans())
    def create_or_drop_the_second_queue(self, refuse: bool) -> None:
        catalog = self.ledger.catalog
        if "b" in self.lines:
            if self.attempt(refuse, catalog.drop_queue(self.queue("b"))):
                del self.lines["b"]
                self.first_taken = {lane: seq for lane, seq in self.first_taken.items() if lane[0] != "b"}
        elif self.attempt(refuse, catalog.create_queue(catalog.stream("main"), "b", self.policy, self.now_ms)):
            self.lines["b"] = []

    @precondition(lambda self: self.number > 5)
    @rule(name=QUEUES, refuse=st.booleans())
    def purge(self, name: str, refuse: bool) -> None:
        if name in self.lines and self.attempt(refuse, self.ledger.catalog.purge(self.queue(name))):
            self.lines[name] = []

    @precondition(lambda self: self.durable)
    @rule()
    def crash(self) -> None:
        self.store.close()  # only the lock and the files: the ledger writes nothing on this way
        self.open()
        for line in self.lines.values():
            for held in line:
                held.deadline_ms, held.due_ms = 0, held.message.deliver_at_ms
                if self.refused_once:
                    held.kept_receives = 0  # the count may have been part of what was refused

    # What always holds

    @invariant()
    def the_queues_hold_what_the_model_holds(self) -> None:
        if not hasattr(self, "ledger"):
            return
        assert set(self.ledger.catalog.queues) == set(self.lines)
        for name, line in self.lines.items():
            queue, counters = self.queue(name), self.queue(name).counters()
            assert queue.total == counters.total == len(line)
            assert queue.total_bytes == counters.total_bytes == sum(held.message.size_bytes for held in line)
            assert counters.settling == queue.incoming == 0
            in_memory = queue.engine.peek(0, 1_000)
            assert len(in_memory) + queue.stored == len(line)
            in_line = [held.message.id for held in line]
            # The window is the front of the line, so what is in the store comes after all of it.
            assert [entry.message.id for entry in in_memory] == in_line[: len(in_memory)]
            out = {entry.message.id: entry for entry in in_memory if entry.state is LEASED}
            for held in line:
                if held.leased(self.now_ms):
                    entry = out[held.message.id]
                    assert (entry.lease_id, entry.deadline_ms) == (held.lease_id, held.deadline_ms)
            if self.grouping is Grouping.ONE:
                groups = [entry.message.group for entry in out.values() if entry.message.group]
                assert len(groups) == len(set(groups))

    def teardown(self) -> None:
        if not hasattr(self, "ledger"):
            return
        try:
            self.drain()
        finally:
            self.store.close()
            if self.directory is not None:
                self.directory.cleanup()

    def drain(self) -> None:
        """Everything can be had and settled in the end, and nothing of it stays in the store."""
        for name in self.lines:
            for _ in range(len(self.lines[name]) + 1):
                self.clock.advance(200)
                entries = self.shell.receive(self.queue(name), 1_000)
                leases = [entry.lease_id for entry in entries]
                self.shell.commit(self.ledger.ack(self.queue(name), leases, self.now_ms))
                gone = {entry.message.id for entry in entries}
                self.lines[name] = [held for held in self.lines[name] if held.message.id not in gone]
            assert self.lines[name] == []
            assert self.queue(name).total == 0
        if isinstance(self.store, TouchyStore):
            assert self.store._reader is not None
            for table in ("segments", "acks", "deliveries"):
                assert self.store._reader.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table


class MemoryMachine(QueueMachine):
    """The same without a store."""

    durable = False


TestQueueOnSqlite = QueueMachine.TestCase
TestQueueOnSqlite.settings = settings(max_examples=examples(100), stateful_step_count=40)
TestQueueInMemory = MemoryMachine.TestCase
TestQueueInMemory.settings = settings(max_examples=examples(100), stateful_step_count=40)
