"""Events in the API: CloudEvents in their JSON format."""

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from penstock.client.types.fields import MOST_AT_ONCE, Moment, Name, Text


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event. Events with the same `partitionkey` are delivered in order, those with the extension `highpriority`
    before the others; members not named here are extensions.
    """

    specversion: Literal["1.0"]
    id: Name
    source: Text
    type: Name
    subject: Text | None = None
    time: Moment | None = None
    partitionkey: Name | None = None
    tenant: Name | None = None
    datacontenttype: Name | None = None
    data: Raw | UnsetType = UNSET
    data_base64: bytes | None = None


CloudEventOrBatch: TypeAlias = CloudEvent | Annotated[list[CloudEvent], Meta(min_length=1, max_length=MOST_AT_ONCE)]


class EventReceipt(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An event that was stored, or the one stored earlier with the same tenant, source and id.

    `subscriptions` is how many match it now; an event that none matches is stored and delivered to no one.
    `warnings` say what the catalogue of event types finds wrong with it; the event was stored all the same.
    """

    id: str
    is_new: bool
    subscriptions: int
    warnings: list[str] = []


class EventReceipts(msgspec.Struct, frozen=True):
    """Events that were stored, in the order they were sent."""

    events: list[EventReceipt]


class EventView(msgspec.Struct, frozen=True):
    """An event as its subscribers receive it."""

    id: str
    event: Raw
