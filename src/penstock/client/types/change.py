"""Changes made through the API."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from penstock.client.types.fields import Cursor, Limit


class ChangeQuery(msgspec.Struct, frozen=True):
    """The number of changes, and the cursor to continue from."""

    limit: Limit = 100
    cursor: Cursor | None = None


class CallerView(msgspec.Struct, frozen=True):
    """Who asks, by the name of the key, and its role: admin, publisher or viewer."""

    name: str
    role: str


class ChangeView(msgspec.Struct, frozen=True):
    """A change. `summary` says it in words, `action` is the operation, `target` what it names, `detail` its body."""

    id: str
    at: datetime
    who: str
    role: str
    action: str
    target: Mapping[str, str]
    detail: str
    summary: str


class ChangeList(msgspec.Struct, frozen=True):
    """Changes, the newest first. The cursor asks for the next page; it is null after the last."""

    changes: list[ChangeView]
    cursor: str | None
