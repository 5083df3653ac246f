"""Connections of the asyncio client: HTTP/1.1 over streams, kept open between calls."""

import asyncio
import ssl
from collections import deque
from contextlib import suppress

import httptools

from penstock.client.calls import A, Call
from penstock.client.endpoint import REPEAT_AFTER_S, Endpoint
from penstock.edge.clock import pause

_READ_BYTES = 65536
_BROKEN = (OSError, EOFError, httptools.HttpParserError)


class _Answer:
    """What was read of an answer; the parser calls it."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._chunks: list[bytes] = []
        self.complete = False
        self.keeps_connection = False

    def on_body(self, chunk: bytes) -> None:
        self._chunks.append(chunk)

    def on_message_complete(self) -> None:
        self.complete = True
        # Asked later, the parser has forgotten.
        self.keeps_connection = bool(self._parser.should_keep_alive())

    def feed(self, data: bytes) -> None:
        """Take what came; EOFError if the connection ended too early."""
        if not data:
            raise EOFError("the connection was closed before the answer was whole")
        self._parser.feed_data(data)

    @property
    def status(self) -> int:
        """The status code."""
        return int(self._parser.get_status_code())

    @property
    def content(self) -> bytes:
        """The body."""
        return b"".join(self._chunks)


class _Connection:
    """One open connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @property
    def usable(self) -> bool:
        """Whether the other side has not hung up, as far as one can see."""
        return not self._reader.at_eof() and not self._writer.is_closing()

    async def exchange(self, request: bytes) -> _Answer:
        """Send a request and read its answer."""
        self._writer.write(request)
        await self._writer.drain()
        answer = _Answer()
        while not answer.complete:
            answer.feed(await self._reader.read(_READ_BYTES))
        return answer

    def drop(self) -> None:
        """Hang up at once."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """Hang up and wait until that is done."""
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


class AsyncConnections:
    """Makes calls; any number of tasks may share it."""

    def __init__(self, endpoint: Endpoint, timeout_s: float) -> None:
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._tls = ssl.create_default_context() if endpoint.secure else None
        self._idle: deque[_Connection] = deque()

    async def ask(self, call: Call[A]) -> A:
        """The answer to a call; it is made again if the connection breaks and that does no harm."""
        for pause_s in REPEAT_AFTER_S if call.repeatable else ():
            try:
                return await self._exchange(call)
            except TimeoutError as error:
                raise self._endpoint.no_answer(call, error) from error
            except _BROKEN:
                await pause(pause_s)
        try:
            return await self._exchange(call)
        except _BROKEN as error:
            raise self._endpoint.no_answer(call, error) from error

    async def close(self) -> None:
        """Hang up; the next call connects anew."""
        while self._idle:
            await self._idle.pop().close()

    async def _exchange(self, call: Call[A]) -> A:
        async with asyncio.timeout(self._timeout_s):
            connection = await self._take()
            try:
                answer = await connection.exchange(self._request(call))
            except BaseException:
                connection.drop()
                raise
        if answer.keeps_connection:
            self._idle.append(connection)
        else:
            await connection.close()
        return self._endpoint.read(call, answer.status, answer.content)

    async def _take(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
            await connection.close()
        endpoint = self._endpoint
        return _Connection(*await asyncio.open_connection(endpoint.host, endpoint.port, ssl=self._tls))

    def _request(self, call: Call[A]) -> bytes:
        endpoint = self._endpoint
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        body = call.body or b""
        lines = [f"{call.method} {endpoint.base_path}{call.path} HTTP/1.1", f"Host: {host}:{endpoint.port}"]
        lines += [f"{name}: {value}" for name, value in endpoint.headers(call).items()]
        return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode("latin-1") + body
