"""Answering a request without ASGI: no task and no messages to and fro, for apps that know the answer at once.

An app that has `take_on` beside its ASGI interface is asked first; a request it leaves is answered by ASGI.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeAlias

Headers = list[tuple[bytes, bytes]]


class Exchange(Protocol):
    """A request that has arrived whole, and the way to answer it."""

    @property
    def method(self) -> str:
        """The method, in capitals as it came."""
        ...

    @property
    def target(self) -> bytes:
        """Path and query as they came, not decoded."""
        ...

    @property
    def headers(self) -> Headers:
        """Names in lower case and values, in the order they came."""
        ...

    @property
    def body(self) -> bytes:
        """The whole body."""
        ...

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Give the answer; the length is added to the headers, and a HEAD request gets them alone."""
        ...

    def go_on(self, work: Coroutine[Any, Any, None]) -> None:
        """Work on the answer in a task; the server waits for it before it stops."""
        ...

    async def hung_up(self) -> None:
        """Return when the client has gone."""
        ...


TakeOn: TypeAlias = Callable[[Exchange], bool]
"""Answers by `respond`, now or later; False, and nothing done, leaves the request to ASGI."""


def leave(exchange: Exchange) -> bool:
    """What an app that only speaks ASGI does with an exchange."""
    return False
