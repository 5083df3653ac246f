"""A quick subscriber alone, and beside others that are slow, hang, are limited, or fail."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from penstock.client.calls import SubscriptionSettings
from penstock.client.types import PoolBody
from penstock.tools.bench.end_to_end.figures import Neighbour, percentile_ms
from penstock.tools.bench.end_to_end.load import pattern_of, publish_batches, publish_paced, stream_events
from penstock.tools.bench.end_to_end.phases import SLOW_S, EndToEndRun
from penstock.tools.bench.end_to_end.receiver import receiver

_PER_S = 50.0
_KEYS = 500
_SHARED = "bench-shared"
_LIMITED = "bench-limited"
_LIMIT_PER_MINUTE = 60
# How long events of the quick subscriber may be late before the neighbour is removed.
_LATE_S = 15.0
# How long the quick subscriber may take to recover after that.
_RECOVERY_S = 60.0
_ALLOWED_MS = 100.0


class Other(NamedTuple):
    """A subscriber that should not disturb others: its name, how it answers, and its backlog."""

    name: str
    path: str
    backlog: int
    limited: bool = False

    def text(self) -> str:
        """Return where the quick subscriber is."""
        return self.name if not self.path else f"beside a {self.name} one"


ALONE = Other("alone", "", 0)
OTHERS = (
    Other("slow", f"/slow/{SLOW_S}", 1_000),
    Other("limited", "/ok", 5_000, limited=True),
    Other("failing", "/fail", 1_000),
    Other("hanging", "/hang", 1_000),
)


class _Measured(NamedTuple):
    published: int
    in_time: int
    missing: int
    p50_ms: float
    p99_ms: float


async def isolation(run: EndToEndRun, seconds: float) -> list[Neighbour]:
    """Measure the quick subscriber beside each of the others, with default settings and in a shared pool."""
    await run.penstock.put_pool(_SHARED, PoolBody().concurrency)
    # A limit of a shared pool is also the quick subscriber's.
    shared = [other for other in OTHERS if not other.limited]
    scenes = [(other, None) for other in (ALONE, *OTHERS)] + [(other, _SHARED) for other in (ALONE, *shared)]
    neighbours: list[Neighbour] = []
    alone_ms = 0.0
    for other, pool in scenes:
        measured = await _measure(run, other, pool, seconds)
        alone_ms = measured.p99_ms if other is ALONE else alone_ms
        neighbours.append(_compared(other, pool, measured, alone_ms))
        if measured.missing:
            # What comes next would measure this one's traces.
            run.show(f"the quick subscriber has not recovered from a {other.name} one; giving up")
            break
    return neighbours


def _compared(other: Other, pool: str | None, measured: _Measured, alone_ms: float) -> Neighbour:
    return Neighbour(
        beside=other.name,
        pool="own" if pool is None else "shared",
        published=measured.published,
        delivered_in_time=measured.in_time,
        never_delivered=measured.missing,
        p50_ms=measured.p50_ms,
        p99_ms=measured.p99_ms,
        ratio=measured.p99_ms / alone_ms,
        within=measured.p99_ms <= 2 * alone_ms + _ALLOWED_MS,
    )


async def _measure(run: EndToEndRun, other: Other, pool: str | None, seconds: float) -> _Measured:
    run.show(f"a quick subscriber, {other.text()}, {'default settings' if pool is None else 'one shared pool'}")
    stream, count = f"quick-{other.name}-{pool or 'own'}", int(seconds * _PER_S)
    quick = await run.penstock.subscribe(stream, pattern_of(stream), f"{run.receiver.url}/ok", **_in(pool))
    async with _neighbour(run, other, pool, count):
        await publish_paced(run.penstock, stream_events(stream, count, _KEYS, [stream]), _PER_S)
        in_time = await run.receiver.wait(stream, count, run.show, limit_s=_LATE_S)
    missing = count - (await run.receiver.wait(stream, count, run.show, limit_s=_RECOVERY_S)).distinct
    if not missing:
        await run.penstock.unsubscribe(quick.subscription.id)
        run.expect(stream, count)
    latencies_ms = await run.receiver.latencies_ms(stream) + [float("inf")] * missing
    return _Measured(count, in_time.distinct, missing, percentile_ms(latencies_ms, 50), percentile_ms(latencies_ms, 99))


def _in(pool: str | None) -> SubscriptionSettings:
    return {} if pool is None else {"pool": pool}


@asynccontextmanager
async def _neighbour(run: EndToEndRun, other: Other, pool: str | None, more: int) -> AsyncIterator[None]:
    """Subscribe the other one, with its backlog and with more events at the quick one's pace; remove it at the end."""
    if other is ALONE:
        yield
        return
    stream = f"{other.name}-{pool or 'own'}"
    if other.limited:
        pool = _LIMITED
        await run.penstock.put_pool(_LIMITED, PoolBody().concurrency, _LIMIT_PER_MINUTE)
    # A receiver of its own: breakers of endpoints on one host may be common to them.
    async with receiver() as its_receiver:
        made = await run.penstock.subscribe(stream, pattern_of(stream), f"{its_receiver.url}{other.path}", **_in(pool))
        await publish_batches(run.penstock, stream_events(stream, other.backlog, _KEYS, [stream]))
        await its_receiver.wait(stream, 1, run.show, limit_s=_LATE_S)
        events = stream_events(stream, more, _KEYS, [stream], after=other.backlog)
        publishing = asyncio.create_task(publish_paced(run.penstock, events, _PER_S))
        try:
            yield
            await publishing
        finally:
            publishing.cancel()
            await run.penstock.unsubscribe(made.subscription.id)
            run.faults.add_order(await its_receiver.report(stream))
