"""Fields that many types share, with their limits, for client, server and the OpenAPI document; pages and problems."""

from datetime import datetime
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from penstock.domain.limits import MIB

MOST_AT_ONCE = 1000
"""The maximum number of events, jobs or ids in one request."""

MOST_ON_A_PAGE = 1000
MAX_DATA_BYTES = MIB
PROBLEM_MEDIA_TYPE = "application/problem+json"

# No control characters: databases cannot store a NUL, and terminals must be able to show the text.
# `$` alone would allow a line break at the end.
_ON_ONE_LINE = r"^[^\x00-\x1f\x7f]+$(?!\n)"

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256, pattern=_ON_ONE_LINE)]
Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=2048, pattern=_ON_ONE_LINE)]
GroupKey: TypeAlias = Annotated[str, Meta(min_length=1, max_length=600, pattern=_ON_ONE_LINE)]
# Until the year 9999, the last that a timestamp can represent.
EpochMs: TypeAlias = Annotated[int, Meta(ge=0, le=253_402_300_799_999)]
# The largest value of a database column.
Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]
Limit: TypeAlias = Annotated[int, Meta(ge=1, le=MOST_ON_A_PAGE)]
# Enough for the longest key: 600 characters of four bytes each, in base64.
Cursor: TypeAlias = Annotated[str, Meta(min_length=1, max_length=4096)]


class PageQuery(msgspec.Struct, frozen=True):
    """The number of rows, and the cursor to continue from."""

    limit: Limit = MOST_ON_A_PAGE
    cursor: Cursor | None = None


class WholeOrPageQuery(msgspec.Struct, frozen=True):
    """The number of rows, and the cursor to continue from. Without either, the whole list is returned."""

    limit: Limit | None = None
    cursor: Cursor | None = None


class Problem(msgspec.Struct, frozen=True):
    """A problem (RFC 9457); `code` is for programs, `detail` for people."""

    status: int
    code: str
    title: str
    detail: str
    type: str = "about:blank"
