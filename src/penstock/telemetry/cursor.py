"""Cursors of lists: where the next page begins, as text that a client passes on and does not look into."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TypeVar

import msgspec

from penstock.telemetry.errors import BadCursor

K = TypeVar("K")


def cursor_after(key: object) -> str:
    """The cursor of what comes after a key, which is a tuple of texts and numbers."""
    return urlsafe_b64encode(msgspec.json.encode(key)).rstrip(b"=").decode()


def key_before(cursor: str, kind: type[K]) -> K:
    """The key that a cursor goes on after; BadCursor if it is not of this kind."""
    try:
        content = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        key = msgspec.json.decode(content, type=kind)
    except (ValueError, msgspec.DecodeError):
        raise BadCursor(cursor) from None
    # Base64 passes over what it does not know: of all the texts that mean a key, one is its cursor.
    if cursor_after(key) != cursor:
        raise BadCursor(cursor)
    return key
