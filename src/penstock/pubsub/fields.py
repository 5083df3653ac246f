"""Durations and moments as the protocol writes them.

Updates by field mask: only the fields the mask names are taken over.
"""

from collections.abc import Collection
from datetime import timedelta
from typing import Protocol, TypeVar

from google.protobuf.field_mask_pb2 import FieldMask  # type: ignore[import-untyped]

from penstock.domain.limits import SECOND_MS
from penstock.pubsub.errors import InvalidRequest
from penstock.pubsub.wire import copy_of


class SecondsAndNanos(Protocol):
    """A Duration or a Timestamp."""

    seconds: int
    nanos: int


def seconds_of(duration: object) -> float:
    """A duration in seconds."""
    return _parts(duration).seconds + _parts(duration).nanos / 1e9


def set_seconds(duration: object, seconds: float) -> None:
    """Write a duration."""
    parts = _parts(duration)
    parts.seconds = int(seconds)
    parts.nanos = round((seconds - int(seconds)) * 1e9)


def milliseconds_of(moment: object) -> int:
    """A moment in milliseconds since the epoch, rounded up: what was published then is not before it."""
    parts = _parts(moment)
    return parts.seconds * SECOND_MS + -(-parts.nanos // 1_000_000)


def set_milliseconds(moment: object, at_ms: int) -> None:
    """Write a moment."""
    parts = _parts(moment)
    parts.seconds, parts.nanos = at_ms // SECOND_MS, at_ms % SECOND_MS * 1_000_000


def checked_seconds(what: str, duration: object, least_s: float, most_s: float) -> float:
    """A duration in seconds, when it is within its bounds."""
    seconds = seconds_of(duration)
    if not least_s <= seconds <= most_s:
        raise InvalidRequest(
            f"{what} must be between {timedelta(seconds=least_s)} and {timedelta(seconds=most_s)}, "
            f"got {seconds:g} seconds"
        )
    return seconds


def _parts(value: object) -> SecondsAndNanos:
    # Google's wrappers say datetime and timedelta where the raw messages have Timestamp and Duration.
    return value  # type: ignore[return-value]


T = TypeVar("T")


def updated(before: T, change: T, mask: FieldMask, mutable: Collection[str]) -> T:
    """`before` with the fields of `change` that the mask names; InvalidRequest for one that may not change."""
    paths = list(mask.paths)
    if not paths:
        raise InvalidRequest("update_mask must name at least one field")
    for path in paths:
        if path.partition(".")[0] not in mutable:
            raise InvalidRequest(f"update_mask names {path!r}; only these can be updated: {', '.join(sorted(mutable))}")
    after = copy_of(before)
    try:
        mask.MergeMessage(change, after, replace_message_field=True, replace_repeated_field=True)
    except ValueError as error:
        raise InvalidRequest(f"update_mask names a field that does not exist: {error}") from error
    return after
