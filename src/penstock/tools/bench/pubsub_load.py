"""Loads a Pub/Sub server from its own process: reads one request from standard input, and prints the result.

python -m penstock.tools.bench.pubsub_load < request.json
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
_CONCURRENT_CALLS = 8


class PubsubLoadRequest(msgspec.Struct, kw_only=True):
    """The work, its topic or subscription, and the number of messages."""

    work: str
    address: str
    topic: str = ""
    subscription: str = ""
    messages: int = 10_000
    body_bytes: int = 256
    keys: int = 0


class PubsubLoadOutcome(msgspec.Struct, kw_only=True):
    """The result of a load."""

    messages: int
    seconds: float


def publish(request: PubsubLoadRequest) -> PubsubLoadOutcome:
    """Publish one message at a time with Google's client and its own batching."""
    os.environ["PUBSUB_EMULATOR_HOST"] = request.address
    client = pubsub_v1.PublisherClient()
    body = b"x" * request.body_bytes
    started = time.perf_counter()
    futures: list[Future[str]] = [client.publish(request.topic, body) for _ in range(request.messages)]
    for future in futures:
        future.result()
    seconds = time.perf_counter() - started
    client.stop()
    return PubsubLoadOutcome(messages=request.messages, seconds=seconds)


def stream_ack(request: PubsubLoadRequest) -> PubsubLoadOutcome:
    """Ack every message in the callback of one streaming pull of Google's client."""
    os.environ["PUBSUB_EMULATOR_HOST"] = request.address
    client = pubsub_v1.SubscriberClient()
    done = threading.Event()
    left = request.messages

    def ack(message: Any) -> None:
        nonlocal left
        message.ack()
        left -= 1
        if left <= 0:
            done.set()

    started = time.perf_counter()
    pulling = client.subscribe(request.subscription, callback=ack)
    if not done.wait(120):
        raise RuntimeError(f"{left} of {request.messages} messages did not arrive")
    seconds = time.perf_counter() - started
    pulling.cancel()
    pulling.result()
    client.close()
    return PubsubLoadOutcome(messages=request.messages, seconds=seconds)


async def publish_batches(load: PubsubLoadRequest) -> PubsubLoadOutcome:
    """Publish requests of 100 messages with a minimal client, eight at once."""
    body = b"x" * load.body_bytes
    request = types.PublishRequest.pb()(topic=load.topic)
    left = load.messages
    async with grpc.aio.insecure_channel(load.address) as channel:
        call = channel.unary_unary("/google.pubsub.v1.Publisher/Publish")

        async def caller() -> None:
            nonlocal left
            while left > 0:
                del request.messages[:]
                for number in range(left, max(0, left - _BATCH), -1):
                    key = f"key-{number % load.keys}" if load.keys else ""
                    request.messages.add(data=body, ordering_key=key)
                left -= _BATCH
                await call(request.SerializeToString())

        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(_CONCURRENT_CALLS):
                group.create_task(caller())
        return PubsubLoadOutcome(messages=load.messages, seconds=time.perf_counter() - started)


def main() -> None:
    """Run the request on standard input."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=PubsubLoadRequest)
    if request.work == "publish":
        outcome = publish(request)
    elif request.work == "stream_ack":
        outcome = stream_ack(request)
    else:
        outcome = uvloop.run(publish_batches(request))
    sys.stdout.buffer.write(msgspec.json.encode(outcome))


if __name__ == "__main__":
    main()
