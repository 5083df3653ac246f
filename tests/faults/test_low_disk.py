"""Below the low-water mark nothing new is taken, while what is there is received, delivered and settled."""

from pathlib import Path

import pytest

from penstock.broker.async_broker import AsyncBroker
from penstock.broker.message import InternalMessage
from penstock.domain.errors import PenstockError
from penstock.domain.ids import TsidFactory
from penstock.domain.limits import MIB
from penstock.edge import disk_space
from penstock.edge.disk_space import LOW_WATER_BYTES
from penstock.engine.store.sqlite import SqliteStore
from penstock.events.store.sqlite import sqlite_repository
from penstock.http.server.server import HttpServer
from penstock.sqs.model import (
    CreateQueueRequest,
    DeleteMessageRequest,
    ReceiveMessageRequest,
    SendMessageBatchRequest,
    SendMessageBatchRequestEntry,
    SendMessageRequest,
)
from penstock.sqs.server import SqsServerSettings, open_service, sqs_app
from penstock.testing.clock import VirtualClock
from tests.faults.test_full_disk_readiness import readiness
from tests.rigs.dispatch import cloud_event, dispatch_rig
from tests.services.sqs_actions import act

NEARLY_FULL = r"the disk of .* is nearly full: 63 MiB are free, and below 64 MiB nothing new is taken; free up space"


class WatchedDisk:
    """A disk with as much room as the test says."""

    def __init__(self) -> None:
        self.free_bytes = 10_000 * MIB

    def free(self, _: Path) -> int:
        return self.free_bytes


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> WatchedDisk:
    monkeypatch.setattr(disk_space, "_LOOK_S", 0.0)
    return WatchedDisk()


async def test_the_sqs_server(tmp_path: Path, disk: WatchedDisk) -> None:
    store = SqliteStore(tmp_path / "sqs.db", free=disk.free)
    async with open_service({"": store}, VirtualClock(), TsidFactory(1), SqsServerSettings()) as service:
        url = (await act(service, "CreateQueue", CreateQueueRequest("q", {}))).queue_url
        await act(service, "SendMessage", SendMessageRequest(url, "before"))
        disk.free_bytes = LOW_WATER_BYTES - 1
        with pytest.raises(PenstockError, match=NEARLY_FULL):
            await act(service, "SendMessage", SendMessageRequest(url, "refused"))
        entries = [SendMessageBatchRequestEntry("1", "refused")]
        with pytest.raises(PenstockError, match=NEARLY_FULL):
            await act(service, "SendMessageBatch", SendMessageBatchRequest(url, entries))
        (message,) = (await act(service, "ReceiveMessage", ReceiveMessageRequest(url))).messages
        await act(service, "DeleteMessage", DeleteMessageRequest(url, message.receipt_handle))
        async with HttpServer(sqs_app(service, None), "127.0.0.1", 0) as server:
            # Ready: clients have to reach it to settle their messages.
            assert (await readiness(server.url, "store"))[0] == 200
        disk.free_bytes = LOW_WATER_BYTES
        await act(service, "SendMessage", SendMessageRequest(url, "after"))
        (message,) = (await act(service, "ReceiveMessage", ReceiveMessageRequest(url))).messages
        assert message.body == "after"


async def test_topics(tmp_path: Path, disk: WatchedDisk) -> None:
    store = SqliteStore(tmp_path / "pubsub.db", free=disk.free)
    async with await AsyncBroker.open(store, VirtualClock(), TsidFactory(1)) as broker:
        await broker.register_topic("t")
        await broker.register_subscription("s", "t")
        await broker.publish("t", [InternalMessage(data=b"before")])
        disk.free_bytes = LOW_WATER_BYTES - 1
        with pytest.raises(PenstockError, match=NEARLY_FULL):
            await broker.publish("t", [InternalMessage(data=b"refused")])
        (received,) = await broker.pull("s", 10)
        assert received.ack_id is not None
        await broker.ack([received.ack_id])
        disk.free_bytes = LOW_WATER_BYTES
        await broker.publish("t", [InternalMessage(data=b"after")])


async def test_events_and_jobs(tmp_path: Path, disk: WatchedDisk) -> None:
    async with dispatch_rig(sqlite_repository(tmp_path / "jobs.db", free=disk.free)) as rig:
        await rig.subscribe()
        await rig.publish(1)
        disk.free_bytes = LOW_WATER_BYTES - 1
        job = {"type": "t", "target": rig.receiver.url}
        for path, body in (("events", cloud_event(2)), ("jobs", job)):
            answer = await rig.ask("POST", f"/api/v1/{path}", body)
            assert answer.status == 503
            assert "nearly full" in answer.body["detail"]
        (delivered,) = await rig.dispatch_all()
        assert (await rig.job(delivered))["status"] == "COMPLETED"
        disk.free_bytes = LOW_WATER_BYTES
        await rig.publish(2)
        assert len(await rig.dispatch_all()) == 1
