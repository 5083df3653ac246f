"""A complete request, and the app's answer to it: direct, or through ASGI."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import unquote

from penstock.http.server.asgi import App, ClientGone, Headers, Message, Scope
from penstock.http.server.request_body import RequestBody

log = logging.getLogger(__name__)

STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


class AnswerSink(Protocol):
    """The connection that an answer is written to."""

    peer: str
    secure: bool

    def write(self, data: bytes) -> None:
        """Send bytes of an answer."""
        ...

    def head_start(self, status: int) -> bytes:
        """Return the beginning of every answer."""
        ...

    def is_last(self) -> bool:
        """Return whether the connection closes after this answer, whatever the client wants."""
        ...

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Work on the answer in a task."""
        ...

    def when_drained(self, then: Callable[[], None]) -> None:
        """Call `then` once the client has read enough for more to be written, usually immediately."""
        ...

    def answered(self) -> None:
        """Note that the answer is complete."""
        ...


class ServerAnswer:
    """A request and its answer: the exchange of a direct app, and receive and send of an ASGI app."""

    __slots__ = (
        "_chunked",
        "_gone",
        "_head",
        "_read",
        "_sink",
        "_state",
        "_streamed",
        "body",
        "headers",
        "is_too_long",
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
        streamed: RequestBody | None = None,
    ) -> None:
        self._sink = sink
        self.method = method
        self.target = target
        self.headers = headers
        self.body = body
        self.version = version
        self.keep_alive = keep_alive
        self._streamed = streamed
        self.is_too_long = False
        self._gone: asyncio.Future[None] | None = None
        self._state = "new"

    @property
    def peer(self) -> str:
        """Return the address that the connection came from."""
        return self._sink.peer

    @property
    def secure(self) -> bool:
        """Return whether the connection is encrypted."""
        return self._sink.secure

    def refuse_body(self) -> None:
        """Note that the body is longer than the app allows, and was not read."""
        self.is_too_long = True
        self.keep_alive = False

    def hang_up(self) -> None:
        """Note that the client has disconnected."""
        if self._streamed is not None and not self._streamed.is_complete:
            self._streamed.cut()
        if self._gone is None:
            self._gone = asyncio.get_running_loop().create_future()
        if not self._gone.done():
            self._gone.set_result(None)

    async def hung_up(self) -> None:
        """Return when the client has disconnected."""
        if self._gone is None:
            self._gone = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._gone)

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Send the whole answer."""
        self._state = "done"
        head = self._head_of(status, headers)
        shown = b"" if self.method == "HEAD" else body
        self._sink.write(b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), shown))
        self._sink.when_drained(self._sink.answered)

    def run_in_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Work on the answer in a task."""
        self._sink.run(self._finish(work))

    async def by_asgi(self, app: App) -> None:
        """Let an ASGI app answer."""
        self._read = False
        self._head = b""
        self._chunked = True
        await self._finish(app(self._scope(), self.receive, self.send))

    async def receive(self) -> Message:
        """Return the body, a long one in pieces; after that, wait for the client to disconnect."""
        if self._streamed is not None and not self._read:
            piece = await self._streamed.take()
            self._read = piece is None or self._streamed.is_taken
            if piece is not None:
                return {"type": "http.request", "body": piece, "more_body": not self._read}
        elif not self._read:
            self._read = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        await self.hung_up()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Send a part of the answer; head and body are written together if the body is complete."""
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
            "scheme": "https" if self.secure else "http",
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

    async def _finish(self, work: Awaitable[None]) -> None:
        """Do the work, and close the connection if it leaves the answer unfinished."""
        try:
            await work
        except ClientGone:
            log.debug("a client disconnected before its request was complete")
        except Exception:
            log.exception("a request failed, and the app did not answer it")
        finally:
            if self._state != "done":
                self.fail()

    def fail(self) -> None:
        """Answer with a server error, if nothing was sent yet, and close."""
        if self._state != "streaming":
            self._sink.write(self._sink.head_start(500) + b"content-length: 0\r\nconnection: close\r\n\r\n")
        self._state = "done"
        self.keep_alive = False
        self._sink.answered()

    def _head_of(self, status: int, headers: Headers) -> bytes:
        """Return the head without its end: the length of the body comes last."""
        if self._streamed is not None and not self._streamed.is_complete:
            self.keep_alive = False
        head = self._sink.head_start(status) + b"".join([b"%b: %b\r\n" % header for header in headers])
        lines = 2 + len(headers)
        if head.count(b"\n") != lines or head.count(b"\r") != lines:
            raise ValueError("a header must not contain a line break")
        return head if self.keep_alive and not self._sink.is_last() else head + b"connection: close\r\n"


def _chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body) if body else b""
