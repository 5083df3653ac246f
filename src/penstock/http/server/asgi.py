"""The types of the ASGI interface, and one way to answer.

Answering a request without ASGI: no task and no messages to and fro, for apps that know the answer at once.

An app that has `take_on` beside its ASGI interface is asked first; a request it leaves is answered by ASGI.

The start-up and shut-down of an ASGI app.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from typing import Any, Protocol, TypeAlias

from penstock.domain.errors import PenstockError
from penstock.http.errors import StartFailed
from penstock.ops.telemetry import mask_secrets

# ASGI defines messages as dictionaries of mixed values; this is the one place that says so.
Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


async def send_answer(scope: Scope, send: Send, status: int, body: bytes, headers: Mapping[str, str]) -> None:
    """Send a whole response; a HEAD request gets the headers alone."""
    fields = {"content-length": str(len(body)), **headers}
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


async def accept_lifespan(receive: Receive, send: Send) -> None:
    """Go through start-up and shut-down with nothing to do in either."""
    while True:
        event = (await receive())["type"]
        await send({"type": f"{event}.complete"})
        if event == "lifespan.shutdown":
            return


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


class Lifespan:
    """Takes an app through its start-up, keeps it there, and through its shut-down."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._events: asyncio.Queue[Message] = asyncio.Queue()
        self._answers: asyncio.Queue[Message] = asyncio.Queue()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the app up; its own error if that is one of ours, else StartFailed with what is known."""
        self._running = asyncio.create_task(self._run())
        await self._events.put({"type": "lifespan.startup"})
        send_answer = await self._next_answer()
        if send_answer is None:
            self._raise_failure()
        elif send_answer["type"] == "lifespan.startup.failed":
            await asyncio.gather(self._running, return_exceptions=True)
            raise StartFailed(f"the service did not start: {send_answer.get('message') or 'the log says why'}")

    async def stop(self) -> None:
        """Shut the app down."""
        if self._running is None or self._running.done():
            return
        await self._events.put({"type": "lifespan.shutdown"})
        await self._next_answer()
        await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
        await self._app(scope, self._events.get, self._answers.put)

    async def _next_answer(self) -> Message | None:
        """What the app says next; None when it ended without a word."""
        assert self._running is not None
        answering = asyncio.create_task(self._answers.get())
        await asyncio.wait((answering, self._running), return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            return answering.result()
        answering.cancel()
        return self._answers.get_nowait() if not self._answers.empty() else None

    def _raise_failure(self) -> None:
        assert self._running is not None
        error = self._running.exception()
        if isinstance(error, PenstockError):
            raise error
        if error is not None:
            reason = mask_secrets(f"{type(error).__name__}: {error}")
            raise StartFailed(f"the service did not start: {reason}") from error
