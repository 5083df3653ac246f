"""A part whose disk is full is not ready, says what to do, and is ready again by a write or by room alone."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from penstock.domain.errors import PenstockError
from penstock.domain.ids import TsidFactory
from penstock.domain.limits import MIB
from penstock.engine.errors import StoreFailed
from penstock.engine.store.port import Shares, WriteBatch
from penstock.engine.store.sqlite import SqliteStore
from penstock.events.errors import DatabaseFailed
from penstock.events.store.sqlite import sqlite_repository
from penstock.http.server.server import HttpServer
from penstock.sqs.model import CreateQueueRequest, SendMessageRequest
from penstock.sqs.server import SqsServerSettings, open_service, sqs_app
from penstock.sqs.service import SqsService
from penstock.testing.clock import VirtualClock
from tests.rigs.dispatch import dispatch_rig, request
from tests.services.sqs_actions import act

LARGE = b"x" * 100_000


class SmallDisk:
    """A disk that is full when the test says so: SQLite may not take another page, and little is free."""

    def __init__(self) -> None:
        self.free_bytes = 10_000 * MIB
        self.connections: list[sqlite3.Connection] = []

    def free(self, _: Path) -> int:
        return self.free_bytes

    def fill(self) -> None:
        self.free_bytes = 100 * MIB
        self.connections[0].execute("PRAGMA max_page_count = 1")

    def empty(self) -> None:
        self.free_bytes = 10_000 * MIB
        self.connections[0].execute("PRAGMA max_page_count = 1000000")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SmallDisk:
    made, connect = SmallDisk(), sqlite3.connect

    def remembering(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        made.connections.append(connect(*args, **kwargs))
        return made.connections[-1]

    monkeypatch.setattr(sqlite3, "connect", remembering)
    return made


async def readiness(url: str, check: str) -> tuple[int, str]:
    """The status of the probe, and what one check says."""
    answer = await asyncio.to_thread(request, url, "GET", "/health/ready", None, None)
    return answer.status, answer.body["checks"][check]["detail"]


async def test_the_api(tmp_path: Path, disk: SmallDisk) -> None:
    async with dispatch_rig(sqlite_repository(tmp_path / "jobs.db", free=disk.free)) as rig:
        url = rig.server.url
        assert (await readiness(url, "writes"))[0] == 200
        for ends_by_itself in (True, False):
            disk.fill()
            with pytest.raises(DatabaseFailed, match="its disk is full"):
                await rig.make(payload=LARGE)
            status, told = await readiness(url, "writes")
            assert (status, told[: told.index(":")]) == (503, f"the disk of {tmp_path} is full")
            assert "free up space there until 356 MiB are, or move the data to a larger disk" in told
            # What changes nothing needs no room.
            await rig.repository.extend_leases(["none"], 1)
            assert (await readiness(url, "writes"))[0] == 503
            disk.empty()
            if not ends_by_itself:
                disk.free_bytes = 100 * MIB
                assert (await readiness(url, "writes"))[0] == 503
                await rig.make(payload=LARGE)
            assert (await readiness(url, "writes"))[0] == 200


async def send(service: SqsService, url: str) -> None:
    await act(service, "SendMessage", SendMessageRequest(url, LARGE.decode()))


async def test_the_sqs_server(tmp_path: Path, disk: SmallDisk) -> None:
    store = SqliteStore(tmp_path / "sqs.db", free=disk.free)
    async with open_service({"": store}, VirtualClock(), TsidFactory(1), SqsServerSettings()) as service:
        queue_url = (await act(service, "CreateQueue", CreateQueueRequest("q", {}))).queue_url
        async with HttpServer(sqs_app(service, None), "127.0.0.1", 0) as server:
            for ends_by_itself in (True, False):
                disk.fill()
                with pytest.raises(PenstockError, match="is full: free up space"):
                    await send(service, queue_url)
                status, told = await readiness(server.url, "store")
                assert (status, told[: told.index(":")]) == (503, f"the disk of {tmp_path} is full")
                assert "free up space there until 356 MiB are" in told
                disk.empty()
                if not ends_by_itself:
                    disk.free_bytes = 100 * MIB
                    assert (await readiness(server.url, "store"))[0] == 503
                    await send(service, queue_url)
                assert (await readiness(server.url, "store"))[0] == 200


class Touchy(SqliteStore):
    """A store that refuses every commit while told to."""

    refuse = False

    def apply(self, batch: WriteBatch) -> Shares:
        if self.refuse:
            raise StoreFailed("refused by the test")
        return super().apply(batch)


async def test_room_does_not_heal_what_failed_for_another_reason(tmp_path: Path, disk: SmallDisk) -> None:
    store = Touchy(tmp_path / "sqs.db", free=disk.free)
    async with open_service({"": store}, VirtualClock(), TsidFactory(1), SqsServerSettings()) as service:
        queue_url = (await act(service, "CreateQueue", CreateQueueRequest("q", {}))).queue_url
        store.refuse = True
        with pytest.raises(PenstockError, match="refused by the test"):
            await send(service, queue_url)
        assert service.last_failure() == "refused by the test"
        store.refuse = False
