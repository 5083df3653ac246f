"""The interfaces between server and app: ASGI with its start-up and shut-down, and direct answers.

An app may have `take_on` beside its ASGI interface to answer a request without a task and without messages. It is
asked first; a request that it leaves is answered through ASGI.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from typing import Any, Protocol, TypeAlias

from penstock.domain.errors import PenstockError
from penstock.http.errors import StartFailed
from penstock.ops.telemetry import mask_secrets

# ASGI defines messages as dictionaries of mixed values.
Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


async def send_answer(scope: Scope, send: Send, status: int, body: bytes, headers: Mapping[str, str]) -> None:
    """Send a whole response; a HEAD request gets only the headers."""
    fields = {"content-length": str(len(body)), **headers}
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


async def accept_lifespan(receive: Receive, send: Send) -> None:
    """Go through start-up and shut-down without doing anything."""
    while True:
        event = (await receive())["type"]
        await send({"type": f"{event}.complete"})
        if event == "lifespan.shutdown":
            return


class ClientGone(Exception):
    """The client disconnected before its request was complete, so there is no one to answer."""


async def read_body(receive: Receive) -> bytes:
    """Return the whole body; raise ClientGone if it does not arrive."""
    pieces: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


Headers = list[tuple[bytes, bytes]]


class Exchange(Protocol):
    """A complete request, and the way to answer it."""

    @property
    def method(self) -> str:
        """Return the method as it was sent."""
        ...

    @property
    def target(self) -> bytes:
        """Return path and query as they were sent, not decoded."""
        ...

    @property
    def headers(self) -> Headers:
        """Return lower-case names and values, in the order they were sent."""
        ...

    @property
    def body(self) -> bytes:
        """Return the whole body."""
        ...

    @property
    def peer(self) -> str:
        """Return the address that the connection came from."""
        ...

    @property
    def secure(self) -> bool:
        """Return whether the connection is encrypted."""
        ...

    @property
    def is_too_long(self) -> bool:
        """Whether the body was not read, as it is longer than the app's `body_limit` allows."""
        ...

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Send the answer; the length is added to the headers, and a HEAD request gets only these."""
        ...

    def run_in_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Work on the answer in a task; the server waits for it before it stops."""
        ...

    async def hung_up(self) -> None:
        """Return when the client has disconnected."""
        ...


TakeOn: TypeAlias = Callable[[Exchange], bool]
"""Answers by `respond`, now or later; False, and nothing done, leaves the request to ASGI."""


BodyLimit: TypeAlias = Callable[[Headers], int]
"""Returns how many bytes the body of a request with these headers may have; an app's `body_limit`, beside `take_on`."""


def leave(exchange: Exchange) -> bool:
    """Leave every exchange to ASGI."""
    return False


class Lifespan:
    """Takes an app through start-up and shut-down."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._events: asyncio.Queue[Message] = asyncio.Queue()
        self._answers: asyncio.Queue[Message] = asyncio.Queue()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the app; raise its own error if it is one of ours, else StartFailed."""
        self._running = asyncio.create_task(self._run())
        await self._events.put({"type": "lifespan.startup"})
        answer = await self._next_answer()
        if answer is None:
            self._raise_failure()
        elif answer["type"] == "lifespan.startup.failed":
            await asyncio.gather(self._running, return_exceptions=True)
            raise StartFailed(f"the service did not start: {answer.get('message') or 'see the log'}")

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
        """Return the app's next message; None if it ended without one."""
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
