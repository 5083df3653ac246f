"""A request that has arrived whole, and the answer that the app gives to it: directly, or by ASGI."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import unquote

from penstock.http.server.asgi import App, Headers, Message, Scope

log = logging.getLogger(__name__)

STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


class AnswerSink(Protocol):
    """The connection as its answer sees it."""

    def write(self, data: bytes) -> None:
        """Send bytes of an answer."""
        ...

    def head_start(self, status: int) -> bytes:
        """What every answer begins with."""
        ...

    def is_last(self) -> bool:
        """Whether the connection closes after this answer, whatever the client wants."""
        ...

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Work on the answer in a task."""
        ...

    def when_drained(self, then: Callable[[], None]) -> None:
        """Go on once the client has read enough for more to be written: at once, as a rule."""
        ...

    def answered(self) -> None:
        """The answer is whole."""
        ...


class ServerAnswer:
    """One request and its answer; serves as a direct app's exchange and as an ASGI app's receive and send."""

    __slots__ = (
        "_chunked",
        "_gone",
        "_head",
        "_read",
        "_sink",
        "_state",
        "body",
        "headers",
        "keep_alive",
        "method",
        "target",
        "version",
    )

    def __init__(
        self,
        sink: AnswerSink,
        method: str,
        target: bytes,
        headers: Headers,
        body: bytes,
        version: str,
        *,
        keep_alive: bool,
    ) -> None:
        self._sink = sink
        self.method = method
        self.target = target
        self.headers = headers
        self.body = body
        self.version = version
        self.keep_alive = keep_alive
        self._gone: asyncio.Future[None] | None = None
        self._state = "new"

    def hang_up(self) -> None:
        """The client has gone."""
        if self._gone is None:
            self._gone = asyncio.get_running_loop().create_future()
        if not self._gone.done():
            self._gone.set_result(None)

    async def hung_up(self) -> None:
        """Return when the client has gone."""
        if self._gone is None:
            self._gone = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._gone)

    # Directly

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Give the whole answer."""
        self._state = "done"
        head = self._head_of(status, headers)
        shown = b"" if self.method == "HEAD" else body
        self._sink.write(b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), shown))
        self._sink.when_drained(self._sink.answered)

    def go_on(self, work: Coroutine[Any, Any, None]) -> None:
        """Work on the answer in a task."""
        self._sink.run(self._finish(work))

    # By ASGI

    async def by_asgi(self, app: App) -> None:
        """Let an ASGI app answer."""
        self._read = False
        self._head = b""
        self._chunked = True
        await self._finish(app(self._scope(), self.receive, self.send))

    async def receive(self) -> Message:
        """The body, once; then the client's going."""
        if not self._read:
            self._read = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        await self.hung_up()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """A part of the answer; head and body go out together when the body is whole."""
        if message["type"] == "http.response.start":
            self._state = "started"
            headers = message.get("headers", [])
            self._chunked = all(name != b"content-length" for name, _ in headers)
            self._head = self._head_of(message["status"], headers)
            return
        body: bytes = message.get("body", b"")
        if message.get("more_body", False):
            await self._send_piece(body)
            return
        if self._state == "streaming":
            self._sink.write(_chunk(body) + b"0\r\n\r\n" if self._chunked else body)
        elif self._chunked:
            self._sink.write(b"%bcontent-length: %d\r\n\r\n%b" % (self._head, len(body), body))
        else:
            self._sink.write(b"%b\r\n%b" % (self._head, body))
        self._state = "done"
        await self._drained()
        self._sink.answered()

    def _scope(self) -> Scope:
        path, _, query = self.target.partition(b"?")
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": self.version,
            "scheme": "http",
            "method": self.method,
            "path": unquote(path.decode("latin-1")) if b"%" in path else path.decode("latin-1"),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": self.headers,
        }

    async def _send_piece(self, body: bytes) -> None:
        piece = _chunk(body) if self._chunked else body
        if self._state != "streaming":
            self._state = "streaming"
            piece = self._head + (b"transfer-encoding: chunked\r\n\r\n" if self._chunked else b"\r\n") + piece
        self._sink.write(piece)
        await self._drained()

    async def _drained(self) -> None:
        drained = asyncio.get_running_loop().create_future()
        self._sink.when_drained(lambda: drained.set_result(None))
        await drained

    # Both

    async def _finish(self, work: Awaitable[None]) -> None:
        """Do the work, and close the connection when it leaves the answer unfinished."""
        try:
            await work
        except Exception:
            log.exception("a request failed in a way the app does not explain")
        finally:
            if self._state != "done":
                self.fail()

    def fail(self) -> None:
        """Answer that the app did not, as far as that can still be said, and close."""
        if self._state != "streaming":
            self._sink.write(self._sink.head_start(500) + b"content-length: 0\r\nconnection: close\r\n\r\n")
        self._state = "done"
        self.keep_alive = False
        self._sink.answered()

    def _head_of(self, status: int, headers: Headers) -> bytes:
        """The head without its end: how the length will be told comes last."""
        head = self._sink.head_start(status) + b"".join([b"%b: %b\r\n" % header for header in headers])
        lines = 2 + len(headers)
        if head.count(b"\n") != lines or head.count(b"\r") != lines:
            raise ValueError("a header may not hold a line break")
        return head if self.keep_alive and not self._sink.is_last() else head + b"connection: close\r\n"


def _chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body) if body else b""
