"""The ceiling of deliveries: a client of asyncio and httptools that does nothing but post and read the answer.

A bare HTTP/1.1 client on asyncio, so lean that a benchmark measures the server and not the client.
"""

import asyncio
from collections.abc import Iterator
from typing import cast

import httptools


class _Poster(asyncio.Protocol):
    """Posts the next request when the answer to the last one is whole."""

    def __init__(self, requests: Iterator[bytes], done: "asyncio.Future[None]") -> None:
        self._requests = requests
        self._done = done
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast("asyncio.Transport", transport)
        self._post()

    def data_received(self, data: bytes) -> None:
        """Some bytes of an answer."""
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        """An answer is whole."""
        self._post()

    def _post(self) -> None:
        request = next(self._requests, None)
        if request is not None:
            self._transport.write(request)
        elif not self._done.done():
            self._done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """The receiver hung up."""
        if not self._done.done():
            self._done.set_exception(exc or ConnectionResetError("the receiver hung up"))


async def post_all(port: int, requests: Iterator[bytes], connections: int) -> None:
    """Post all requests over so many connections."""
    loop = asyncio.get_running_loop()
    transports, waits = [], []
    for _ in range(connections):
        done: asyncio.Future[None] = loop.create_future()
        waits.append(done)
        transport, _ = await loop.create_connection(lambda d=done: _Poster(requests, d), "127.0.0.1", port)  # type: ignore[misc]
        transports.append(transport)
    await asyncio.gather(*waits)
    for transport in transports:
        transport.close()


class LeanConnection(asyncio.Protocol):
    """One keep-alive connection; one request at a time; answers must have a Content-Length."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._answer: asyncio.Future[bytes] | None = None

    @classmethod
    async def open(cls, host: str, port: int) -> "LeanConnection":
        """Connect."""
        _, connection = await asyncio.get_running_loop().create_connection(cls, host, port)
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        # uvloop's transports have the interface but not the base class.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Gather an answer; hand its body over when it is whole."""
        buffer = self._buffer + data if self._buffer else data
        head_end = buffer.find(b"\r\n\r\n")
        if head_end >= 0:
            at = buffer.lower().find(b"content-length:", 0, head_end)
            end = buffer.find(b"\r\n", at, head_end + 2)
            whole = head_end + 4 + int(buffer[at + 15 : end])
            if len(buffer) >= whole:
                answer, self._answer = self._answer, None
                self._buffer = b""
                if answer is not None and not answer.done():
                    if buffer.startswith(b"HTTP/1.1 200"):
                        answer.set_result(buffer[head_end + 4 : whole])
                    else:
                        answer.set_exception(RuntimeError(buffer[:2000].decode(errors="replace")))
                return
        self._buffer = buffer

    def connection_lost(self, exc: Exception | None) -> None:
        """The server hung up."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("the server hung up"))

    def request(self, raw: bytes) -> "asyncio.Future[bytes]":
        """Send a whole request; its answer's body comes."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(raw)
        return self._answer

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()


def post(host: str, path: str, headers: dict[str, str], body: bytes) -> bytes:
    """The bytes of a POST."""
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body
