"""What a hostile peer costs others: latencies of a calm client, or of calm deliveries, without it and beside it.

Attackers run in processes of their own and at a low priority, so that what is measured is the server or the deliverer,
not the fight for processors. The last line is JSON: for each attack p50, p99 and the longest latency in milliseconds.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import repeat
from typing import NamedTuple

from hyperframe.frame import DataFrame, PingFrame, PriorityFrame, SettingsFrame, WindowUpdateFrame

from penstock.delivery import DeliveryFailed, HttpClient, head_with
from penstock.delivery.http.settings import HttpClientSettings
from penstock.http.server import HttpServer, Receive, Scope, Send, accept_lifespan, read_body, send_answer
from tests.attacks.test_hostile_endpoints import Loopback
from tests.rigs.http2_endpoint import Request, http2
from tests.rigs.http_endpoints import RawServer, read_request
from tests.rigs.tls import server_context, trusting_context

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
PIECE = b"x" * 65_536
CLIENTS: dict[str, tuple[bytes, bytes]] = {
    "endless header": (HEAD + b"Long: ", PIECE),
    "many headers": (HEAD, b"a: b\r\n" * 10_000),
    "endless trailer": (CHUNKED + b"0\r\nLong: ", PIECE),
    "chunk extensions": (CHUNKED, b"1;" + b"x" * 10_000 + b"\r\n.\r\n"),
    "tiny chunks": (CHUNKED, b"1\r\n.\r\n" * 10_000),
    "pipelined requests": (b"", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 2_000),
    "junk": (b"", b"\0\xff" * 30_000),
}
ANSWER = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
ENDPOINTS: dict[str, tuple[bytes, bytes]] = {
    "endless header": (b"HTTP/1.1 200 OK\r\nLong: ", PIECE),
    "endless trailer": (ANSWER + b"0\r\nLong: ", PIECE),
    "chunk extensions": (ANSWER, (b"1;" + b"x" * 10_000 + b"\r\n.\r\n") * 5),
    "tiny chunks": (ANSWER, b"1\r\n.\r\n" * 10_000),
    "1xx": (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 2_000),
}
FRAMES = {
    "h2 settings": SettingsFrame(0, settings={SettingsFrame.MAX_CONCURRENT_STREAMS: 100}),
    "h2 ping": PingFrame(0, opaque_data=b"12345678"),
    "h2 empty data": DataFrame(1, data=b""),
    "h2 window update": WindowUpdateFrame(0, window_increment=1),
    "h2 priority": PriorityFrame(1, depends_on=0),
}


class Latencies(NamedTuple):
    """Of the calm peer, in milliseconds."""

    p50_ms: float
    p99_ms: float
    max_ms: float
    requests: int


def summed(taken_s: list[float]) -> Latencies:
    """Summarize latencies."""
    ordered = sorted(taken_s)
    p50, p99 = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    return Latencies(round(p50 * 1000, 1), round(p99 * 1000, 1), round(ordered[-1] * 1000, 1), len(ordered))


@contextmanager
def attacker(work: Callable[..., None], *arguments: object) -> Iterator[None]:
    """Run an attack in a process of its own."""
    process = multiprocessing.get_context("fork").Process(target=work, args=arguments, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def flood_server(port: int, start: bytes, piece: bytes) -> None:
    """Send without end, again whenever the server hangs up."""
    os.nice(19)
    while True:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(start)
            for data in repeat(piece):
                connection.sendall(data)


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer as an API does."""
    if scope["type"] == "lifespan":
        await accept_lifespan(receive, send)
        return
    await send_answer(scope, send, 200, b"%d" % len(await read_body(receive)), {})


async def measure(ask: Callable[[], object], seconds: float) -> Latencies:
    """Ask again and again, 100 times a second."""
    taken: list[float] = []
    loop = asyncio.get_running_loop()
    end_s = loop.time() + seconds
    while loop.time() < end_s:
        began_s = time.perf_counter()
        await ask()  # type: ignore[misc]
        taken.append(time.perf_counter() - began_s)
        await asyncio.sleep(0.01)
    return summed(taken)


async def against_clients(seconds: float) -> dict[str, Latencies]:
    """Measure a calm client of a server that others flood."""
    found: dict[str, Latencies] = {}
    async with HttpServer(echo, "127.0.0.1", 0) as server, HttpClient(Loopback(), HttpClientSettings()) as client:
        head = head_with(f"{server.url}/", (("content-type", "text/plain"),))
        port = int(server.url.rpartition(":")[2])
        found["client: none"] = await measure(lambda: client.send(head, b"{}"), seconds)
        for name, (start, piece) in CLIENTS.items():
            with attacker(flood_server, port, start, piece):
                found[f"client: {name}"] = await measure(lambda: client.send(head, b"{}"), seconds)
    return found


def serve_flood(ready: "multiprocessing.connection.Connection", name: str) -> None:
    """Serve an endpoint that answers without end."""
    os.nice(19)

    async def http1(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        start, piece = ENDPOINTS[name]
        writer.write(start)
        with suppress(ConnectionError):
            for data in repeat(piece):
                writer.write(data)
                await writer.drain()

    async def frames(request: Request) -> None:
        request.session.h2.send_headers(request.stream_id, [(":status", "200")])
        await request.session.flush()
        data = FRAMES[name].serialize() * 1000
        while True:
            request.session.writer.write(data)
            await request.session.writer.drain()

    async def main() -> None:
        secure = name in FRAMES
        tls = server_context("shop.example", "h2") if secure else None
        async with RawServer(http2(frames) if secure else http1, tls).serving() as server:
            ready.send(server.port)
            await asyncio.Event().wait()

    with suppress(KeyboardInterrupt):
        asyncio.run(main())


@asynccontextmanager
async def deliveries_to(client: HttpClient, url: str) -> AsyncIterator[None]:
    """Deliver to a hostile endpoint all the time, eight at once."""
    head = head_with(url, ())

    async def deliver() -> None:
        while True:
            with suppress(DeliveryFailed):
                await client.send(head, b"{}")
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(deliver()) for _ in range(8)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def against_endpoints(seconds: float) -> dict[str, Latencies]:
    """Measure calm deliveries of a process that also delivers to a hostile endpoint."""
    found: dict[str, Latencies] = {}
    settings = HttpClientSettings(request_timeout_s=5.0)
    async with (
        HttpServer(echo, "127.0.0.1", 0) as calm,
        HttpClient(Loopback(), settings, trusting_context()) as client,
    ):
        head = head_with(f"{calm.url}/", (("content-type", "text/plain"),))
        found["endpoint: none"] = await measure(lambda: client.send(head, b"{}"), seconds)
        for name in (*ENDPOINTS, *FRAMES):
            here, there = multiprocessing.Pipe()
            with attacker(serve_flood, there, name):
                port = await asyncio.to_thread(here.recv)
                scheme = "https" if name in FRAMES else "http"
                async with deliveries_to(client, f"{scheme}://shop.example:{port}/"):
                    found[f"endpoint: {name}"] = await measure(lambda: client.send(head, b"{}"), seconds)
    return found


def main() -> int:
    """Run all attacks, print a table and JSON; the exit code is 1 if one cost others more than the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5, help="how long each attack lasts (5)")
    parser.add_argument(
        "--limit-ms", type=float, default=100, help="what an attack may cost at the 99th percentile (100)"
    )
    options = parser.parse_args()
    found = asyncio.run(against_clients(options.seconds)) | asyncio.run(against_endpoints(options.seconds))
    for name, latencies in found.items():
        print(f"{name:28} p50 {latencies.p50_ms:7} ms   p99 {latencies.p99_ms:7} ms   max {latencies.max_ms:7} ms")
    print(json.dumps({name: latencies._asdict() for name, latencies in found.items()}))
    calm_ms = max(found["client: none"].p99_ms, found["endpoint: none"].p99_ms)
    return int(max(latencies.p99_ms for latencies in found.values()) - calm_ms > options.limit_ms)


if __name__ == "__main__":
    sys.exit(main())
