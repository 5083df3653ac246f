"""`/api/v1/statistics`: deliveries by minute, and `/api/v1/deliveries`: jobs that finished recently."""

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.client.types import Cursor, EpochMs, Limit, Name
from penstock.domain.limits import MINUTE_MS
from penstock.edge.clock import Clock
from penstock.events.statistics import Dimension, Minute, merged
from penstock.events.store import KEPT_MS, THE_NEWEST, FinishedJob, JobRepository
from penstock.http.api import Call, NoBody, first_of, key_before, route

PATH = "/api/v1/statistics"
DELIVERIES_PATH = "/api/v1/deliveries"


class HistoryQuery(msgspec.Struct, frozen=True, rename="camel"):
    """Which minutes, by default those of the last three hours, summed in steps of `stepMinutes`."""

    since_ms: EpochMs | None = None
    step_minutes: Annotated[int, Meta(ge=1, le=60)] = 1
    by: Dimension = Dimension.POOL
    name: str | None = None


class HistoryStep(msgspec.Struct, frozen=True, rename="camel"):
    """The deliveries of the step that begins at `atMs`."""

    at_ms: int
    delivered: int
    failed: int
    refused: int
    deferred: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    longest_wait_ms: int


class DeliveryHistory(msgspec.Struct, frozen=True):
    """Steps, the oldest first; steps without deliveries are left out."""

    steps: list[HistoryStep]


class StatisticsRoutes:
    """The route of statistics."""

    def __init__(self, repository: JobRepository, clock: Clock) -> None:
        self._repository = repository
        self._clock = clock

    @route(
        "GET", f"{PATH}/history", summary="Count deliveries by outcome, with their response times, in steps of minutes."
    )
    async def _history(self, call: Call[HistoryQuery, NoBody]) -> DeliveryHistory:
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
        return DeliveryHistory([_step(at_ms, whole) for at_ms, whole in sorted(steps.items())])


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


class DeliveryQuery(msgspec.Struct, frozen=True, rename="camel"):
    """Since when, in milliseconds since the Unix epoch, how many, and where to continue."""

    since_ms: EpochMs = 0
    limit: Limit = 200
    cursor: Cursor | None = None


class DeliveryList(msgspec.Struct, frozen=True):
    """Finished jobs, the last one first; the cursor asks for earlier ones, null on the last page."""

    deliveries: list[FinishedJob]
    cursor: str | None


class DeliveryRoutes:
    """The route of jobs that finished recently."""

    def __init__(self, repository: JobRepository) -> None:
        self._repository = repository

    @route(
        "GET",
        DELIVERIES_PATH,
        summary="List the jobs that finished recently with their last delivery, the newest first.",
    )
    async def _list(self, call: Call[DeliveryQuery, NoBody]) -> DeliveryList:
        asked = call.query
        before = THE_NEWEST if asked.cursor is None else key_before(asked.cursor, tuple[EpochMs, Name])
        found = await self._repository.finished_lately(asked.since_ms, before, asked.limit + 1)
        return DeliveryList(*first_of(found, lambda job: (job.finished_at_ms, job.id), asked.limit))
