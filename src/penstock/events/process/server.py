"""A processor with its courier, dead letters and traces, put together for the process that it runs in."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.delivery import Breakers, Courier, CourierSettings, open_courier
from penstock.edge.clock import Clock
from penstock.events.process.dead_letters import DeadLetterCopies, DeadLetters
from penstock.events.process.message_targets import MessageTargets
from penstock.events.process.processor import ProcessMetrics, Processor
from penstock.events.store import JobRepository
from penstock.ops.telemetry import Metrics, NoSpans, Spans, open_otlp_spans

if TYPE_CHECKING:
    from penstock.events.topics import TopicClient


class ProcessSettings(CourierSettings, frozen=True, kw_only=True):
    """How jobs are delivered, and the secrets of their tokens."""

    secrets: tuple[bytes, ...]
    traces_endpoint: str = ""
    traces_ratio: float = 1.0
    topics: str = ""
    """Address of the Pub/Sub server of topic targets, dead-letter topics and feeds."""
    queues: str = ""
    """URL of the SQS server of queue targets and dead-letter queues."""

    def __repr__(self) -> str:
        # Without the secrets, which must not reach a log.
        return "ProcessSettings()"


@dataclass(frozen=True)
class ProcessParts:
    """A processor, and the parts of it that others use."""

    processor: Processor
    courier: Courier
    spans: Spans
    messages: MessageTargets
    topics: "TopicClient | None"
    """The Pub/Sub server, if one is known."""


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
        _topic_client(settings) as client,
    ):
        counts = ProcessMetrics(metrics)
        messages = MessageTargets(client, settings.queues)
        dead_letters = dead_letters or DeadLetterCopies(client, messages.queues)
        processor = Processor(repository, courier, dead_letters, counts, clock, spans, messages)
        try:
            yield ProcessParts(processor, courier, spans, messages, client)
        finally:
            await messages.queues.close()


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
async def _topic_client(settings: ProcessSettings) -> AsyncIterator["TopicClient | None"]:
    if not settings.topics:
        yield None
        return
    # Loaded only where it is used: Google's library takes longer to load than all of the API.
    from penstock.events.topics import TopicClient

    async with TopicClient(settings.topics) as client:
        yield client
