"""A change that a caller made through an API, as the audit trail keeps it."""

from collections.abc import Mapping

import msgspec


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change that was made. `action` is the operation, `target` the variable parts of its path and what it names."""

    who: str
    role: str
    action: str
    target: Mapping[str, str]
    detail: str
    """The body, or its beginning, as JSON."""
