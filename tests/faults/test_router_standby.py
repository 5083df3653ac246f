"""Two real routers, one lease in PostgreSQL: one consumes, and the other takes over when it is killed or stops."""

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.domain.pointer import MessagePointer, encode_pointer
from penstock.queues.open import publisher_for
from penstock.queues.port import Publication
from penstock.testing.receiver import RecordingReceiver
from tests.rigs.penstock_process import RouterProcess, wait_until
from tests.sources.rig_nats import NatsRig

TTL = {"PENSTOCK_SCHEDULER__LEASE_TTL_S": "8", "PENSTOCK_SCHEDULER__LEASE_RENEW_S": "0.5"}


def is_primary(router: RouterProcess) -> bool:
    """What a router says of itself."""
    with urllib.request.urlopen(f"{router.url}/monitoring/standby-status") as answer:
        return bool(json.load(answer)["primary"])


async def publish(uri: str, url: str, *ids: str) -> None:
    """Put pointers into the queue, all of one group."""
    publisher = publisher_for(uri)
    await publisher.open()
    pointers = [MessagePointer(each, url, "P", message_group_id="g") for each in ids]
    assert await publisher.publish([Publication(encode_pointer(each), "g", each.id) for each in pointers]) == [
        None for _ in ids
    ]
    await publisher.close()


async def until_delivered(receiver: RecordingReceiver, message_id: str) -> None:
    """Wait for a message; one that was delivered just before a kill may come again before it."""
    while message_id not in receiver.message_ids:
        await receiver.received(len(receiver.requests) + 1, 120)


@pytest.fixture(params=["embedded", "nats"])
async def uri(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """A queue in which one consumer at a time keeps the order."""
    if request.param == "embedded":
        yield f"sqlite://{tmp_path}/queue.db?queue=q"
        return
    async with NatsRig.on_new_queue(request) as rig:
        yield rig.uri


async def test_the_standby_takes_over(
    uri: str, postgres_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in TTL.items():
        monkeypatch.setenv(name, value)
    configuration = {
        "processingPools": [{"code": "P", "concurrency": 2}],
        "queues": [{"queueName": "q", "queueUri": uri, "visibilityTimeout": 2}],
    }
    options = ("--standby", "sql", "--database", postgres_database)
    routers = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        routers.append(RouterProcess(tmp_path / name, configuration, *options))
    first, second = routers
    async with RecordingReceiver() as receiver:
        try:
            await asyncio.to_thread(first.start)
            await asyncio.to_thread(wait_until, lambda: is_primary(first))
            await asyncio.to_thread(second.start)
            await publish(uri, receiver.url, "m1", "m2")
            await until_delivered(receiver, "m2")
            assert not await asyncio.to_thread(is_primary, second)

            await asyncio.to_thread(first.kill)
            await publish(uri, receiver.url, "m3")
            await until_delivered(receiver, "m3")
            assert await asyncio.to_thread(is_primary, second)

            await asyncio.to_thread(first.start)
            assert await asyncio.to_thread(second.stop) == 0
            await publish(uri, receiver.url, "m4")
            await until_delivered(receiver, "m4")
        finally:
            for router in routers:
                if router.process is not None:
                    router.kill()
    assert list(dict.fromkeys(receiver.message_ids)) == ["m1", "m2", "m3", "m4"]
