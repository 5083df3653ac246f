"""Lists that are small enough to be read whole, told page by page."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from penstock.jobs.api.fields import MOST_AT_ONCE, Limit, Name

T = TypeVar("T")


class PageQuery(msgspec.Struct, frozen=True):
    """How many, and where to go on."""

    limit: Limit = MOST_AT_ONCE
    cursor: Name | None = None


def page_of(items: Iterable[T], key: Callable[[T], str], asked: PageQuery) -> tuple[list[T], str | None]:
    """A page in the order of the keys, and the cursor of the next one, if there is one.

    The cursor is the last key told, so that what is added or removed meanwhile moves nothing else.
    """
    rest = sorted((item for item in items if asked.cursor is None or key(item) > asked.cursor), key=key)
    told = rest[: asked.limit]
    return told, key(told[-1]) if len(rest) > len(told) else None
