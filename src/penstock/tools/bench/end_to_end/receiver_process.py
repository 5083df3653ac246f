"""The receiver, as a process of its own: records every delivery and answers as the path says.

`/ok` answers 200, `/slow/5` after five seconds, `/hang` never, `/fail` with 503. `GET /report/STREAM` returns a
StreamReport, `GET /latencies/STREAM` the milliseconds of all new events.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from typing import cast

import httptools
import msgspec
import uvloop

from penstock.tools.bench.end_to_end.record import Delivered, ReceivedStream

_OK = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 12\r\n\r\n{"ack":true}'
_FAILED = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"
_JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"


class _Webhook(msgspec.Struct):
    data: Delivered
    partitionkey: str = ""


_decode = msgspec.json.Decoder(_Webhook).decode
_Finish = Callable[[bytes], None]


class ReceivedStreams:
    """The records of all streams. An answer is written in the next turn of the loop, so that overlaps are seen."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._streams: defaultdict[str, ReceivedStream] = defaultdict(ReceivedStream)
        self._answers: list[tuple[_Finish, bytes]] = []

    def take(self, path: str, body: bytes, write: _Finish) -> None:
        """Record a delivery and answer it."""
        webhook = _decode(body)
        record, key = self._streams[webhook.data.stream], webhook.partitionkey
        record.begin(key, webhook.data, time.monotonic())

        def finish(answer: bytes) -> None:
            record.end(key)
            write(answer)

        match path.split("/")[1:]:
            case ["slow", seconds]:
                self._loop.call_later(float(seconds), finish, _OK)
            case ["hang"]:
                pass
            case ["fail"]:
                self._soon(finish, _FAILED)
            case _:
                self._soon(finish, _OK)

    def _soon(self, finish: _Finish, answer: bytes) -> None:
        if not self._answers:
            self._loop.call_soon(self._flush)
        self._answers.append((finish, answer))

    def _flush(self) -> None:
        answers, self._answers = self._answers, []
        for finish, answer in answers:
            finish(answer)

    def answer(self, path: str) -> bytes:
        """Return what the benchmark asks for."""
        _, what, stream = path.split("/")
        record = self._streams[stream]
        content = msgspec.json.encode(record.report() if what == "report" else record.latencies_ms)
        return _JSON % (len(content), content)


class _Connection(asyncio.Protocol):
    def __init__(self, records: ReceivedStreams) -> None:
        self._records = records
        self._parser = httptools.HttpRequestParser(self)
        self._path = b""
        self._body = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        # uvloop's transports have the interface but not the base class.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Parse bytes of a request."""
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        """Keep the path."""
        self._path = url

    def on_body(self, body: bytes) -> None:
        """Collect a piece of the body."""
        self._body += body

    def on_message_complete(self) -> None:
        """Record a delivery, or answer a question of the benchmark."""
        body, self._body = self._body, b""
        if body:
            self._records.take(self._path.decode(), body, self._transport.write)
        else:
            self._transport.write(self._records.answer(self._path.decode()))


async def _serve() -> None:
    records = ReceivedStreams()
    server = await asyncio.get_running_loop().create_server(
        lambda: _Connection(records), "127.0.0.1", 0, backlog=10_000
    )
    print(f"listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve())
