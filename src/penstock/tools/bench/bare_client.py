"""The clients of benchmarks: asyncio and httptools, and nothing else.

Separate from `delivery.http` on purpose: a ceiling must not be made of what is measured against it, and a client that
puts load on a server must not be what limits it.
"""

import asyncio
from collections.abc import Iterator
from typing import cast

import httptools


class _Bare(asyncio.Protocol):
    """One kept connection; one request at a time."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        # uvloop's transports have the interface but not the base class.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Some bytes of an answer."""
        self._parser.feed_data(data)

    def close(self) -> None:
        """Hang up."""
        self._transport.close()


class BareConnection(_Bare):
    """Sends the requests that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []
        self._answer: asyncio.Future[bytes] | None = None

    @classmethod
    async def open(cls, port: int) -> "BareConnection":
        """Connect to this machine."""
        _, connection = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return connection

    def request(self, raw: bytes) -> "asyncio.Future[bytes]":
        """Send a whole request; its answer's body comes, or a RuntimeError if the status is not 200."""
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(raw)
        return self._answer

    def on_body(self, body: bytes) -> None:
        """A part of an answer's body."""
        self._parts.append(body)

    def on_message_complete(self) -> None:
        """An answer is whole."""
        body, self._parts = b"".join(self._parts), []
        status = self._parser.get_status_code()
        if self._answer is None or self._answer.done():
            return
        if status == 200:
            self._answer.set_result(body)
        else:
            self._answer.set_exception(RuntimeError(f"{status}: {body[:2000].decode(errors='replace')}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """The server hung up."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("the server hung up"))


class _Poster(_Bare):
    """Posts the next request when the answer to the last one is whole, and looks at no body."""

    def __init__(self, requests: Iterator[bytes], done: "asyncio.Future[None]") -> None:
        super().__init__()
        self._requests = requests
        self._done = done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        super().connection_made(transport)
        self.on_message_complete()

    def on_message_complete(self) -> None:
        """An answer is whole."""
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
    """Post all requests over several connections: the ceiling of deliveries."""
    loop = asyncio.get_running_loop()
    posters, waits = [], []
    for _ in range(connections):
        done: asyncio.Future[None] = loop.create_future()
        waits.append(done)
        _, poster = await loop.create_connection(lambda d=done: _Poster(requests, d), "127.0.0.1", port)  # type: ignore[misc]
        posters.append(poster)
    await asyncio.gather(*waits)
    for poster in posters:
        poster.close()


def post(host: str, path: str, headers: dict[str, str], body: bytes) -> bytes:
    """The bytes of a POST."""
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body
