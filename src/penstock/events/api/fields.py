"""What fields of requests may hold, said once for decoding and for the OpenAPI document."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, TypeAlias

from msgspec import Meta

from penstock.domain.errors import InvalidArgument, NotFound
from penstock.domain.ids import decode_tsid
from penstock.domain.limits import KIB, MIB
from penstock.events.errors import JobNotFound
from penstock.events.fan_out.rule import check_job_id

MOST_AT_ONCE = 1000
MAX_DATA_BYTES = MIB
MAX_BATCH_BYTES = 16 * MIB
MAX_ITEM_BYTES = 2 * MAX_DATA_BYTES
"""Of a request with one item: base64 is longer than what it stands for."""

SMALL_BODY_BYTES = 64 * KIB

# No control characters: databases cannot keep a NUL, and a terminal must be able to show it.
# By itself `$` would let a line break pass at the end.
_ON_ONE_LINE = r"^[^\x00-\x1f\x7f]+$(?!\n)"

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256, pattern=_ON_ONE_LINE)]
Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=2048, pattern=_ON_ONE_LINE)]
GroupKey: TypeAlias = Annotated[str, Meta(min_length=1, max_length=600, pattern=_ON_ONE_LINE)]
# Until the year 9999, the last that a time can be told in.
EpochMs: TypeAlias = Annotated[int, Meta(ge=0, le=253_402_300_799_999)]
# As large as a database's column.
Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]


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
