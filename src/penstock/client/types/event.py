"""Events as the API takes and shows them: CloudEvents in their JSON format."""

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from penstock.client.types.fields import MOST_AT_ONCE, Moment, Name, Text


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event. `partitionkey` is the key its order is kept by; members that are not named here are extensions."""

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


class EventReceipt(msgspec.Struct, frozen=True, rename="camel"):
    """An event that was kept, or the same one told before (same tenant, source and id)."""

    id: str
    is_new: bool


class EventReceipts(msgspec.Struct, frozen=True):
    """Events that were kept, in the order they came."""

    events: list[EventReceipt]


class EventView(msgspec.Struct, frozen=True):
    """An event as its subscribers get it."""

    id: str
    event: Raw
