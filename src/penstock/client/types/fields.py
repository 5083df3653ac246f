"""What fields of requests may hold, said once for client, server and the OpenAPI document.

Lists that come page by page: how many rows, and where to go on.

Errors as the API sends them: problem details (RFC 9457), with a stable code.
"""

from datetime import datetime
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from penstock.domain.limits import MIB

MOST_AT_ONCE = 1000
"""Events, jobs or ids in one request."""

MAX_DATA_BYTES = MIB

# No control characters: databases cannot keep a NUL, and a terminal must be able to show it.
# By itself `$` would let a line break pass at the end.
_ON_ONE_LINE = r"^[^\x00-\x1f\x7f]+$(?!\n)"

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256, pattern=_ON_ONE_LINE)]
Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=2048, pattern=_ON_ONE_LINE)]
GroupKey: TypeAlias = Annotated[str, Meta(min_length=1, max_length=600, pattern=_ON_ONE_LINE)]
# Until the year 9999, the last that a time can be written in.
EpochMs: TypeAlias = Annotated[int, Meta(ge=0, le=253_402_300_799_999)]
# As large as a database's column.
Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]


MOST_ON_A_PAGE = 1000

Limit: TypeAlias = Annotated[int, Meta(ge=1, le=MOST_ON_A_PAGE)]
# Room for the longest key: 600 characters of four bytes each, written in base64.
Cursor: TypeAlias = Annotated[str, Meta(min_length=1, max_length=4096)]


class PageQuery(msgspec.Struct, frozen=True):
    """How many, and where to go on."""

    limit: Limit = MOST_ON_A_PAGE
    cursor: Cursor | None = None


class WholeOrPageQuery(msgspec.Struct, frozen=True):
    """How many, and where to go on; a list that is asked for with neither comes whole."""

    limit: Limit | None = None
    cursor: Cursor | None = None


PROBLEM_MEDIA_TYPE = "application/problem+json"


class Problem(msgspec.Struct, frozen=True):
    """What went wrong; `code` is for programs, `detail` for people."""

    status: int
    code: str
    title: str
    detail: str
    type: str = "about:blank"
