"""A queue for each pool, on a real SQS server: made on demand, shown to routers, removed when it is not needed."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from penstock.events.dispatch.pool_queues import PoolQueues
from penstock.events.store.repository import JobRepository
from penstock.events.store.sqlite import sqlite_repository
from penstock.queues.port import Publication
from tests.services.sqs_server import SqsServer, drain, running


@pytest.fixture
def sqs(tmp_path: Path) -> Iterator[SqsServer]:
    with running(tmp_path, "--memory") as server:
        yield server


@pytest.fixture
async def jobs(tmp_path: Path) -> AsyncIterator[JobRepository]:
    repository = sqlite_repository(tmp_path / "jobs.db")
    await repository.open(0)
    yield repository
    await repository.close()


def urls(sqs: SqsServer) -> list[str]:
    return sorted(url.rpartition("/")[2] for url in sqs.anyone.list_queues().get("QueueUrls", []))


async def test_a_pool_that_routers_know_has_a_queue_until_it_is_gone_and_empty(
    sqs: SqsServer, jobs: JobRepository
) -> None:
    shared = sqs.anyone.create_queue(QueueName="dispatch.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    first, second, third = (Publication(b"{}", "g", str(number), "orders") for number in range(3))
    before = PoolQueues(jobs, shared)
    # No router knows the pool yet, so that its jobs go to the queue that all consume.
    assert await before.publisher.publish([first]) == [None]
    await before.publisher.close()
    assert urls(sqs) == ["dispatch.fifo"]

    await jobs.add_pool_queues(["orders"])
    removed: list[bool] = []
    queues = PoolQueues(jobs, shared, lambda: removed.append(True))
    try:
        assert await queues.publisher.publish([second]) == [None]
        assert urls(sqs) == ["dispatch-orders.fifo", "dispatch.fifo"]

        await queues.remove_unused()
        assert (urls(sqs), removed) == (["dispatch-orders.fifo", "dispatch.fifo"], [])
        drain(sqs.anyone, shared.replace("dispatch.fifo", "dispatch-orders.fifo"), 1)
        await queues.remove_unused()
        assert (urls(sqs), removed) == (["dispatch.fifo"], [True])

        await jobs.add_pool_queues(["orders"])
        assert await queues.publisher.publish([third]) == [None]
        assert urls(sqs) == ["dispatch-orders.fifo", "dispatch.fifo"]
    finally:
        await queues.publisher.close()


async def test_what_is_settled_of_a_pool_is_what_is_in_neither_of_its_queues(
    sqs: SqsServer, jobs: JobRepository
) -> None:
    shared = sqs.anyone.create_queue(QueueName="dispatch.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    await jobs.add_pool_queues(["orders", "others"])
    queues = PoolQueues(jobs, shared)
    publisher = queues.publisher
    await publisher.open()
    try:
        empty_ms = await publisher.settled_before_ms("orders")
        await publisher.publish([Publication(b"{}", "g", "1", "orders")])
        assert await publisher.settled_before_ms("orders") < empty_ms + 1000
        assert await publisher.settled_before_ms("others") >= empty_ms
        assert await publisher.settled_before_ms() >= empty_ms
        drain(sqs.anyone, shared.replace("dispatch.fifo", "dispatch-orders.fifo"), 1)
        assert await publisher.settled_before_ms("orders") >= empty_ms
        # The queue is gone, and with it what was in it.
        await publisher.publish([Publication(b"{}", "g", "2", "orders")])
        sqs.anyone.delete_queue(QueueUrl=shared.replace("dispatch.fifo", "dispatch-orders.fifo"))
        assert await publisher.settled_before_ms("orders") >= empty_ms
    finally:
        await publisher.close()
