"""From an event's publication to the POST at its subscriber, through everything that `penstock up` runs with Spark.

API, SQS server, router and Spark are processes of their own, on SQLite, with their default settings.
"""

import asyncio
import os
import statistics
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec

from penstock.client.asynchronous import AsyncPenstock
from penstock.client.event import Event, decode_event
from penstock.edge.clock import wall_seconds
from penstock.ops.parts import LOOPBACK, Engine, Ports, parts_of
from penstock.ops.supervisor import Supervisor
from penstock.testing.receiver import RecordingReceiver

PER_S = 100
_KEYS = 50
# Until the JVM has compiled what it runs all the time.
_WARM_UP_S = 20
_PATIENCE_S = 120.0


class SteadyState(msgspec.Struct, frozen=True):
    """How long events took, and what the JVM had in memory in the end."""

    p50_ms: float
    p99_ms: float
    jvm_mb: float


async def steady_state(directory: Path, seconds: int, report: Callable[[str], None]) -> SteadyState:
    """100 events a second for so long, after a warm-up, each sent at its time whatever became of those before."""
    environment = {**os.environ, "PENSTOCK_EGRESS__ALLOW": LOOPBACK, "PENSTOCK_LOG__LEVEL": "error"}
    ports = Ports(http=0, sqs=0, pubsub=0, router=0, pipeline=0)
    parts = parts_of(directory, ports, environment, Engine.SPARK)
    sent, sent_s, arrived_s = 0, dict[str, float](), dict[str, float]()
    async with (
        RecordingReceiver() as receiver,
        Supervisor(parts, lambda line: report(f"the whole: {line}")) as supervisor,
    ):
        async with AsyncPenstock(supervisor.addresses["api"]) as penstock:
            await penstock.subscribe("subscriber", "orders:**", f"{receiver.url}/hook")
            # One alone, then many: what is sent before the first batches are through comes in one large batch, and
            # warms up nothing. Each waits for all before, so that nothing stands in the way of what is measured.
            for count in (1, _WARM_UP_S * PER_S, seconds * PER_S):
                sent_s = await _publish(penstock, range(sent, sent + count))
                sent += count
                arrived_s = await _arrivals(receiver, sent)
        jvm_mb = jvm_kb(os.getpid()) / 1024
    taken_ms = [(arrived_s[event_id] - at_s) * 1000 for event_id, at_s in sent_s.items()]
    return SteadyState(statistics.median(taken_ms), statistics.quantiles(taken_ms, n=100)[98], jvm_mb)


async def _publish(penstock: AsyncPenstock, numbers: range) -> dict[str, float]:
    """Publish the events of these numbers at their pace; when each was sent."""
    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    sent_s: dict[str, float] = {}
    async with asyncio.TaskGroup() as publishing:
        for place, number in enumerate(numbers):
            await asyncio.sleep(begin_s + place / PER_S - loop.time())
            event = Event(id=str(number), type="orders:created", key=f"order-{number % _KEYS}", data={"order": number})
            sent_s[event.id] = wall_seconds()
            publishing.create_task(_publish_one(penstock, event))
    return sent_s


async def _arrivals(receiver: RecordingReceiver, count: int) -> dict[str, float]:
    """Return when each event came first; one may come twice."""
    requests, arrived_s = 0, dict[str, float]()
    while len(arrived_s) < count:
        requests = len(await receiver.received(max(count, requests + 1), _PATIENCE_S))
        for request in receiver.requests[:requests]:
            arrived_s.setdefault(decode_event(request.body).id, request.received_s)
    return arrived_s


async def _publish_one(penstock: AsyncPenstock, event: Event) -> None:
    await penstock.publish(event)


def jvm_kb(ancestor: int) -> int:
    """What the Java processes among the descendants of a process have in memory."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,rss=,comm="], check=True, capture_output=True, text=True
    ).stdout
    rows = [line.split(maxsplit=3) for line in listed.splitlines()]
    family = {ancestor}
    # A child may be listed before its parent.
    while more := {int(pid) for pid, parent, *_ in rows if int(parent) in family} - family:
        family |= more
    return sum(int(rss) for pid, _, rss, name in rows if int(pid) in family and Path(name).name == "java")
