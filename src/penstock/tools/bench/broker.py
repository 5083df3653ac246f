"""Measures the broker: in-memory rates, the cost of depth, durable sends, memory, and idle cost."""

import asyncio
import gc
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import uvloop

from penstock.broker import AsyncBroker, InternalMessage, MessageQueue, SubscriptionOptions
from penstock.edge.clock import SystemClock
from penstock.edge.node import process_ids
from penstock.engine import MemoryStore
from penstock.engine.store.sqlite import SqliteStore
from penstock.tools.bench.servers import median_rate, rate_of

BODY_BYTES = 1000
ORDERING_KEYS = 10_000
CALLERS = 64
_BATCH = 100
_TOPIC, _SUBSCRIPTION = "bench", "bench-subscription"
_ROOMY = SubscriptionOptions(max_messages=10_000_000, max_bytes=1 << 40, ack_deadline_seconds=600)


class BrokerFigures(msgspec.Struct, kw_only=True):
    """The figures of `penstock bench broker`."""

    unordered_per_s: float
    """Publish → pull → ack of 1 KB messages, in memory, one ack per call."""
    ordered_per_s: float
    """The same over 10,000 ordering keys."""
    durable_sends_per_s: float
    """Publishes of one 1 KB message, 64 callers at once, SQLite with fsync."""
    flat_ratio: float
    """Cost of an operation with 1,000,000 waiting messages over its cost with 1,000; the worse of both kinds."""
    bytes_per_message: float
    """Memory of a waiting message without its body; the worse of both kinds."""
    idle_cpu: float
    """Share of a core with 10,000 subscriptions and 1,000 waiting pulls while idle."""


def bench_broker(rounds: int, report: Callable[[str], None]) -> BrokerFigures:
    """Measure everything; `report` is called with each step."""
    report("publish → pull → ack in memory, without ordering")
    unordered = median_rate(rounds, partial(_cycle_fresh, ordered=False))
    report(f"publish → pull → ack in memory over {ORDERING_KEYS:,} ordering keys")
    ordered = median_rate(rounds, partial(_cycle_fresh, ordered=True))
    report("the same with 1,000 and with 1,000,000 messages waiting")
    flat = max(_flat_ratio(rounds, ordered=False), _flat_ratio(rounds, ordered=True))
    report("memory of waiting messages")
    memory = max(_bytes_per_message(ordered=False), _bytes_per_message(ordered=True))
    report(f"durable sends, {CALLERS} callers at once, SQLite with fsync")
    durable = median_rate(rounds, lambda: uvloop.run(_durable_sends()))
    report("idling with 10,000 subscriptions and 1,000 waiting pulls")
    idle = uvloop.run(_idle_cpu())
    return BrokerFigures(
        unordered_per_s=unordered,
        ordered_per_s=ordered,
        durable_sends_per_s=durable,
        flat_ratio=flat,
        bytes_per_message=memory,
        idle_cpu=idle,
    )


def _broker(*, ordered: bool) -> MessageQueue:
    queue = MessageQueue(SystemClock(), process_ids())
    queue.register_topic(_TOPIC)
    queue.register_subscription(_SUBSCRIPTION, _TOPIC, msgspec.structs.replace(_ROOMY, message_ordering=ordered))
    return queue


def _messages(start: int, count: int, *, ordered: bool) -> list[InternalMessage]:
    body = b"x" * BODY_BYTES
    if not ordered:
        return [InternalMessage(body) for _ in range(count)]
    return [InternalMessage(body, ordering_key=f"key-{n % ORDERING_KEYS}") for n in range(start, start + count)]


def _fill(queue: MessageQueue, count: int, *, ordered: bool) -> None:
    for start in range(0, count, 1000):
        queue.publish(_TOPIC, _messages(start, min(1000, count - start), ordered=ordered))


def _cycle(queue: MessageQueue, count: int, *, ordered: bool) -> int:
    """Publish, pull and ack `count` messages, each acknowledged by its own call."""
    acked = 0
    for start in range(0, count, _BATCH):
        queue.publish(_TOPIC, _messages(start, _BATCH, ordered=ordered))
        for message in queue.pull(_SUBSCRIPTION, _BATCH):
            queue.ack(message.ack_id)
            acked += 1
    return acked


def _cycle_fresh(*, ordered: bool) -> int:
    return _cycle(_broker(ordered=ordered), 100_000, ordered=ordered)


def _flat_ratio(rounds: int, *, ordered: bool) -> float:
    """Measure shallow and deep queues alternately, so that a change of the machine's speed affects both."""
    shallow_queue, deep_queue = _broker(ordered=ordered), _broker(ordered=ordered)
    _fill(shallow_queue, 1_000, ordered=ordered)
    _fill(deep_queue, 1_000_000, ordered=ordered)
    shallow: list[float] = []
    deep: list[float] = []
    for _ in range(rounds):
        shallow.append(rate_of(partial(_cycle, shallow_queue, 50_000, ordered=ordered)))
        deep.append(rate_of(partial(_cycle, deep_queue, 50_000, ordered=ordered)))
    return sorted(shallow)[rounds // 2] / sorted(deep)[rounds // 2]


def _bytes_per_message(*, ordered: bool) -> float:
    count = 50_000
    queue = _broker(ordered=ordered)
    # Each message has its own body and key, as it does from a socket.
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for start in range(0, count, _BATCH):
        queue.publish(
            _TOPIC,
            [
                InternalMessage(bytes(BODY_BYTES), ordering_key=f"key-{n % ORDERING_KEYS}" if ordered else None)
                for n in range(start, start + _BATCH)
            ],
        )
    gc.collect()
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert queue.counters(_SUBSCRIPTION).visible == count
    return used / count - BODY_BYTES


async def _durable_sends() -> int:
    count = 30_000
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        store = SqliteStore(Path(directory) / "broker.db")
        async with await AsyncBroker.open(store, SystemClock(), process_ids()) as broker:
            await broker.register_topic(_TOPIC)
            await broker.register_subscription(_SUBSCRIPTION, _TOPIC, _ROOMY)

            async def caller() -> None:
                message = InternalMessage(b"x" * BODY_BYTES)
                for _ in range(count // CALLERS):
                    await broker.publish(_TOPIC, [message])

            async with asyncio.TaskGroup() as group:
                for _ in range(CALLERS):
                    group.create_task(caller())
            return count // CALLERS * CALLERS


async def _idle_cpu() -> float:
    seconds = 5.0
    async with await AsyncBroker.open(MemoryStore(), SystemClock(), process_ids()) as broker:
        await broker.register_topic(_TOPIC)
        for number in range(10_000):
            await broker.register_subscription(f"subscription-{number}", _TOPIC)
        pulls = [asyncio.create_task(broker.pull(f"subscription-{number}", 10, wait_s=60)) for number in range(1_000)]
        await asyncio.sleep(0.5)
        before = time.process_time()
        await asyncio.sleep(seconds)
        used = time.process_time() - before
        for pull in pulls:
            pull.cancel()
        await asyncio.gather(*pulls, return_exceptions=True)
    return used / seconds
