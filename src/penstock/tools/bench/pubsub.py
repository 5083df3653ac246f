"""Measures the Pub/Sub server, in memory and on SQLite with fsync, with clients in their own process."""

import asyncio
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple

import grpc  # type: ignore[import-untyped]
import msgspec
import uvloop
from google.pubsub_v1 import types

from penstock.client.blocking_http import BlockingHttp
from penstock.tools.bench.pubsub_load import PubsubLoadOutcome, PubsubLoadRequest
from penstock.tools.bench.servers import listening_address, port_of, python_process, server_process

_PUBLISHED = 30_000
_BATCHED = 200_000
_STREAMED = 20_000
_KEYS = 1_000
_IDLE_STREAMS = 1_000
_IDLE_S = 5.0
_PROJECT = "projects/bench"
# Reached only if an answer was lost.
_LOAD_TIMEOUT_S = 120.0
_PUBLISH_LOADS = (("publish", _PUBLISHED), ("publish_batches", _BATCHED))
_numbers = count()


class PubsubFigures(msgspec.Struct, kw_only=True):
    """The figures of `penstock bench pubsub`, with messages of 256 bytes to a topic with one subscription."""

    publish_msgs_per_s: float
    """Google's client, one publish() at a time, with its own batching; in memory."""
    publish_batch100_msgs_per_s: float
    """Requests of 100 messages from a minimal client, eight at once."""
    stream_ack_msgs_per_s: float
    """Google's client: one streaming pull whose callback acks."""
    ordered_stream_ack_msgs_per_s: float
    """The same over 1,000 ordering keys."""
    durable_publish_msgs_per_s: float
    """The same four on SQLite with fsync."""
    durable_publish_batch100_msgs_per_s: float
    durable_stream_ack_msgs_per_s: float
    durable_ordered_stream_ack_msgs_per_s: float
    noop_publish_msgs_per_s: float
    """publish() to a server on the same stack that stores nothing: the limit of Google's client on this machine."""
    noop_publish_batch100_msgs_per_s: float
    idle_cpu: float
    """Share of a core with 1,000 streaming pulls open while idle."""


class _Server(NamedTuple):
    address: str
    probes: str


class _Rates(NamedTuple):
    publish: float
    batch100: float
    stream_ack: float
    ordered: float


def bench_pubsub(rounds: int, report: Callable[[str], None]) -> PubsubFigures:
    """Measure everything; `report` is called with each step."""
    report("a Publish that stores nothing, on the same stack")
    with server_process("-m", "penstock.tools.bench.pubsub_noop") as address:
        noop = [_noop_rate(rounds, address, *load) for load in _PUBLISH_LOADS]
    with _serving("--memory") as server:
        memory = _rates(server, rounds, report, "in memory")
        report(f"idling with {_IDLE_STREAMS:,} streams open")
        idle = uvloop.run(_idle_cpu(server))
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory, _serving("--data", directory) as server:
        durable = _rates(server, rounds, report, "on SQLite with fsync")
    return PubsubFigures(
        publish_msgs_per_s=memory.publish,
        publish_batch100_msgs_per_s=memory.batch100,
        stream_ack_msgs_per_s=memory.stream_ack,
        ordered_stream_ack_msgs_per_s=memory.ordered,
        durable_publish_msgs_per_s=durable.publish,
        durable_publish_batch100_msgs_per_s=durable.batch100,
        durable_stream_ack_msgs_per_s=durable.stream_ack,
        durable_ordered_stream_ack_msgs_per_s=durable.ordered,
        noop_publish_msgs_per_s=noop[0],
        noop_publish_batch100_msgs_per_s=noop[1],
        idle_cpu=idle,
    )


def _rates(server: _Server, rounds: int, report: Callable[[str], None], where: str) -> _Rates:
    report(f"publish() of Google's client, {where}")
    publish = statistics.median(_publish(server, "publish", _PUBLISHED) for _ in range(rounds))
    report(f"requests of 100 messages, {where}")
    batch100 = statistics.median(_publish(server, "publish_batches", _BATCHED) for _ in range(rounds))
    report(f"streaming pull and ack of Google's client, {where}")
    stream_ack = statistics.median(_stream(server, keys=0) for _ in range(rounds))
    report(f"the same over {_KEYS:,} ordering keys, {where}")
    ordered = statistics.median(_stream(server, keys=_KEYS) for _ in range(rounds))
    return _Rates(publish, batch100, stream_ack, ordered)


def _noop_rate(rounds: int, address: str, work: str, messages: int) -> float:
    request = PubsubLoadRequest(work=work, address=address, topic=f"{_PROJECT}/topics/noop", messages=messages)
    return statistics.median(_rate(request) for _ in range(rounds))


def _publish(server: _Server, work: str, messages: int) -> float:
    with _subscription(server.address) as (topic, _):
        return _rate(PubsubLoadRequest(work=work, address=server.address, topic=topic, messages=messages))


def _stream(server: _Server, keys: int) -> float:
    with _subscription(server.address, enable_message_ordering=bool(keys)) as (topic, subscription):
        request = PubsubLoadRequest(
            work="publish_batches", address=server.address, topic=topic, messages=_STREAMED, keys=keys
        )
        _rate(request)
        return _rate(msgspec.structs.replace(request, work="stream_ack", subscription=subscription))


@contextmanager
def _subscription(address: str, **settings: bool) -> Iterator[tuple[str, str]]:
    """Provide a new topic with one subscription, and delete them at the end."""
    number = next(_numbers)
    topic, subscription = f"{_PROJECT}/topics/bench-{number}", f"{_PROJECT}/subscriptions/bench-{number}"
    with grpc.insecure_channel(address) as channel:
        _call(channel, "Publisher/CreateTopic", types.Topic(name=topic))
        created = types.Subscription(name=subscription, topic=topic, ack_deadline_seconds=60, **settings)
        _call(channel, "Subscriber/CreateSubscription", created)
        yield topic, subscription
        _call(channel, "Subscriber/DeleteSubscription", types.DeleteSubscriptionRequest(subscription=subscription))
        _call(channel, "Publisher/DeleteTopic", types.DeleteTopicRequest(topic=topic))


def _call(channel: grpc.Channel, method: str, request: object) -> None:
    raw = type(request).pb(request)  # type: ignore[attr-defined]  # the message that proto-plus wraps
    channel.unary_unary(f"/google.pubsub.v1.{method}")(raw.SerializeToString())


def _rate(request: PubsubLoadRequest) -> float:
    ran = subprocess.run(
        [sys.executable, "-m", "penstock.tools.bench.pubsub_load"],
        input=msgspec.json.encode(request),
        capture_output=True,
        check=False,
        timeout=_LOAD_TIMEOUT_S,
    )
    if ran.returncode:
        raise RuntimeError(f"the load failed: {ran.stderr.decode(errors='replace')[-2000:]}")
    outcome = msgspec.json.decode(ran.stdout, type=PubsubLoadOutcome)
    return outcome.messages / outcome.seconds


async def _idle_cpu(server: _Server) -> float:
    with _subscription(server.address) as (_, subscription):
        first = types.StreamingPullRequest.pb()(subscription=subscription, stream_ack_deadline_seconds=60)
        async with grpc.aio.insecure_channel(server.address) as channel:
            open_stream = channel.stream_stream("/google.pubsub.v1.Subscriber/StreamingPull")
            streams = [open_stream() for _ in range(_IDLE_STREAMS)]
            for stream in streams:
                await stream.write(first.SerializeToString())
            await asyncio.sleep(1.0)
            before = _cpu_seconds(server)
            await asyncio.sleep(_IDLE_S)
            used = _cpu_seconds(server) - before
            for stream in streams:
                stream.cancel()
    return used / _IDLE_S


def _cpu_seconds(server: _Server) -> float:
    with BlockingHttp("127.0.0.1", port_of(server.probes), secure=False, timeout_s=10) as http:
        metrics = http.send("GET", "/metrics", None, {}).body.decode()
    found = re.search(r"^process_cpu_seconds_total (\S+)$", metrics, re.MULTILINE)
    assert found is not None
    return float(found[1])


@contextmanager
def _serving(*options: str) -> Iterator[_Server]:
    """Run a Pub/Sub server of Penstock."""
    command = ("-m", "penstock", "--log-level", "warning", "serve", "pubsub", "--port", "0", "--probe-port", "0")
    with python_process(*command, *options) as lines:
        yield _Server(listening_address(lines), next(lines).split()[-1])
