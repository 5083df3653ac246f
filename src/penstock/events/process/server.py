"""A processor with its courier, dead letters and traces, put together for the process that it runs in."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from penstock.delivery import Breakers, Courier, CourierSettings, open_courier
from penstock.edge.clock import Clock
from penstock.events.process.dead_letters import DeadLetters, NoDeadLetters
from penstock.events.process.processor import ProcessMetrics, Processor
from penstock.events.store import JobRepository
from penstock.ops.telemetry import Metrics, NoSpans, Spans, open_otlp_spans


class ProcessSettings(CourierSettings, frozen=True, kw_only=True):
    """How jobs are delivered, and the secrets of their tokens."""

    secrets: tuple[bytes, ...]
    traces_endpoint: str = ""
    traces_ratio: float = 1.0
    topics: str = ""
    """Address of the Pub/Sub server of dead-letter topics."""

    def __repr__(self) -> str:
        # Without the secrets, which must not reach a log.
        return "ProcessSettings()"


class ProcessParts(msgspec.Struct, frozen=True):
    """A processor, and the parts of it that others use."""

    processor: Processor
    courier: Courier
    spans: Spans


@asynccontextmanager
async def open_processor(
    repository: JobRepository,
    clock: Clock,
    settings: ProcessSettings,
    metrics: Metrics,
    breakers: Breakers,
    *,
    part: str,
    dead_letters: DeadLetters | None = None,
) -> AsyncIterator[ProcessParts]:
    """Return the processor of an open repository; `part` names this process in traces."""
    async with (
        _spans(settings, part) as spans,
        open_courier(settings, breakers, clock) as courier,
        _dead_letters(settings) as topics,
    ):
        counts = ProcessMetrics(metrics)
        processor = Processor(repository, courier, dead_letters or topics, counts, clock, spans)
        yield ProcessParts(processor, courier, spans)


@asynccontextmanager
async def _spans(settings: ProcessSettings, part: str) -> AsyncIterator[Spans]:
    if not settings.traces_endpoint:
        yield NoSpans()
        return
    spans = open_otlp_spans(settings.traces_endpoint, settings.traces_ratio, f"penstock-{part}")
    try:
        yield spans
    finally:
        # Closing may wait for the collector.
        await asyncio.to_thread(spans.close)


@asynccontextmanager
async def _dead_letters(settings: ProcessSettings) -> AsyncIterator[DeadLetters]:
    if not settings.topics:
        yield NoDeadLetters()
        return
    from penstock.events.process.dead_letter_topics import PubsubDeadLetters
    from penstock.events.topics import TopicClient

    async with TopicClient(settings.topics) as client:
        yield PubsubDeadLetters(client)
