"""The HTTP clients of benchmarks, on asyncio and httptools only.

Separate from `delivery.http` on purpose: a ceiling must not depend on the code measured against it, and the client that
loads a server must not be the bottleneck.
"""

import asyncio
from collections.abc import Iterator
from typing import cast

import httptools


class _Bare(asyncio.Protocol):
    """A persistent connection with one request at a time."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        # uvloop's transports have the interface but not the base class.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Parse bytes of an answer."""
        self._parser.feed_data(data)

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()


class BareConnection(_Bare):
    """Sends requests and returns the bodies of their answers."""

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
        """Send a request, and return the future of its body, or of a RuntimeError if the status is not 200."""
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(raw)
        return self._answer

    def on_body(self, body: bytes) -> None:
        """Collect a part of the body."""
        self._parts.append(body)

    def on_message_complete(self) -> None:
        """Set the result of the request."""
        body, self._parts = b"".join(self._parts), []
        status = self._parser.get_status_code()
        if self._answer is None or self._answer.done():
            return
        if status == 200:
            self._answer.set_result(body)
        else:
            self._answer.set_exception(RuntimeError(f"{status}: {body[:2000].decode(errors='replace')}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the pending request."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("the server closed the connection"))


class _Poster(_Bare):
    """Posts the next request when the last answer is complete, and ignores bodies."""

    def __init__(self, requests: Iterator[bytes], done: "asyncio.Future[None]") -> None:
        super().__init__()
        self._requests = requests
        self._done = done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        super().connection_made(transport)
        self.on_message_complete()

    def on_message_complete(self) -> None:
        """Send the next request."""
        request = next(self._requests, None)
        if request is not None:
            self._transport.write(request)
        elif not self._done.done():
            self._done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail, as requests are left."""
        if not self._done.done():
            self._done.set_exception(exc or ConnectionResetError("the receiver closed the connection"))


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
    """Return the bytes of a POST."""
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body
