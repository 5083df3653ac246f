"""The whole chain on PostgreSQL, Penstock SQS and a real receiver, with every process killed in turn.

API (process endpoint) → scheduler → SQS server → router → API → receiver: nothing is lost, every key stays in order.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from penstock.testing.receiver import RecordingReceiver, Reply
from tests.rigs.penstock_process import SECRET, RouterProcess, SchedulerProcess, ServedPart
from tests.services.sqs_server import SqsServer, running

KEYS = 8
PER_KEY = 30
WITHIN_S = 120.0
LOOPBACK = {"PENSTOCK_EGRESS__ALLOW": "127.0.0.0/8", "PENSTOCK_JOBS__AUTH_SECRET": SECRET}
# Leases so short that a test can wait for what a killed process held.
BRISK = {"PENSTOCK_SCHEDULER__CLAIM_LEASE_S": "2", "PENSTOCK_SCHEDULER__STALE_POLL_S": "1"}


class Chain:
    """Every process of the chain."""

    def __init__(self, directory: Path, database: str, sqs: SqsServer) -> None:
        attributes = {"FifoQueue": "true", "VisibilityTimeout": "4"}
        queue = sqs.anyone.create_queue(QueueName="dispatch.fifo", Attributes=attributes)["QueueUrl"]
        self.sqs = sqs
        self.database = database
        self.api = ServedPart(directory, "api", ("api", "--database", database, "--queue", queue), LOOPBACK)
        self.api.start()
        options = ("--database", database, "--queue", queue, "--endpoint", f"{self.api.url}/api/dispatch/process")
        self.scheduler = SchedulerProcess(directory, "scheduler", *options, settings=BRISK)
        self.scheduler.start()
        configuration = json.loads(self.api.get("/api/router/config"))
        self.router = RouterProcess(directory, configuration)
        self.router.start()

    def post(self, path: str, body: object) -> None:
        """Ask the API for a change."""
        headers = {"Content-Type": "application/json"}
        with urlopen(Request(self.api.url + path, json.dumps(body).encode(), headers), timeout=30):
            pass

    def close(self) -> None:
        """End what still runs."""
        for part in (self.router, self.scheduler, self.api):
            if part.process is not None:
                part.kill()


@pytest.fixture
def chain(postgres_database: str, tmp_path: Path) -> Iterator[Chain]:
    """The chain, running."""
    with running(tmp_path / "sqs", "--data", str(tmp_path / "sqs" / "data")) as sqs:
        made = Chain(tmp_path, postgres_database, sqs)
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
async def receiver() -> AsyncIterator[RecordingReceiver]:
    """A subscriber that takes a moment for each delivery."""
    async with RecordingReceiver(Reply(delay_s=0.01)) as made:
        yield made


def events() -> Iterator[dict[str, object]]:
    """Events of all keys by turns; the id tells the key and the place in it."""
    for place in range(PER_KEY):
        for key in range(KEYS):
            yield {
                "specversion": "1.0",
                "id": f"k{key}-{place:03}",
                "source": "/test",
                "type": "orders:step",
                "partitionkey": f"k{key}",
            }


def first_deliveries(receiver: RecordingReceiver) -> dict[str, list[str]]:
    """Per key the events in the order of their first delivery."""
    seen: dict[str, list[str]] = defaultdict(list)
    for request in receiver.requests:
        event_id = json.loads(request.body)["id"]
        if event_id not in seen[event_id.partition("-")[0]]:
            seen[event_id.partition("-")[0]].append(event_id)
    return seen


async def power_cut(*parts: ServedPart | SqsServer) -> None:
    """Kill parts, the last first, and start them again, the first first."""
    for part in reversed(parts):
        await asyncio.to_thread(part.kill)
    for part in parts:
        await asyncio.to_thread(part.start)


async def deliver_across(
    chain: Chain, receiver: RecordingReceiver, cuts: Sequence[Callable[[], Awaitable[None]]]
) -> None:
    """Publish a batch before each power cut, and cut while it is delivered; all of it arrives, in order per key."""
    subscription = {"name": "s", "pattern": "orders:**", "target": receiver.url, "retryDelaysS": [0.2] * 40}
    await asyncio.to_thread(chain.post, "/api/v1/subscriptions", subscription)
    waiting = events()
    for number, cut in enumerate(cuts):
        batch = list(islice(waiting, KEYS * PER_KEY // len(cuts)))
        await asyncio.to_thread(chain.post, "/api/v1/events", batch)
        await receiver.received(number * len(batch) + len(batch) // 3, WITHIN_S)
        await cut()
    while len({request.body for request in receiver.requests}) < KEYS * PER_KEY:
        await receiver.received(len(receiver.requests) + 1, WITHIN_S)
    expected = {f"k{key}": [f"k{key}-{place:03}" for place in range(PER_KEY)] for key in range(KEYS)}
    assert first_deliveries(receiver) == expected


async def test_whatever_is_killed_every_key_arrives_whole_and_in_order(
    chain: Chain, receiver: RecordingReceiver
) -> None:
    # Together: a router asks a dead API again only after a minute.
    whole_front = partial(power_cut, chain.api, chain.router)
    cuts = [partial(power_cut, part) for part in (chain.router, chain.scheduler, chain.sqs)]
    await deliver_across(chain, receiver, [*cuts, whole_front])


@pytest.mark.long
async def test_a_router_whose_api_is_killed_waits_for_it_and_keeps_every_key_in_order(
    chain: Chain, receiver: RecordingReceiver
) -> None:
    await deliver_across(chain, receiver, [partial(power_cut, chain.api)])
