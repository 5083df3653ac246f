"""Three whole nodes, of which one is cut off from the database and comes back: `penstock up --node`."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from penstock.testing.receiver import RecordingReceiver
from tests.rigs.connection_cutter import Cutter
from tests.rigs.penstock_process import Machine, run_penstock, wait_until

# So short that the test does not last long, and so long that a busy machine renews its leases in time.
TTL_S = "6"
KEYS = 3
WITHIN_S = 240.0


class CutNode(Machine):
    """A whole node that reaches the database through a proxy."""

    def __init__(self, directory: Path, name: str, database: str) -> None:
        self.way = Cutter(database)
        self.name = name
        super().__init__(
            directory / name,
            settings={"PENSTOCK_CLUSTER__TTL_S": TTL_S},
            up_options=("--database", self.way.url, "--node", name),
        )

    def close(self) -> None:
        if self.process is not None:
            self.kill()
        self.way.close()

    def cut_off(self) -> None:
        """Lose what is sent to the database, and what it answers."""
        self.way.stalled = True

    def reconnect(self) -> None:
        """Reach the database again, by new connections."""
        self.way.stalled = False
        self.way.cut()

    def publish(self, *numbers: int) -> None:
        """Publish events; the number says of which key."""
        for number in numbers:
            event = {"specversion": "1.0", "id": f"event-{number}", "source": "test", "type": "orders:placed"}
            body = json.dumps({**event, "partitionkey": f"order-{number % KEYS}", "data": number}).encode()
            headers = {"Content-Type": "application/cloudevents+json"}
            with urlopen(Request(f"{self.url}/api/v1/events", body, headers), timeout=60) as answer:
                assert answer.status < 300

    def serves_queues(self) -> bool:
        """Whether its SQS server says that the queues have an owner and that commits succeed."""
        try:
            with urlopen(f"{self.addresses['sqs']}/health/ready", timeout=60) as answer:
                return bool(answer.status == 200)
        except (HTTPError, OSError):
            return False

    def shards_of(self, name: str) -> int:
        """How many shards of the queues a node owns, as this one sees it."""
        try:
            with urlopen(f"{self.addresses['sqs']}/cluster", timeout=60) as answer:
                shards = json.loads(answer.read())["shards"]
        except (HTTPError, OSError):
            return -1
        return sum(shard["owner"] == name for shard in shards if shard["part"] == "sqs")

    def leads(self) -> bool:
        """Whether its scheduler publishes."""
        return "penstock_scheduler_is_leader 1.0" in self.get("/metrics")


@pytest.fixture
def trio(tmp_path: Path, postgres_database: str) -> Iterator[list[CutNode]]:
    nodes = [CutNode(tmp_path, name, postgres_database) for name in "abc"]
    try:
        nodes[0].start()
        wait_until(nodes[0].leads, WITHIN_S)
        for node in nodes[1:]:
            node.start()
        for node in nodes:
            wait_until(lambda: nodes[0].shards_of(node.name) >= 2, WITHIN_S)  # noqa: B023 called at once
        yield nodes
    finally:
        for node in nodes:
            node.close()


@pytest.mark.long
async def test_a_node_that_is_cut_off_serves_nothing_others_take_over_and_it_joins_again(trio: list[CutNode]) -> None:
    cut, *others = trio
    async with RecordingReceiver() as receiver:
        others[0].penstock("pools", "set", "billing", "--concurrency", "4")
        others[0].penstock("subscriptions", "create", "billing", "--pattern", "orders:**", "--target", receiver.url)
        for node, numbers in zip(trio, (range(4), range(4, 8), range(8, 12)), strict=True):
            await asyncio.to_thread(node.publish, *numbers)
        await receiver.received(12, WITHIN_S)
        await asyncio.to_thread(wait_until, lambda: jobs_are_done(others[0]), WITHIN_S)

        cut.cut_off()
        for other, numbers in zip(others, (range(12, 18), range(18, 24)), strict=True):
            await asyncio.to_thread(other.publish, *numbers)
        refused = await asyncio.to_thread(
            run_penstock, "publish", "orders:placed", "--data", "lost", "--endpoint", cut.url
        )
        assert refused.returncode != 0
        await receiver.received(24, WITHIN_S)
        await asyncio.to_thread(wait_until, lambda: not cut.serves_queues(), WITHIN_S)
        await asyncio.to_thread(wait_until, lambda: sum(others[0].shards_of(each.name) for each in others) == 8)
        await asyncio.to_thread(wait_until, lambda: any(other.leads() for other in others), WITHIN_S)

        cut.reconnect()
        await asyncio.to_thread(wait_until, lambda: others[0].shards_of(cut.name) >= 2, WITHIN_S)
        await asyncio.to_thread(wait_until, cut.serves_queues, WITHIN_S)
        await asyncio.to_thread(cut.publish, *range(24, 30))
        requests = await receiver.received(30, WITHIN_S)
        await asyncio.to_thread(wait_until, lambda: jobs_are_done(cut), WITHIN_S)
    arrived = [json.loads(request.body)["data"] for request in requests]
    assert sorted(arrived) == list(range(30)), "lost or doubled"
    for key in range(KEYS):
        assert [number for number in arrived if number % KEYS == key] == list(range(key, 30, KEYS))


def jobs_are_done(node: CutNode) -> bool:
    """Whether every delivery is finished."""
    return all(job["status"] == "COMPLETED" for job in json.loads(node.penstock("jobs", "list", "--json"))["jobs"])
