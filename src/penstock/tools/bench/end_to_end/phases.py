"""The phases of a run beside isolation: the first events, the bare client, the rush and the calm."""

import asyncio
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

from penstock.client.asynchronous import AsyncPenstock
from penstock.client.event import encode_event
from penstock.domain.errors import Unavailable
from penstock.tools.bench.bare_client import post, post_all
from penstock.tools.bench.end_to_end.figures import Faults, percentile_ms
from penstock.tools.bench.end_to_end.installation import Installation
from penstock.tools.bench.end_to_end.load import FIRST, pattern_of, publish_batches, publish_paced, stream_events
from penstock.tools.bench.end_to_end.processor_time import Usage, spent_s
from penstock.tools.bench.end_to_end.receiver import Receiver, receiver

SLOW_S = 5
_RUSH = "rush"
_FIRST_STREAM = "first"
_CONNECTIONS = 64
_FIRST_EVENTS = 100
_FIRST_LIMIT_S = 45.0
# An event is published well after the one before it of the same key was accepted.
_CALM_KEYS = 500
# What a delivery carries beside its body: the same number of headers of the same length.
_HEADERS = {
    "content-type": "application/cloudevents+json; charset=utf-8",
    "user-agent": "penstock",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "penstock-job": "0HZXEQ5Y8JYKE",
    "penstock-event": "0HZXEQ5Y8JYKE",
    "penstock-subscription": "0HZXEQ5Y8JYKE",
    "penstock-attempt": "1",
    "webhook-id": "0HZXEQ5Y8JYKE",
    "webhook-timestamp": "1763432578",
    "webhook-signature": "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=",
}

Show = Callable[[str], None]


class EndToEndRun(NamedTuple):
    """What every phase uses; `show` reports what runs now."""

    installation: Installation
    penstock: AsyncPenstock
    receiver: Receiver
    faults: Faults
    show: Show
    expected: dict[str, int]
    """The number of events of each stream that the receiver must have at the end."""

    def expect(self, stream: str, published: int) -> None:
        """Check at the end that everything of a stream has arrived, in order."""
        self.expected[stream] = published

    async def check(self) -> None:
        """Count what is missing or out of order; what was late has time to arrive."""
        for stream, published in self.expected.items():
            self.faults.add(published, await self.receiver.wait(stream, published, self.show))


async def publish_first(run: EndToEndRun) -> None:
    """Publish a hundred events, each when the one before it has arrived; fewer if that takes too long."""
    run.show("the first hundred events, one after another")
    await run.penstock.subscribe(FIRST, pattern_of(FIRST), f"{run.receiver.url}/ok")
    published, began_s = 0, time.monotonic()
    for event in stream_events(_FIRST_STREAM, _FIRST_EVENTS, _FIRST_EVENTS):
        await run.penstock.publish(event)
        published += 1
        await run.receiver.wait(_FIRST_STREAM, published, run.show)
        if time.monotonic() - began_s > _FIRST_LIMIT_S:
            break
    run.expect(_FIRST_STREAM, published)


class FirstEvents(NamedTuple):
    """Latencies after the start."""

    first_ms: float
    hundredth_ms: float


async def first_events(run: EndToEndRun) -> FirstEvents:
    """Return the latencies of the first events, read at the end: the first one may have been late."""
    latencies_ms = await run.receiver.latencies_ms(_FIRST_STREAM)
    last_ms = latencies_ms[1:][-10:]
    return FirstEvents(
        latencies_ms[0] if latencies_ms else float("inf"), statistics.median(last_ms) if last_ms else float("inf")
    )


class Bare(NamedTuple):
    """A client that only posts: what a delivery costs at least on this machine, busy as it is."""

    per_s: float
    cpu_us: float


async def bare(run: EndToEndRun, events: int, keys: int) -> Bare:
    """Post the bodies of the rush to the receiver."""
    run.show(f"a bare client that posts {events:,} bodies")
    stream = "bare"
    host = run.receiver.url.removeprefix("http://")
    requests = [post(host, "/ok", _HEADERS, encode_event(event)) for event in stream_events(stream, events, keys)]
    began_s, cpu_s = time.monotonic(), time.process_time()
    await post_all(run.receiver.port, iter(requests), _CONNECTIONS)
    return Bare(events / (time.monotonic() - began_s), (time.process_time() - cpu_s) / events * 1e6)


class RushSize(NamedTuple):
    """How many events over how many keys, to how many subscriptions, some of them slow."""

    events: int
    keys: int
    subscriptions: int = 1
    slow: int = 0

    @property
    def names(self) -> list[str]:
        """The names of the subscriptions."""
        return [str(number) for number in range(self.subscriptions)]

    @property
    def quick_events(self) -> int:
        """The number of events for subscriptions that are not slow."""
        quick = self.subscriptions - self.slow
        return sum(number % self.keys % self.subscriptions < quick for number in range(self.events))

    def text(self) -> str:
        """Return the size in words."""
        to = "one subscription" if self.subscriptions == 1 else f"{self.subscriptions:,} subscriptions"
        slow = f", {self.slow:,} of them slow" if self.slow else ""
        return f"{self.events:,} events over {self.keys:,} keys to {to}{slow}"


class Rush(NamedTuple):
    """The figures of many events at once."""

    deliveries_per_s: float
    published_per_s: float
    cpu_us_by_part: dict[str, float]
    after: Usage
    written: tuple[float, ...] | None
    """Row versions, bytes of write-ahead log and transactions of PostgreSQL for each delivery."""


async def rush(run: EndToEndRun, size: RushSize) -> Rush:
    """Publish all events as fast as the API accepts them, and wait for the last one of the quick subscribers."""
    async with receiver() as slow_receiver:
        await _subscribe(run, size, slow_receiver)
        run.show(size.text())
        counts = run.installation.postgres
        written = None if counts is None else counts.settled()
        before, began_s = run.installation.usage(), time.monotonic()
        publishing = asyncio.create_task(_timed_publish(run.penstock, size))
        report = await run.receiver.wait(_RUSH, size.quick_events, run.show)
        after, slow_report = run.installation.usage(), await slow_receiver.report(_RUSH)
        published_s = await publishing
        if not report.distinct:
            raise Unavailable(f"none of {size.events:,} events was delivered")
        delivered = report.distinct + slow_report.distinct
        per = None if counts is None or written is None else counts.settled().per(written, delivered)
        run.expect(_RUSH, size.quick_events)
        if size.slow:
            run.show(f"{size.events - size.quick_events:,} events to slow subscribers")
            late = await slow_receiver.wait(_RUSH, size.events - size.quick_events, run.show)
            run.faults.add(size.events - size.quick_events, late)
    return Rush(
        deliveries_per_s=report.distinct / (report.last_s - began_s),
        published_per_s=size.events / published_s,
        cpu_us_by_part={part: seconds / delivered * 1e6 for part, seconds in spent_s(before, after).items()},
        after=after,
        written=per,
    )


async def _subscribe(run: EndToEndRun, size: RushSize, slow_receiver: Receiver) -> None:
    """Subscribe all but the first one, which exists; the last ones are slow."""
    slow_names = set(size.names[len(size.names) - size.slow :])
    for name in size.names[1:]:
        target = f"{slow_receiver.url}/slow/{SLOW_S}" if name in slow_names else f"{run.receiver.url}/ok"
        await run.penstock.subscribe(name, pattern_of(name), target)


async def _timed_publish(penstock: AsyncPenstock, size: RushSize) -> float:
    began_s = time.monotonic()
    await publish_batches(penstock, stream_events(_RUSH, size.events, size.keys, size.names))
    return time.monotonic() - began_s


class Calm(NamedTuple):
    """Latencies at a pace that the machine sustains."""

    p50_ms: float
    p99_ms: float


async def calm(run: EndToEndRun, events: int, per_s: float) -> Calm:
    """Publish events at a pace, and return how long they took from the publish call to the receiver."""
    run.show(f"{events:,} events at {per_s:g}/s")
    stream = "calm"
    await publish_paced(run.penstock, stream_events(stream, events, _CALM_KEYS), per_s)
    await run.receiver.wait(stream, events, run.show)
    run.expect(stream, events)
    latencies_ms = await run.receiver.latencies_ms(stream)
    return Calm(percentile_ms(latencies_ms, 50), percentile_ms(latencies_ms, 99))
