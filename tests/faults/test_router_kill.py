"""Real brokers end to end, with the router killed in mid-flight: nothing is lost, and every group stays in order."""

import asyncio
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from penstock.domain.pointer import MessagePointer, encode_pointer
from penstock.queues.port import Publication
from penstock.testing.receiver import RecordingReceiver, Reply
from tests.rigs.penstock_process import RouterProcess
from tests.sources.rig import SourceRig
from tests.sources.rigs import RIGS

GROUPS = 12
PER_GROUP = 15
VISIBILITY_S = 4
WITHIN_S = 90.0

# moto forgets the order of a group when several of its leases end at once, which is what a kill leaves behind.
ORDERED_RIGS = [rig for rig in RIGS if rig.ordered and rig.keeps_order_when_leases_expire]


@pytest.fixture(
    params=[pytest.param(rig, marks=pytest.mark.xdist_group(rig.name), id=rig.name) for rig in ORDERED_RIGS]
)
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[SourceRig]:
    """A queue of its own on each real broker."""
    async with request.param.on_new_queue(request) as made:
        yield made


@pytest.fixture
async def receiver() -> AsyncIterator[RecordingReceiver]:
    """A subscriber that takes a moment for each delivery."""
    async with RecordingReceiver(Reply(delay_s=0.02)) as made:
        yield made


@pytest.fixture
def router(rig: SourceRig, tmp_path: Path) -> Iterator[RouterProcess]:
    """A router that consumes the queue."""
    yield from consuming(rig, tmp_path / "router")


@pytest.fixture
def other_router(rig: SourceRig, tmp_path: Path) -> Iterator[RouterProcess]:
    """A second router that consumes the queue."""
    yield from consuming(rig, tmp_path / "other")


def consuming(rig: SourceRig, path: Path) -> Iterator[RouterProcess]:
    path.mkdir()
    queue = {"queueName": "orders", "queueUri": rig.uri, "connections": 2, "visibilityTimeout": VISIBILITY_S}
    configuration = {"processingPools": [{"code": "P", "concurrency": 8}], "queues": [queue]}
    process = RouterProcess(path, configuration)
    yield process
    if process.process is not None:
        process.kill()


def publications(url: str) -> list[Publication]:
    """Messages of all groups by turns; the id tells the group and the place in it."""
    return [
        Publication(
            encode_pointer(MessagePointer(f"g{group:02}-{place:03}", url, "P", message_group_id=f"g{group:02}")),
            f"g{group:02}",
            f"g{group:02}-{place:03}",
        )
        for place in range(PER_GROUP)
        for group in range(GROUPS)
    ]


def first_deliveries(receiver: RecordingReceiver) -> dict[str, list[str]]:
    """Per group the messages in the order of their first delivery."""
    seen: dict[str, list[str]] = defaultdict(list)
    for message_id in receiver.message_ids:
        group = message_id.partition("-")[0]
        if message_id not in seen[group]:
            seen[group].append(message_id)
    return seen


async def until_all_delivered(receiver: RecordingReceiver) -> None:
    while len(set(receiver.message_ids)) < GROUPS * PER_GROUP:
        await receiver.received(len(receiver.requests) + 1, WITHIN_S)


@pytest.mark.parametrize("kills", [2])
async def test_a_killed_router_loses_nothing_and_keeps_every_group_in_order(
    rig: SourceRig, receiver: RecordingReceiver, router: RouterProcess, kills: int
) -> None:
    await rig.publish(*publications(receiver.url + "/process"))
    for kill in range(kills):
        await asyncio.to_thread(router.start)
        await receiver.received((kill + 1) * 40, WITHIN_S)
        await asyncio.to_thread(router.kill)
    await asyncio.to_thread(router.start)
    await until_all_delivered(receiver)
    expected = {f"g{group:02}": [f"g{group:02}-{place:03}" for place in range(PER_GROUP)] for group in range(GROUPS)}
    assert first_deliveries(receiver) == expected


async def test_a_router_that_is_told_to_stop_gives_everything_back_at_once(
    rig: SourceRig, receiver: RecordingReceiver, router: RouterProcess
) -> None:
    await rig.publish(*publications(receiver.url + "/process"))
    await asyncio.to_thread(router.start)
    await receiver.received(40, WITHIN_S)
    assert await asyncio.to_thread(router.stop) == 0
    delivered = len(receiver.requests)
    assert len(set(receiver.message_ids)) == delivered
    await asyncio.to_thread(router.start)
    await until_all_delivered(receiver)
    # What was delivered was settled, and what was not was given back: nothing came twice.
    assert sorted(receiver.message_ids) == sorted(set(receiver.message_ids))


async def test_a_router_that_slept_longer_than_its_leases_delivers_nothing_of_them(
    rig: SourceRig, receiver: RecordingReceiver, router: RouterProcess, other_router: RouterProcess
) -> None:
    if rig.name == "embedded":
        pytest.skip("a process that is stopped during a write keeps SQLite's lock; see docs/limits.md")
    await rig.publish(*publications(receiver.url + "/process"))
    await asyncio.to_thread(router.start)
    await receiver.received(40, WITHIN_S)
    sleeping = router.process
    assert sleeping is not None
    sleeping.send_signal(signal.SIGSTOP)
    try:
        await asyncio.to_thread(other_router.start)
        await until_all_delivered(receiver)
        delivered = len(receiver.requests)
    finally:
        sleeping.send_signal(signal.SIGCONT)
    # It ends by itself, so it has had every chance to deliver what it holds.
    assert await asyncio.to_thread(router.stop) == 0

    assert len(receiver.requests) == delivered
    expected = {f"g{group:02}": [f"g{group:02}-{place:03}" for place in range(PER_GROUP)] for group in range(GROUPS)}
    assert first_deliveries(receiver) == expected
