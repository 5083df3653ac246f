"""`penstock up --node` on two machines: each of them is whole, and one may end at any moment."""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg
import pytest

from penstock.testing.receiver import RecordingReceiver
from tests.cluster.rig import started_pair
from tests.rigs.penstock_process import Machine, run_penstock, wait_until


class NodeMachine(Machine):
    """`penstock up --node NAME`."""

    def __init__(self, directory: Path, name: str, database: str, more: Mapping[str, str] | None = None) -> None:
        options = ("--database", database, "--node", name)
        super().__init__(directory / name, up_options=options, settings=more)

    def publish(self, *numbers: int) -> None:
        """Publish events of one key."""
        for number in numbers:
            self.penstock("publish", "orders:placed", "--key", "order-1", "--data", str(number))

    def leads(self) -> bool:
        """Whether its scheduler publishes."""
        return "penstock_scheduler_is_leader 1.0" in self.get("/metrics")


@pytest.fixture
def pair(tmp_path: Path, postgres_database: str) -> Iterator[tuple[NodeMachine, NodeMachine]]:
    first, second = (NodeMachine(tmp_path, name, postgres_database) for name in "ab")
    with started_pair(first, second, first.leads):
        yield first, second


async def test_events_of_any_node_arrive_in_order_and_go_on_when_the_leader_is_killed(
    pair: tuple[NodeMachine, NodeMachine], postgres_database: str
) -> None:
    first, second = pair
    async with RecordingReceiver() as receiver:
        second.penstock("pools", "set", "billing", "--rate", "600")
        second.penstock("subscriptions", "create", "billing", "--pattern", "orders:**", "--target", receiver.url)
        await asyncio.to_thread(first.publish, 0, 1)
        await asyncio.to_thread(second.publish, 2)
        await receiver.received(3, 60)
        assert (first.leads(), second.leads()) == (True, False)
        await asyncio.to_thread(wait_until, lambda: second.penstock("status").count("sqs (4 of 8 shards)") == 2)
        status = second.penstock("status")
        assert re.search(
            r"^a +http://127.0.0.1:\d+ +LIVE +\d+ s +pubsub \(epoch 1\), sqs \(4 of 8 shards\)$", status, re.MULTILINE
        ), status
        assert re.search(r"^b +http://127.0.0.1:\d+ +LIVE +\d+ s +sqs \(4 of 8 shards\)$", status, re.MULTILINE), status
        first.kill()
        await asyncio.to_thread(second.publish, 3, 4)
        requests = await receiver.received(5, 90)
        await asyncio.to_thread(wait_until, second.leads)
    numbers = [json.loads(request.body)["data"] for request in requests]
    assert list(dict.fromkeys(numbers)) == [0, 1, 2, 3, 4]
    with psycopg.connect(postgres_database) as session:
        ((permits,),) = session.execute("SELECT sum(count) FROM penstock_cluster.permits WHERE pool = 'billing'")
    assert permits >= 5


def test_a_node_without_a_shared_database_is_refused(tmp_path: Path) -> None:
    refused = run_penstock("up", "--data", tmp_path, "--node", "a")
    assert refused.returncode == 2
    assert "--node needs a database that all nodes share" in refused.stderr
