"""A router for tests of what stands around it: it remembers what it was told, and shows realistic data."""

import asyncio

from penstock.delivery.breakers import BreakerView
from penstock.domain.errors import FailedPrecondition
from penstock.router.config.configuration import RouterConfiguration
from penstock.router.monitoring.views import (
    InFlightFilter,
    InFlightPage,
    InFlightPosition,
    InFlightView,
    QueueView,
    RouterGroupView,
    RouterPoolView,
)

NOW_MS = 1_700_000_000_000


class FakeRouter:
    """Satisfies RouterSurface."""

    def __init__(self) -> None:
        self.applied: list[RouterConfiguration] = []
        self.apply_fails: Exception | None = None
        self.most_applies_at_once = 0
        self.changes: list[tuple[str, int | None, int | None, bool]] = []
        self.is_busy = False
        self.restarted: list[str] = []
        self.pool_views = [pool_view("P"), pool_view("pool/with space", queued=7, rate_limit_per_minute=600)]
        self.queue_views = [queue_view("orders"), queue_view("slow")]
        self.group_views = [
            RouterGroupView("P", f"group-{number}", 20 - number, number == 0, 1.5) for number in range(20)
        ]
        self.tracked = [in_flight_view(f"m{number}", elapsed_ms=1000 - number) for number in range(150)]
        self.breaker_views = [
            BreakerView("https://shop.example:443/hook", "CLOSED", 10, 2, 0.2, None, 0),
            BreakerView("http://127.0.0.1:9/x", "OPEN", 10, 9, 0.9, NOW_MS, 4),
        ]
        self._applying = 0

    async def apply(self, configuration: RouterConfiguration) -> None:
        self._applying += 1
        self.most_applies_at_once = max(self.most_applies_at_once, self._applying)
        await asyncio.sleep(0)
        self._applying -= 1
        if self.apply_fails is not None:
            raise self.apply_fails
        self.applied.append(configuration)

    def pools(self) -> list[RouterPoolView]:
        return self.pool_views

    def queues(self) -> list[QueueView]:
        return self.queue_views

    def groups(self, pool: str | None) -> list[RouterGroupView]:
        return [group for group in self.group_views if pool in (None, group.pool)]

    def in_flight(self, most: int, wanted: InFlightFilter, after: InFlightPosition | None) -> InFlightPage:
        def place(each: InFlightView) -> InFlightPosition:
            return float(-each.elapsed_ms), each.message_id

        found = [
            each
            for each in sorted(self.tracked, key=place)
            if wanted.message_id in (None, each.message_id, each.broker_message_id)
            and wanted.pool in (None, each.pool_code)
            and wanted.queue in (None, each.queue)
            and (after is None or place(each) > after)
        ]
        return InFlightPage(found[:most], place(found[most - 1]) if len(found) > most else None)

    def find(self, message_id: str) -> InFlightView | None:
        found = self.in_flight(1, InFlightFilter(message_id), None).messages
        return found[0] if found else None

    def breakers(self) -> list[BreakerView]:
        return self.breaker_views

    def reset_breaker(self, endpoint: str) -> bool:
        return any(breaker.endpoint == endpoint for breaker in self.breaker_views)

    def reset_breakers(self) -> int:
        return len(self.breaker_views)

    async def change_pool(
        self, code: str, *, concurrency: int | None, rate_limit_per_minute: int | None, unlimited_rate: bool
    ) -> bool:
        if not any(pool.code == code for pool in self.pool_views):
            return False
        if self.is_busy:
            raise FailedPrecondition("deliveries did not end in time")
        self.changes.append((code, concurrency, rate_limit_per_minute, unlimited_rate))
        return True

    async def restart_consumer(self, name: str) -> bool:
        self.restarted.append(name)
        return any(each.name == name for each in self.queue_views)


def pool_view(code: str, *, queued: int = 3, rate_limit_per_minute: int | None = None) -> RouterPoolView:
    """A pool with something to do."""
    return RouterPoolView(
        code=code,
        concurrency=10,
        rate_limit_per_minute=rate_limit_per_minute,
        queue_capacity=200,
        queued=queued,
        active=2,
        backing_off=1,
        available_permits=8,
        groups=3,
        rate_limited=False,
        draining=False,
        oldest_waiting_s=1.5,
        succeeded=90,
        failed=10,
        transient=5,
        deferred=4,
        rate_limit_waits=2,
        submitted=112,
        success_rate=0.9,
        judged=100,
        average_processing_ms=12.5,
    )


def queue_view(name: str, *, healthy: bool = True) -> QueueView:
    """A queue that is being consumed."""
    return QueueView(
        name=name,
        uri=f"stomp://me:hunter2@broker:61613/queue/{name}",
        connections=1,
        polls=30,
        received=120,
        acked=100,
        nacked=5,
        malformed=1,
        in_flight=14,
        paused=False,
        healthy=healthy,
        last_poll_age_s=0.5,
        draining=False,
    )


def in_flight_view(message_id: str, *, elapsed_ms: int) -> InFlightView:
    """A message on its way."""
    return InFlightView(
        message_id=message_id,
        broker_message_id=f"broker-{message_id}",
        queue="orders",
        pool_code="P",
        message_group_id="group-1",
        mediation_target="https://shop.example/hook?x=1",
        state="ACTIVE",
        attempt=1,
        tracked_at_ms=NOW_MS - elapsed_ms,
        elapsed_ms=elapsed_ms,
    )
