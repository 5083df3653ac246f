"""A receiver of deliveries: parses HTTP with httptools, and answers every request, optionally after a delay."""

import asyncio
import sys
from typing import cast

import httptools
import uvloop

_ANSWER = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 12\r\n\r\n{"ack":true}'


class _Receiver(asyncio.Protocol):
    """A connection: collects what a handler would need, and answers without using it."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._body = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Parse bytes of a request."""
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a header."""
        self._headers.append((name, value))

    def on_body(self, body: bytes) -> None:
        """Collect a piece of the body."""
        self._body += body

    def on_message_complete(self) -> None:
        """Answer the request."""
        self._headers, self._body = [], b""
        if self._delay_s:
            self._loop.call_later(self._delay_s, self._transport.write, _ANSWER)
        else:
            self._transport.write(_ANSWER)


async def _serve(delay_s: float) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: _Receiver(delay_s), "127.0.0.1", 0, backlog=10_000)
    print(f"listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(float(sys.argv[1])))
