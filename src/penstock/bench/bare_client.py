"""The ceiling of deliveries: a client of asyncio and httptools that does nothing but post and read the answer."""

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
