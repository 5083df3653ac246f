"""`/api/v1/statistics`: deliveries minute by minute, of the last two days at most."""

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.domain.limits import MINUTE_MS
from penstock.edge.clock import Clock
from penstock.http.api.routes import AnyRoute, Call, NoBody, Route
from penstock.jobs.api.fields import EpochMs
from penstock.jobs.repository import JobRepository
from penstock.jobs.statistics import Dimension, Minute, merged
from penstock.jobs.statistics_store import KEPT_MS

PATH = "/api/v1/statistics"


class HistoryQuery(msgspec.Struct, frozen=True, rename="camel"):
    """Which minutes, by default the last three hours, added up to steps of so many minutes."""

    since_ms: EpochMs | None = None
    step_minutes: Annotated[int, Meta(ge=1, le=60)] = 1
    by: Dimension = Dimension.POOL
    name: str | None = None


class HistoryStep(msgspec.Struct, frozen=True, rename="camel"):
    """What was delivered in a step that begins at a moment."""

    at_ms: int
    delivered: int
    failed: int
    refused: int
    deferred: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    longest_wait_ms: int


class History(msgspec.Struct, frozen=True):
    """Steps, the oldest first; one in which nothing happened is not there."""

    steps: list[HistoryStep]


class StatisticsRoutes:
    """The route of statistics."""

    def __init__(self, repository: JobRepository, clock: Clock) -> None:
        self._repository = repository
        self._clock = clock

    def routes(self) -> tuple[AnyRoute, ...]:
        """What is served."""
        return (
            Route(
                method="GET",
                path=f"{PATH}/history",
                summary="Deliveries by outcome and their response times, in steps of minutes.",
                answer=History,
                query=HistoryQuery,
                handler=self._history,
            ),
        )

    async def _history(self, call: Call[HistoryQuery, NoBody]) -> History:
        asked, now_ms = call.query, self._clock.now_ms()
        since_ms = now_ms - 180 * MINUTE_MS if asked.since_ms is None else asked.since_ms
        first_ms = max(since_ms, now_ms - KEPT_MS)
        minutes = await self._repository.statistics.minutes(first_ms, now_ms + MINUTE_MS, asked.by)
        step_ms = asked.step_minutes * MINUTE_MS
        steps: dict[int, Minute] = {}
        for minute in minutes:
            if asked.name in (None, minute.name):
                at_ms = minute.minute_ms // step_ms * step_ms
                steps[at_ms] = merged(steps[at_ms], minute) if at_ms in steps else minute
        return History([_step(at_ms, whole) for at_ms, whole in sorted(steps.items())])


def _step(at_ms: int, whole: Minute) -> HistoryStep:
    return HistoryStep(
        at_ms,
        whole.delivered,
        whole.failed,
        whole.refused,
        whole.deferred,
        whole.latency_ms(0.5),
        whole.latency_ms(0.95),
        whole.latency_ms(0.99),
        whole.longest_wait_ms,
    )
