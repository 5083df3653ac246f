"""Fields that many requests have: durations, times, update masks and page tokens."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Protocol, TypeVar

from google.protobuf.field_mask_pb2 import FieldMask  # type: ignore[import-untyped]

from penstock.domain.limits import SECOND_MS
from penstock.pubsub.errors import InvalidRequest
from penstock.pubsub.wire import copy_of

MAX_PAGE = 1000

T = TypeVar("T")


class SecondsAndNanos(Protocol):
    """A Duration or a Timestamp."""

    seconds: int
    nanos: int


def seconds_of(duration: object) -> float:
    """Return a duration in seconds."""
    return _parts(duration).seconds + _parts(duration).nanos / 1e9


def set_seconds(duration: object, seconds: float) -> None:
    """Set a duration."""
    parts = _parts(duration)
    parts.seconds = int(seconds)
    parts.nanos = round((seconds - int(seconds)) * 1e9)


def milliseconds_of(time: object) -> int:
    """Return a time in milliseconds since the epoch, rounded up, so that a message published then is not before it."""
    parts = _parts(time)
    return parts.seconds * SECOND_MS + -(-parts.nanos // 1_000_000)


def set_milliseconds(time: object, at_ms: int) -> None:
    """Set a time."""
    parts = _parts(time)
    parts.seconds, parts.nanos = at_ms // SECOND_MS, at_ms % SECOND_MS * 1_000_000


def checked_seconds(what: str, duration: object, least_s: float, most_s: float) -> float:
    """Return a duration in seconds; raise InvalidRequest if it is out of bounds."""
    seconds = seconds_of(duration)
    if not least_s <= seconds <= most_s:
        raise InvalidRequest(
            f"{what} must be between {timedelta(seconds=least_s)} and {timedelta(seconds=most_s)}, "
            f"got {seconds:g} seconds"
        )
    return seconds


def updated(before: T, change: T, mask: FieldMask, mutable: Collection[str]) -> T:
    """Return `before` with the masked fields of `change`; raise InvalidRequest for an immutable field."""
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


def page(items: Sequence[T], name_of: Callable[[T], str], page_size: int, page_token: str) -> tuple[Sequence[T], str]:
    """Return the next items by name, and the token of the next page, empty if there is none."""
    if page_size < 0:
        raise InvalidRequest(f"page_size must not be negative, got {page_size}")
    after = _name_in(page_token)
    rest = sorted((item for item in items if name_of(item) > after), key=name_of)
    size = min(page_size or MAX_PAGE, MAX_PAGE)
    taken = rest[:size]
    return taken, _page_token(name_of(taken[-1])) if len(rest) > size else ""


def _page_token(name: str) -> str:
    return urlsafe_b64encode(name.encode()).decode()


def _name_in(token: str) -> str:
    try:
        return urlsafe_b64decode(token.encode()).decode()
    except (Error, ValueError) as error:
        raise InvalidRequest(f"page_token {token[:40]!r} was not issued by this server") from error


def _parts(value: object) -> SecondsAndNanos:
    # Google's wrappers declare datetime and timedelta where the raw messages have Timestamp and Duration.
    return value  # type: ignore[return-value]
