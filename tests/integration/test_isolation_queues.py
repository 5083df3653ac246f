"""Isolation on every kind of queue, with what `serve dispatch` and `serve router` make of one queue by themselves."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import nats
import pytest
from nats.js.api import StreamConfig

from penstock.testing.receiver import Ending, RecordingReceiver, Reply
from tests.rigs.dispatch import cloud_event, request
from tests.rigs.penstock_process import LOOPBACK, ServedPart
from tests.services.activemq import ActiveMQ
from tests.services.moto_server import moto_client
from tests.services.nats import NatsServer

# More than the credit of a pool, so that some stay in the database.
BACKLOG = 300
QUICK = 100
KEYS = 20
WITHIN_S = 90


class Place(msgspec.Struct, frozen=True):
    """A queue for dispatch, and the environment of the parts that use it."""

    uri: str
    settings: dict[str, str] = {}


def embedded(_: pytest.FixtureRequest, directory: Path) -> Place:
    return Place(f"sqlite://{directory}/queue.db?queue=dispatch")


def nats_stream(request: pytest.FixtureRequest, _: Path) -> Place:
    server: NatsServer = request.getfixturevalue("nats_server")

    async def make() -> None:
        client = await nats.connect(server.url)
        await client.jetstream().add_stream(StreamConfig(name="dispatch", subjects=["dispatch"]))
        await client.close()

    asyncio.run(make())
    return Place(f"{server.url}/dispatch/router")


def activemq_queue(request: pytest.FixtureRequest, _: Path) -> Place:
    broker: ActiveMQ = request.getfixturevalue("activemq")
    return Place(f"{broker.url}/queue/dispatch")


def aws(request: pytest.FixtureRequest, _: Path) -> Place:
    """A queue of AWS's, whose requests go to moto."""
    endpoint: str = request.getfixturevalue("moto_url")
    attributes = {"FifoQueue": "true", "VisibilityTimeout": "60"}
    moto_client(endpoint).create_queue(QueueName="dispatch.fifo", Attributes=attributes)
    settings = {
        "SQS_ENDPOINT_OVERRIDE": endpoint,
        "AWS_ACCESS_KEY_ID": "anyone",
        "AWS_SECRET_ACCESS_KEY": "nothing",
    }
    return Place("https://sqs.us-east-1.amazonaws.com/123456789012/dispatch.fifo", settings)


class Chain:
    """The API and the router of one queue."""

    def __init__(self, api: str, router: str) -> None:
        self.api = api
        self.router = router

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return what the API answers."""
        answer = request(self.api, method, path, body)
        assert answer.status == 200, answer
        return answer.body

    def subscribe(self, name: str, target: str, **more: Any) -> str:
        """Create a subscription to events of its name, and return its id."""
        body = {"name": name, "pattern": name, "target": target, **more}
        return str(self.ask("POST", "/api/v1/subscriptions", body)["subscription"]["id"])

    def publish(self, kind: str, count: int) -> None:
        """Publish events of some keys."""
        events = [
            cloud_event(number, id=f"{kind}-{number}", type=kind, partitionkey=f"k{number % KEYS}", data=number)
            for number in range(count)
        ]
        self.ask("POST", "/api/v1/events", events)

    def waiting(self, subscription_id: str) -> int:
        """Return how many jobs of a subscription are not finished, up to 1,000."""
        path = f"/api/v1/jobs?subscriptionId={subscription_id}&limit=1000&status="
        return sum(len(self.ask("GET", path + status)["jobs"]) for status in ("PENDING", "QUEUED", "PROCESSING"))

    def learn_pools(self) -> None:
        """Let the router read its pools and queues again now."""
        assert request(self.router, "POST", "/config/reload").status == 200

    def queues(self) -> set[str]:
        """Return the names of the queues that the router has received from."""
        answer = request(self.router, "GET", "/monitoring/queues")
        assert answer.status == 200
        return {each["name"] for each in answer.body["queues"] if each["received"]}


KINDS: dict[str, Callable[[pytest.FixtureRequest, Path], Place]] = {
    "embedded": embedded,
    "nats": nats_stream,
    "activemq": activemq_queue,
    "aws": aws,
}


@pytest.fixture(
    scope="module",
    params=[pytest.param(make, id=name, marks=pytest.mark.xdist_group(name)) for name, make in KINDS.items()],
)
def chain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    directory = tmp_path_factory.mktemp("chain")
    place: Place = request.param(request, directory)
    settings = {**LOOPBACK, **place.settings, "PENSTOCK_ROUTER__INITIAL_DELAY_S": "0"}
    with ExitStack() as stack:
        dispatch = ("dispatch", "--data", str(directory / "data"), "--queue", place.uri)
        api = stack.enter_context(ServedPart(directory, "dispatch", dispatch, settings)).url
        router = ("router", "--config", f"{api}/api/router/config")
        yield Chain(api, stack.enter_context(ServedPart(directory, "router", router, settings)).url)


@pytest.mark.parametrize("shared", [False, True], ids=["own-pools", "shared-pool"])
async def test_a_quick_subscriber_gets_all_its_events_while_anothers_backlog_stands(chain: Chain, shared: bool) -> None:
    name = "shared" if shared else "own"
    pool = {"pool": "common"} if shared else {}
    async with RecordingReceiver(Reply(ending=Ending.HANG)) as hanging, RecordingReceiver() as receiver:
        stuck = chain.subscribe(f"{name}-hanging", hanging.url, **pool)
        quick = chain.subscribe(f"{name}-quick", receiver.url, **pool)
        chain.learn_pools()
        chain.publish(f"{name}-hanging", BACKLOG)
        await hanging.received(1, WITHIN_S)

        chain.publish(f"{name}-quick", QUICK)
        await receiver.received(QUICK, WITHIN_S)

        assert chain.waiting(stuck) >= BACKLOG - KEYS
        used = {"dispatch-common"} if shared else {f"dispatch-{name}-hanging", f"dispatch-{name}-quick"}
        assert used <= chain.queues()
        for each in (stuck, quick):
            chain.ask("DELETE", f"/api/v1/subscriptions/{each}")
