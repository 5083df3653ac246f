"""Lists served page by page: the rows of one page, and the cursor of the next.

Cursors of lists: where the next page begins, as text that a client passes on and does not look into.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from penstock.client.types import MOST_ON_A_PAGE
from penstock.domain.errors import InvalidArgument
from penstock.http.errors import BadCursor

Key = TypeVar("Key")


def cursor_after(key: object) -> str:
    """The cursor of what comes after a key, which is a tuple of texts and numbers."""
    return urlsafe_b64encode(msgspec.json.encode(key)).rstrip(b"=").decode()


def key_before(cursor: str, kind: type[Key]) -> Key:
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


T = TypeVar("T")
K = TypeVar("K", bound=tuple[Any, ...])


def check_no_cursor(cursor: str | None, order: str) -> None:
    """In an order that changes all the time there are first ones, but no next page; InvalidArgument."""
    if cursor is not None:
        raise InvalidArgument(f"{order} tells the first ones only and takes no cursor: leave it out to go on")


def page_of(
    items: Iterable[T], key: Callable[[T], K], kind: type[K], limit: int, cursor: str | None
) -> tuple[list[T], str | None]:
    """A page in the order of the keys, and the cursor of the next one, if there is one.

    The cursor is the last key told, so that what is added or removed meanwhile moves nothing else; what has one key
    stays together, though the page be longer for it.
    """
    after = None if cursor is None else key_before(cursor, kind)
    rest = sorted((item for item in items if after is None or key(item) > after), key=key)
    end = limit
    while 0 < end < len(rest) and key(rest[end]) == key(rest[end - 1]):
        end += 1
    return rest[:end], cursor_after(key(rest[end - 1])) if end < len(rest) else None


def first_of(found: Sequence[T], key: Callable[[T], tuple[Any, ...]], limit: int) -> tuple[list[T], str | None]:
    """A page of what was found in order, one more than the page may have; and the cursor of the next one."""
    return list(found[:limit]), cursor_after(key(found[limit - 1])) if len(found) > limit else None


def whole_or_page_of(
    items: list[T], key: Callable[[T], K], kind: type[K], limit: int | None, cursor: str | None
) -> tuple[list[T], str | None]:
    """All items as they are, if neither a number nor a cursor is given; else a page of them."""
    if limit is None and cursor is None:
        return items, None
    return page_of(items, key, kind, limit or MOST_ON_A_PAGE, cursor)
