"""Lists by pages: a token says after which name the next page begins."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock.pubsub.errors import InvalidRequest

T = TypeVar("T")

MAX_PAGE = 1000


def page(items: Sequence[T], name_of: Callable[[T], str], page_size: int, page_token: str) -> tuple[Sequence[T], str]:
    """The next items by name, and the token of what follows; empty when that is nothing."""
    if page_size < 0:
        raise InvalidRequest(f"page_size must not be negative, got {page_size}")
    after = _decode(page_token)
    rest = sorted((item for item in items if name_of(item) > after), key=name_of)
    size = min(page_size or MAX_PAGE, MAX_PAGE)
    taken = rest[:size]
    return taken, _encode(name_of(taken[-1])) if len(rest) > size else ""


def _encode(name: str) -> str:
    return urlsafe_b64encode(name.encode()).decode()


def _decode(token: str) -> str:
    try:
        return urlsafe_b64decode(token.encode()).decode()
    except (Error, ValueError) as error:
        raise InvalidRequest(f"page_token {token[:40]!r} is not one this server gave") from error
