"""Times and ids of requests, as the API keeps and checks them; how large requests may be."""

from collections.abc import Callable
from datetime import UTC, datetime

from penstock.client.types import MAX_DATA_BYTES
from penstock.domain.errors import InvalidArgument, NotFound
from penstock.domain.ids import check_job_id, decode_tsid
from penstock.domain.limits import KIB, MIB
from penstock.events.errors import JobNotFound

MAX_BATCH_BYTES = 16 * MIB
MAX_ITEM_BYTES = 2 * MAX_DATA_BYTES
"""Of a request with one item: base64 is longer than what it stands for."""

SMALL_BODY_BYTES = 64 * KIB


def moment_of(epoch_ms: int) -> datetime:
    """A time as the API tells it."""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC)


def optional_moment(epoch_ms: int | None) -> datetime | None:
    """A time that may not be there."""
    return None if epoch_ms is None else moment_of(epoch_ms)


def epoch_ms_of(moment: datetime | None) -> int | None:
    """A time as the database keeps it; InvalidArgument if it has no place there."""
    if moment is None:
        return None
    epoch_ms = round(moment.timestamp() * 1000)
    try:
        moment_of(epoch_ms)
    except (ValueError, OverflowError):
        # The first or last day of the calendar, in a zone in which it is another year.
        raise InvalidArgument(f"the time {moment.isoformat()} cannot be told in UTC") from None
    return epoch_ms


def checked_id(given: str, missing: Callable[[str], NotFound]) -> str:
    """An id that Penstock gave an event or a subscription; `missing` if it cannot be one."""
    try:
        decode_tsid(given)
    except ValueError:
        raise missing(given[:100]) from None
    return given


def checked_job_id(given: str) -> str:
    """The id of a job; JobNotFound if it cannot be one."""
    try:
        check_job_id(given)
    except ValueError:
        raise JobNotFound(given[:100]) from None
    return given
