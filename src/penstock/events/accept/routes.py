"""`/api/v1/events`: publish events, and get one."""

from collections.abc import Callable

from msgspec import Raw

from penstock.client.types import CloudEvent, CloudEventOrBatch, EventReceipt, EventReceipts, EventView
from penstock.delivery import cloud_event
from penstock.edge.clock import Clock
from penstock.events.accept.binary_mode import json_form
from penstock.events.accept.cloud_event import MEDIA_TYPES, event_of, members_of
from penstock.events.catalogue import EventSchemas
from penstock.events.errors import EventNotFound
from penstock.events.fan_out import EventPublisher
from penstock.events.fields import MAX_BATCH_BYTES, checked_id
from penstock.events.store import JobRepository
from penstock.events.tracing import record_published
from penstock.http.api import Call, NoBody, NoQuery, route
from penstock.http.auth import EVERYONE, MAY_PUBLISH
from penstock.ops.telemetry import Spans

PATH = "/api/v1/events"


class EventRoutes:
    """The routes of events."""

    def __init__(
        self,
        repository: JobRepository,
        publisher: EventPublisher,
        schemas: EventSchemas,
        new_id: Callable[[], str],
        clock: Clock,
        spans: Spans,
    ) -> None:
        self._repository = repository
        self._publisher = publisher
        self._schemas = schemas
        self._new_id = new_id
        self._clock = clock
        self._spans = spans

    @route(
        "POST",
        PATH,
        summary="Publish an event, or up to 1000. Each becomes a job for every matching subscription.",
        media_types=MEDIA_TYPES,
        max_body_bytes=MAX_BATCH_BYTES,
        binary=json_form,
        roles=MAY_PUBLISH,
    )
    async def _publish(self, call: Call[NoQuery, CloudEventOrBatch]) -> EventReceipts:
        given = [call.body] if isinstance(call.body, CloudEvent) else call.body
        now_ms = self._clock.now_ms()
        events = [
            event_of(each, members, self._new_id(), now_ms)
            for each, members in zip(given, members_of(call.content), strict=True)
        ]
        warnings = await self._schemas.check(events)
        published = await self._publisher.publish(events)
        record_published(self._spans, events, [each.id for each in published], self._clock.now_ms())
        return EventReceipts(
            [
                EventReceipt(stored.id, stored.id == event.id, stored.subscriptions, said)
                for stored, event, said in zip(published, events, warnings, strict=True)
            ]
        )

    @route("GET", f"{PATH}/{{id}}", summary="Get an event by the id that Penstock assigned to it.", roles=EVERYONE)
    async def _get(self, call: Call[NoQuery, NoBody]) -> EventView:
        event = await self._repository.get_event(checked_id(call.path["id"], EventNotFound))
        return EventView(event.id, Raw(cloud_event(event)))
