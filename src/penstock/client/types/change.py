"""What people changed through the API, as it shows that."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from penstock.client.types.fields import Cursor, Limit


class ChangeQuery(msgspec.Struct, frozen=True):
    """How many changes, and where to go on."""

    limit: Limit = 100
    cursor: Cursor | None = None


class ChangeView(msgspec.Struct, frozen=True):
    """One change: `action` is the operation, `target` the variable parts of its path, `detail` its body."""

    id: str
    at: datetime
    who: str
    role: str
    action: str
    target: Mapping[str, str]
    detail: str


class ChangeList(msgspec.Struct, frozen=True):
    """Changes, the newest first; the cursor asks for the next page, null after the last."""

    changes: list[ChangeView]
    cursor: str | None
