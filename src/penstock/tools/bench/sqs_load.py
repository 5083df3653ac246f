"""Loads an SQS server from its own process: reads requests from standard input, one per line, and prints a result each.

python -m penstock.tools.bench.sqs_load < requests.jsonl
"""

import asyncio
import math
import sys
import time
from collections.abc import Awaitable, Callable

import msgspec
import uvloop

from penstock.tools.bench.bare_client import BareConnection, post

_BATCH = 10
# What a load of a given length may take longer; then a server hangs.
_PATIENCE_S = 30.0


class SqsLoadRequest(msgspec.Struct, kw_only=True):
    """The work, the number of operations, and the number of connections."""

    work: str
    port: int
    more_ports: list[int] = []
    """Of other nodes, among which connections are spread."""
    queue_url: str = ""
    operations: int = 10_000
    seconds: float | None = None
    """How long to begin operations; a load of this length also ends when a receive finds nothing."""
    connections: int = 32
    body_bytes: int = 256
    groups: int = 0
    per_second: int = 1_000


class SqsLoadOutcome(msgspec.Struct, kw_only=True):
    """The result of a load."""

    messages: int
    seconds: float
    latencies_ms: list[float] = []


class _ReceivedMessage(msgspec.Struct, rename="pascal"):
    receipt_handle: str
    body: str = ""


class _Received(msgspec.Struct, rename="pascal"):
    messages: list[_ReceivedMessage] = []


_decode_received = msgspec.json.Decoder(_Received).decode


class Load:
    """Requests to one queue."""

    def __init__(self, request: SqsLoadRequest) -> None:
        self._request = request
        self._host = f"127.0.0.1:{request.port}"
        self._number = 0

    def _call(self, action: str, **fields: object) -> bytes:
        headers = {"X-Amz-Target": f"AmazonSQS.{action}", "Content-Type": "application/x-amz-json-1.0"}
        return post(self._host, "/", headers, msgspec.json.encode({"QueueUrl": self._request.queue_url, **fields}))

    def _message(self, body: str | None = None) -> dict[str, str]:
        self._number += 1
        message = {"MessageBody": body or "x" * self._request.body_bytes}
        if self._request.groups:
            message["MessageGroupId"] = f"group-{self._number % self._request.groups}"
            message["MessageDeduplicationId"] = f"{time.time_ns()}-{self._number}"
        return message

    async def noop(self, connection: BareConnection) -> int:
        """Send an empty request."""
        await connection.request(post(self._host, "/", {}, b""))
        return 1

    async def send(self, connection: BareConnection) -> int:
        """Send one message."""
        await connection.request(self._call("SendMessage", **self._message()))
        return 1

    async def send_batch(self, connection: BareConnection) -> int:
        """Send ten messages."""
        entries = [{"Id": str(n), **self._message()} for n in range(_BATCH)]
        await connection.request(self._call("SendMessageBatch", Entries=entries))
        return _BATCH

    async def receive_delete(self, connection: BareConnection) -> int:
        """Receive and delete up to ten messages."""
        answer = await connection.request(self._call("ReceiveMessage", MaxNumberOfMessages=_BATCH))
        messages = _decode_received(answer).messages
        if messages:
            entries = [{"Id": str(n), "ReceiptHandle": m.receipt_handle} for n, m in enumerate(messages)]
            await connection.request(self._call("DeleteMessageBatch", Entries=entries))
        return len(messages)

    async def wake(self) -> SqsLoadOutcome:
        """Send at a constant rate to waiting receivers, and measure the time from send to receipt."""
        request = self._request
        latencies: list[float] = []
        done = asyncio.Event()
        started = time.perf_counter()

        async def receiver(connection: BareConnection) -> None:
            raw = self._call("ReceiveMessage", MaxNumberOfMessages=_BATCH, WaitTimeSeconds=2)
            while not done.is_set():
                messages = _decode_received(await connection.request(raw)).messages
                now = time.perf_counter()
                latencies.extend((now - float(message.body)) * 1000 for message in messages)
                if messages:
                    entries = [{"Id": str(n), "ReceiptHandle": m.receipt_handle} for n, m in enumerate(messages)]
                    await connection.request(self._call("DeleteMessageBatch", Entries=entries))
                if len(latencies) >= request.operations:
                    done.set()

        async def sender(connection: BareConnection) -> None:
            for n in range(request.operations):
                await asyncio.sleep(max(0.0, started + n / request.per_second - time.perf_counter()))
                await connection.request(self._call("SendMessage", **self._message(str(time.perf_counter()))))

        connections = [await BareConnection.open(request.port) for _ in range(request.connections + 1)]
        async with asyncio.TaskGroup() as group:
            for connection in connections[1:]:
                group.create_task(receiver(connection))
            group.create_task(sender(connections[0]))
        return SqsLoadOutcome(messages=len(latencies), seconds=time.perf_counter() - started, latencies_ms=latencies)


async def _drive(request: SqsLoadRequest) -> SqsLoadOutcome:
    load = Load(request)
    if request.work == "wake":
        return await load.wake()
    work: Callable[[BareConnection], Awaitable[int]] = getattr(load, request.work)
    ports = [request.port, *request.more_ports]
    connections = [await BareConnection.open(ports[n % len(ports)]) for n in range(request.connections)]
    messages = 0
    left = request.operations
    started = time.perf_counter()
    until_s = started + (request.seconds or math.inf)

    async def worker(connection: BareConnection) -> None:
        nonlocal messages, left
        while left > 0 and time.perf_counter() < until_s:
            left -= 1
            done = await work(connection)
            messages += done
            if request.seconds and not done:
                left = 0

    async with (
        asyncio.timeout(_PATIENCE_S + request.seconds if request.seconds else None),
        asyncio.TaskGroup() as group,
    ):
        for connection in connections:
            group.create_task(worker(connection))
    seconds = time.perf_counter() - started
    for connection in connections:
        connection.close()
    return SqsLoadOutcome(messages=messages, seconds=seconds)


def main() -> None:
    """Run the requests on standard input."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for line in sys.stdin.buffer:
            outcome = runner.run(_drive(msgspec.json.decode(line, type=SqsLoadRequest)))
            sys.stdout.buffer.write(msgspec.json.encode(outcome) + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
