"""Checks and conversions of times and ids in requests, and the size limits of requests."""

from collections.abc import Callable
from datetime import UTC, datetime

from penstock.client.types import MAX_DATA_BYTES
from penstock.domain.errors import InvalidArgument, NotFound
from penstock.domain.ids import check_job_id, decode_tsid
from penstock.domain.limits import KIB, MIB
from penstock.events.errors import JobNotFound

MAX_BATCH_BYTES = 16 * MIB

MAX_ITEM_BYTES = 2 * MAX_DATA_BYTES
"""The limit of a request with one item; base64 is longer than the data it encodes."""

SMALL_BODY_BYTES = 64 * KIB


def moment_of(epoch_ms: int) -> datetime:
    """Return a time as the API shows it."""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC)


def optional_moment(epoch_ms: int | None) -> datetime | None:
    """Return a time as the API shows it, or None."""
    return None if epoch_ms is None else moment_of(epoch_ms)


def epoch_ms_of(moment: datetime | None) -> int | None:
    """Return a time in milliseconds since the epoch; InvalidArgument if UTC cannot express it."""
    if moment is None:
        return None
    epoch_ms = round(moment.timestamp() * 1000)
    try:
        moment_of(epoch_ms)
    except (ValueError, OverflowError):
        # The first or last day of the calendar, in a zone where it is another year.
        raise InvalidArgument(f"the time {moment.isoformat()} cannot be expressed in UTC") from None
    return epoch_ms


def checked_id(given: str, missing: Callable[[str], NotFound]) -> str:
    """Return the id of an event or a subscription; raise `missing` if it cannot be one."""
    try:
        decode_tsid(given)
    except ValueError:
        raise missing(given[:100]) from None
    return given


def checked_job_id(given: str) -> str:
    """Return the id of a job; JobNotFound if it cannot be one."""
    try:
        check_job_id(given)
    except ValueError:
        raise JobNotFound(given[:100]) from None
    return given


def full_topic_name(topic: str) -> str:
    """Return the name of a Pub/Sub topic with its project, which is `penstock` unless the name has one."""
    return topic if topic.startswith("projects/") else f"projects/penstock/topics/{topic}"
