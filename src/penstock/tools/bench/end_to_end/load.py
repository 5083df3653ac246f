"""The events of the benchmark, and their publication: in batches, or at a pace."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from itertools import islice

from penstock.client import Event
from penstock.client.asynchronous import AsyncPenstock
from penstock.tools.bench.end_to_end.record import Delivered

BATCH = 1_000
FIRST = "0"


def stream_events(
    stream: str, count: int, keys: int, subscriptions: Sequence[str] = (FIRST,), *, after: int = 0
) -> Iterator[Event]:
    """Yield events of a stream, the keys in turn; each key belongs to one subscription.

    `after` is the number of events of this stream before them.
    """
    for number in range(after, after + count):
        key = number % keys
        data = Delivered(stream, number // keys, time.monotonic())
        kind = f"bench:{subscriptions[key % len(subscriptions)]}:{stream}"
        yield Event(type=kind, key=f"{stream}-{key}", data=data)


def pattern_of(subscription: str) -> str:
    """Return the pattern of a subscription's events."""
    return f"bench:{subscription}:**"


async def publish_batches(penstock: AsyncPenstock, events: Iterator[Event]) -> int:
    """Publish batch after batch, as fast as the API accepts them, and return the number of events."""
    published = 0
    while batch := list(islice(events, BATCH)):
        published += len(await penstock.publish_all(batch))
    return published


async def publish_paced(penstock: AsyncPenstock, events: Iterator[Event], per_s: float) -> None:
    """Publish each event at its time, whatever became of those before it."""
    loop = asyncio.get_running_loop()
    due_s = loop.time()
    async with asyncio.TaskGroup() as publishing:
        # An event is created when it is due: it carries that time.
        while event := next(events, None):
            publishing.create_task(_publish(penstock, event))
            due_s += 1 / per_s
            await asyncio.sleep(due_s - loop.time())


async def _publish(penstock: AsyncPenstock, event: Event) -> None:
    await penstock.publish(event)
