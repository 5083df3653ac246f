"""Lists page by page: the rows of a page, and the opaque cursor of the next."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from penstock.client.types import MOST_ON_A_PAGE
from penstock.domain.errors import InvalidArgument
from penstock.http.errors import BadCursor

Key = TypeVar("Key")
T = TypeVar("T")
K = TypeVar("K", bound=tuple[Any, ...])


def cursor_after(key: object) -> str:
    """Return the cursor of what comes after a key, which is a tuple of texts and numbers."""
    return urlsafe_b64encode(msgspec.json.encode(key)).rstrip(b"=").decode()


def key_before(cursor: str, kind: type[Key]) -> Key:
    """Return the key after which a cursor continues; BadCursor if it is not of this kind."""
    try:
        content = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        key = msgspec.json.decode(content, type=kind)
    except (ValueError, msgspec.DecodeError):
        raise BadCursor(cursor) from None
    # Base64 decoding ignores unknown characters; only one of the texts that decode to a key is its cursor.
    if cursor_after(key) != cursor:
        raise BadCursor(cursor)
    return key


def check_no_cursor(cursor: str | None, order: str) -> None:
    """Raise InvalidArgument for a cursor: an order that changes all the time has no second page."""
    if cursor is not None:
        raise InvalidArgument(f"{order} lists only the first items and takes no cursor: leave the cursor out")


def page_of(
    items: Iterable[T], key: Callable[[T], K], kind: type[K], limit: int, cursor: str | None
) -> tuple[list[T], str | None]:
    """Return a page in the order of the keys, and the cursor of the next page, if there is one.

    The cursor is the last key of the page, so that additions and removals in between shift nothing. Items with equal
    keys stay on one page, even if it gets longer.
    """
    after = None if cursor is None else key_before(cursor, kind)
    rest = sorted((item for item in items if after is None or key(item) > after), key=key)
    end = limit
    while 0 < end < len(rest) and key(rest[end]) == key(rest[end - 1]):
        end += 1
    return rest[:end], cursor_after(key(rest[end - 1])) if end < len(rest) else None


def first_of(found: Sequence[T], key: Callable[[T], tuple[Any, ...]], limit: int) -> tuple[list[T], str | None]:
    """Return a page of items read in order, one more than fit, and the cursor of the next page."""
    return list(found[:limit]), cursor_after(key(found[limit - 1])) if len(found) > limit else None


def whole_or_page_of(
    items: list[T], key: Callable[[T], K], kind: type[K], limit: int | None, cursor: str | None
) -> tuple[list[T], str | None]:
    """Return all items if neither a limit nor a cursor is given; else a page of them."""
    if limit is None and cursor is None:
        return items, None
    return page_of(items, key, kind, limit or MOST_ON_A_PAGE, cursor)
