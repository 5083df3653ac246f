"""Publishing, acking, snapshots, seeking and restarts in any order, against a model that knows everything."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker.async_broker import AsyncBroker
from penstock.broker.message import InternalMessage
from penstock.broker.options import SubscriptionOptions
from penstock.domain.ids import TsidFactory
from penstock.engine.queue.policy import Window
from penstock.engine.store.memory import MemoryStore
from penstock.engine.store.sqlite import SqliteStore
from penstock.testing.clock import VirtualClock
from tests.rigs.search import examples

WINDOW = Window(messages=4, size_bytes=1 << 20, lookahead=8)
NAMES = ("retaining", "plain")
OPTIONS = {"retaining": SubscriptionOptions(retain_acked=True), "plain": SubscriptionOptions(message_ordering=True)}

KINDS = ("publish", "ack", "lease", "snapshot", "to snapshot", "to time", "restart")

Step = tuple[str, str, int]
steps = st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(NAMES), st.integers(1, 6)), max_size=25)


class World:
    """The broker beside a model: when each message was published, who has not acked it, what each snapshot holds."""

    def __init__(self, directory: Path | None) -> None:
        self.clock = VirtualClock(start_ms=0)
        self.sent_ms: dict[int, int] = {}
        self.waiting: dict[str, set[int]] = {each: set() for each in NAMES}
        self.snapshots: list[tuple[set[int], int]] = []
        self._directory = directory
        # One for all starts: on a clock that stands still, a second one would make the same ids.
        self._ids = TsidFactory(1)
        self.broker: AsyncBroker

    async def open(self) -> None:
        store = MemoryStore() if self._directory is None else _sqlite(self._directory)
        self.broker = await AsyncBroker.open(store, self.clock, self._ids, WINDOW)
        await self.broker.register_topic("t")
        for each in NAMES:
            await self.broker.register_subscription(each, "t", OPTIONS[each])

    async def take(self, each: str, most: int) -> set[int]:
        messages = await self.broker.pull(each, most)
        await self.broker.ack([message.ack_id for message in messages])
        return {int(message.data) for message in messages}

    async def step(self, kind: str, each: str, number: int) -> None:
        if kind == "publish":
            await self._publish(number)
        elif kind == "ack":
            taken = await self.take(each, number)
            assert taken <= self.waiting[each]
            self.waiting[each] -= taken
        elif kind == "lease":
            for message in await self.broker.pull(each, number):
                assert int(message.data) in self.waiting[each]
                self.broker.nack(message.ack_id)
        elif kind == "snapshot":
            await self.broker.create_snapshot(str(len(self.snapshots)), each, 10**9)
            self.snapshots.append((set(self.waiting[each]), len(self.sent_ms)))
        elif kind == "to snapshot" and number < len(self.snapshots):
            await self.broker.seek_to_snapshot(each, str(number))
            held, published = self.snapshots[number]
            self.waiting[each] = held | set(range(published, len(self.sent_ms)))
        elif kind == "to time":
            await self._to_time(each, min(number * 1000, self.clock.now_ms()))
        elif kind == "restart" and self._directory is not None:
            await self.broker.close()
            await self.open()

    async def _publish(self, count: int) -> None:
        self.clock.advance(1)
        numbers = range(len(self.sent_ms), len(self.sent_ms) + count)
        await self.broker.publish("t", [InternalMessage(str(n).encode(), ordering_key=f"k{n % 2}") for n in numbers])
        self.sent_ms |= dict.fromkeys(numbers, self.clock.now_ms())
        for waiting in self.waiting.values():
            waiting.update(numbers)

    async def _to_time(self, each: str, floor_ms: int) -> None:
        await self.broker.seek(each, floor_ms)
        candidates = self.sent_ms if each == "retaining" else self.waiting[each]
        self.waiting[each] = {number for number in candidates if self.sent_ms[number] >= floor_ms}


def _sqlite(directory: Path) -> SqliteStore:
    return SqliteStore(directory / "replay.db", durability="survives-process-crash-only")


async def run(directory: Path | None, story: list[Step]) -> None:
    world = World(directory)
    await world.open()
    try:
        for step in story:
            await world.step(*step)
        for each in NAMES:
            found: set[int] = set()
            while got := await world.take(each, 100):
                assert not found & got
                found |= got
            assert found == world.waiting[each]
    finally:
        await world.broker.close()


@given(steps)
@settings(max_examples=examples(60))
async def test_in_memory(story: list[Step]) -> None:
    await run(None, story)


@given(steps)
@settings(max_examples=examples(40))
async def test_on_sqlite(story: list[Step]) -> None:
    with TemporaryDirectory() as directory:
        await run(Path(directory), story)
