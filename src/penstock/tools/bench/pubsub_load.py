"""The load on a Pub/Sub server, in a process of its own: reads one order from standard input, prints its figures.

python -m penstock.tools.bench.pubsub_load < order.json
"""

import asyncio
import os
import sys
import threading
import time
from concurrent.futures import Future
from typing import Any

import grpc  # type: ignore[import-untyped]
import msgspec
import uvloop
from google.cloud import pubsub_v1  # type: ignore[import-untyped]
from google.pubsub_v1 import types

_BATCH = 100
_CALLS_AT_ONCE = 8


class PubsubLoadRequest(msgspec.Struct, kw_only=True):
    """What to do, to which topic or subscription, with how many messages."""

    work: str
    address: str
    topic: str = ""
    subscription: str = ""
    messages: int = 10_000
    body_bytes: int = 256
    keys: int = 0


class PubsubLoadOutcome(msgspec.Struct, kw_only=True):
    """What came of it."""

    messages: int
    seconds: float


def publish(order: PubsubLoadRequest) -> PubsubLoadOutcome:
    """Google's client: publish() one message at a time, batched by the client with its own settings."""
    os.environ["PUBSUB_EMULATOR_HOST"] = order.address
    client = pubsub_v1.PublisherClient()
    body = b"x" * order.body_bytes
    started = time.perf_counter()
    futures: list[Future[str]] = [client.publish(order.topic, body) for _ in range(order.messages)]
    for future in futures:
        future.result()
    seconds = time.perf_counter() - started
    client.stop()
    return PubsubLoadOutcome(messages=order.messages, seconds=seconds)


def stream_ack(order: PubsubLoadRequest) -> PubsubLoadOutcome:
    """Google's client: one streaming pull whose callback acks, until every message was acked."""
    os.environ["PUBSUB_EMULATOR_HOST"] = order.address
    client = pubsub_v1.SubscriberClient()
    done = threading.Event()
    left = order.messages

    def ack(message: Any) -> None:
        nonlocal left
        message.ack()
        left -= 1
        if left <= 0:
            done.set()

    started = time.perf_counter()
    pulling = client.subscribe(order.subscription, callback=ack)
    if not done.wait(120):
        raise RuntimeError(f"{left} of {order.messages} messages did not come")
    seconds = time.perf_counter() - started
    pulling.cancel()
    pulling.result()
    client.close()
    return PubsubLoadOutcome(messages=order.messages, seconds=seconds)


async def publish_batches(order: PubsubLoadRequest) -> PubsubLoadOutcome:
    """A lean client: requests of 100 messages, eight at once."""
    body = b"x" * order.body_bytes
    request = types.PublishRequest.pb()(topic=order.topic)
    left = order.messages
    async with grpc.aio.insecure_channel(order.address) as channel:
        call = channel.unary_unary("/google.pubsub.v1.Publisher/Publish")

        async def caller() -> None:
            nonlocal left
            while left > 0:
                del request.messages[:]
                for number in range(left, max(0, left - _BATCH), -1):
                    key = f"key-{number % order.keys}" if order.keys else ""
                    request.messages.add(data=body, ordering_key=key)
                left -= _BATCH
                await call(request.SerializeToString())

        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(_CALLS_AT_ONCE):
                group.create_task(caller())
        return PubsubLoadOutcome(messages=order.messages, seconds=time.perf_counter() - started)


def main() -> None:
    """Carry out the order on standard input."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=PubsubLoadRequest)
    if order.work == "publish":
        outcome = publish(order)
    elif order.work == "stream_ack":
        outcome = stream_ack(order)
    else:
        outcome = uvloop.run(publish_batches(order))
    sys.stdout.buffer.write(msgspec.json.encode(outcome))


if __name__ == "__main__":
    main()
