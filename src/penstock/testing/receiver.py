"""A subscriber for tests: an HTTP server that records requests and answers them by a script."""

import asyncio
from collections import deque
from enum import Enum
from types import TracebackType

import msgspec

from penstock.edge.clock import wall_seconds
from penstock.edge.pause import pause
from penstock.http.server import HttpServer, Receive, Scope, Send, accept_lifespan, read_body


class Ending(Enum):
    """How an answer ends."""

    WHOLE = "whole"
    CUT = "cut"  # half of the body, then the connection is closed
    HANG = "hang"  # no answer until the client disconnects


class Reply(msgspec.Struct, frozen=True):
    """An answer of the receiver."""

    status: int = 200
    body: bytes = b'{"ack":true}'
    headers: tuple[tuple[str, str], ...] = ()
    delay_s: float = 0.0
    ending: Ending = Ending.WHOLE


def defer(delay_s: int | None = None) -> Reply:
    """Return a reply with `ack: false`, with or without a delay."""
    delay = b"" if delay_s is None else b',"delaySeconds":%d' % delay_s
    return Reply(body=b'{"ack":false%b}' % delay)


def rate_limit(retry_after: str | None = None) -> Reply:
    """Return a reply with status 429, with or without Retry-After."""
    return Reply(429, headers=() if retry_after is None else (("retry-after", retry_after),))


class RecordedRequest(msgspec.Struct, frozen=True):
    """A received request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    received_s: float

    @property
    def message_id(self) -> str:
        """The id of the delivered message."""
        return msgspec.json.decode(self.body, type=_Delivery).message_id


class _Delivery(msgspec.Struct, rename="camel"):
    message_id: str


class RecordingReceiver:
    """Listens on a free loopback port inside its `async with` block."""

    def __init__(self, default: Reply | None = None) -> None:
        self.requests: list[RecordedRequest] = []
        self._default = default if default is not None else Reply()
        self._script: deque[Reply] = deque()
        self._arrival = asyncio.Event()
        self._server = HttpServer(self._app, "127.0.0.1", 0)

    async def __aenter__(self) -> "RecordingReceiver":
        await self._server.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.abandon()
        await self._server.__aexit__(kind, error, trace)

    @property
    def url(self) -> str:
        """The URL of the receiver."""
        return self._server.url

    @property
    def message_ids(self) -> list[str]:
        """The ids of the received messages, in order."""
        return [request.message_id for request in self.requests]

    def script(self, *replies: Reply) -> None:
        """Answer the next requests with these replies, in order of arrival; then with the default again."""
        self._script.extend(replies)

    async def received(self, count: int, within_s: float = 10.0) -> list[RecordedRequest]:
        """Wait for `count` requests and return all; raise TimeoutError if they do not arrive in time."""
        async with asyncio.timeout(within_s):
            while len(self.requests) < count:
                self._arrival.clear()
                await self._arrival.wait()
        return self.requests

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await accept_lifespan(receive, send)
            return
        self._record(scope, await read_body(receive))
        reply = self._script.popleft() if self._script else self._default
        if reply.delay_s:
            await pause(reply.delay_s)
        if reply.ending is Ending.HANG:
            await receive()
            return
        await _answer(reply, send)

    def _record(self, scope: Scope, body: bytes) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        query = scope["query_string"].decode("latin-1")
        path = scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
        self.requests.append(RecordedRequest(scope["method"], path, headers, body, wall_seconds()))
        self._arrival.set()


async def _answer(reply: Reply, send: Send) -> None:
    headers = [(b"content-length", str(len(reply.body)).encode())]
    headers += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in reply.headers]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    cut = reply.ending is Ending.CUT
    await send(
        {"type": "http.response.body", "body": reply.body[: len(reply.body) // 2 if cut else None], "more_body": cut}
    )
