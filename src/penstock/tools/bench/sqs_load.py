"""The load on an SQS server, in a process of its own: reads orders from standard input, a line each, and answers each
with a line of figures.

python -m penstock.tools.bench.sqs_load < orders.jsonl
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

import msgspec
import uvloop

from penstock.tools.bench.bare_client import BareConnection, post

_BATCH = 10


class SqsLoadRequest(msgspec.Struct, kw_only=True):
    """What to do, how often, over how many connections."""

    work: str
    port: int
    queue_url: str = ""
    operations: int = 10_000
    connections: int = 32
    body_bytes: int = 256
    groups: int = 0
    per_second: int = 1_000


class SqsLoadOutcome(msgspec.Struct, kw_only=True):
    """What came of it."""

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
    """Prepared requests against one queue."""

    def __init__(self, order: SqsLoadRequest) -> None:
        self._order = order
        self._host = f"127.0.0.1:{order.port}"
        self._number = 0

    def _call(self, action: str, **fields: object) -> bytes:
        headers = {"X-Amz-Target": f"AmazonSQS.{action}", "Content-Type": "application/x-amz-json-1.0"}
        return post(self._host, "/", headers, msgspec.json.encode({"QueueUrl": self._order.queue_url, **fields}))

    def _message(self, body: str | None = None) -> dict[str, str]:
        self._number += 1
        message = {"MessageBody": body or "x" * self._order.body_bytes}
        if self._order.groups:
            message["MessageGroupId"] = f"group-{self._number % self._order.groups}"
            message["MessageDeduplicationId"] = f"{time.time_ns()}-{self._number}"
        return message

    async def noop(self, connection: BareConnection) -> int:
        """An empty request."""
        await connection.request(post(self._host, "/", {}, b""))
        return 1

    async def send(self, connection: BareConnection) -> int:
        """One message."""
        await connection.request(self._call("SendMessage", **self._message()))
        return 1

    async def send_batch(self, connection: BareConnection) -> int:
        """Ten messages."""
        entries = [{"Id": str(n), **self._message()} for n in range(_BATCH)]
        await connection.request(self._call("SendMessageBatch", Entries=entries))
        return _BATCH

    async def receive_delete(self, connection: BareConnection) -> int:
        """Up to ten messages received and deleted."""
        answer = await connection.request(self._call("ReceiveMessage", MaxNumberOfMessages=_BATCH))
        messages = _decode_received(answer).messages
        if messages:
            entries = [{"Id": str(n), "ReceiptHandle": m.receipt_handle} for n, m in enumerate(messages)]
            await connection.request(self._call("DeleteMessageBatch", Entries=entries))
        return len(messages)

    async def wake(self) -> SqsLoadOutcome:
        """Send at a steady pace to receivers that wait, and take the time from send to receipt."""
        order = self._order
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
                if len(latencies) >= order.operations:
                    done.set()

        async def sender(connection: BareConnection) -> None:
            for n in range(order.operations):
                await asyncio.sleep(max(0.0, started + n / order.per_second - time.perf_counter()))
                await connection.request(self._call("SendMessage", **self._message(str(time.perf_counter()))))

        connections = [await BareConnection.open(order.port) for _ in range(order.connections + 1)]
        async with asyncio.TaskGroup() as group:
            for connection in connections[1:]:
                group.create_task(receiver(connection))
            group.create_task(sender(connections[0]))
        return SqsLoadOutcome(messages=len(latencies), seconds=time.perf_counter() - started, latencies_ms=latencies)


async def _drive(order: SqsLoadRequest) -> SqsLoadOutcome:
    load = Load(order)
    if order.work == "wake":
        return await load.wake()
    work: Callable[[BareConnection], Awaitable[int]] = getattr(load, order.work)
    connections = [await BareConnection.open(order.port) for _ in range(order.connections)]
    messages = 0
    left = order.operations

    async def worker(connection: BareConnection) -> None:
        nonlocal messages, left
        while left > 0:
            left -= 1
            done = await work(connection)
            messages += done

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for connection in connections:
            group.create_task(worker(connection))
    seconds = time.perf_counter() - started
    for connection in connections:
        connection.close()
    return SqsLoadOutcome(messages=messages, seconds=seconds)


def main() -> None:
    """Carry out the orders on standard input."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for line in sys.stdin.buffer:
            outcome = runner.run(_drive(msgspec.json.decode(line, type=SqsLoadRequest)))
            sys.stdout.buffer.write(msgspec.json.encode(outcome) + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
