"""Lists come in pages: what the API tells, and that clients and commands go on until the last one."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.cli.api_connection import ApiClient
from penstock.client import AsyncPenstock, Penstock
from penstock.jobs.sqlite import sqlite_repository
from penstock.testing.receiver import RecordingReceiver, Reply
from tests.dispatch_rig import DispatchRig, dispatch_rig

V1 = "/api/v1"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[DispatchRig]:
    repository = sqlite_repository(tmp_path / "jobs.db", durability="survives-process-crash-only")
    async with dispatch_rig(repository) as rig:
        yield rig


async def pages(rig: DispatchRig, name: str, limit: int) -> list[list[str]]:
    """The names or codes of each page."""
    found: list[list[str]] = []
    cursor: str | None = ""
    while cursor is not None:
        asked = f"?limit={limit}" + (f"&cursor={cursor}" if cursor else "")
        body = (await rig.ask("GET", f"{V1}/{name}{asked}")).body
        found.append([each.get("name") or each["code"] for each in body[name]])
        cursor = body["cursor"]
    return found


async def test_subscriptions_come_the_oldest_first_and_pools_by_code(rig: DispatchRig) -> None:
    for name in ("c", "a", "b"):
        await rig.subscribe(name)
        await rig.ask("PUT", f"{V1}/pools/{name}", {"concurrency": 1})
    assert await pages(rig, "subscriptions", 2) == [["c", "a"], ["b"]]
    assert await pages(rig, "subscriptions", 3) == [["c", "a", "b"]]
    assert await pages(rig, "pools", 2) == [["a", "b"], ["c"]]
    for bad in ("limit=0", "limit=1001", "page=2"):
        assert (await rig.ask("GET", f"{V1}/pools?{bad}")).status == 400


async def test_clients_and_commands_ask_for_every_page() -> None:
    pool = {"concurrency": 1, "rateLimitPerMinute": None}
    first = json.dumps({"pools": [{"code": "a", **pool}], "cursor": "a/1"}).encode()
    last = json.dumps({"pools": [{"code": "b", **pool}], "cursor": None}).encode()
    async with RecordingReceiver() as server:
        server.script(*[Reply(body=body) for _ in range(3) for body in (first, last)])
        url = server.url.removesuffix("/hook")
        async with AsyncPenstock(url) as asynchronous:
            assert [each.code for each in await asynchronous.pools()] == ["a", "b"]

        def blocking() -> list[str]:
            with Penstock(url) as penstock:
                return [each.code for each in penstock.pools()]

        assert await asyncio.to_thread(blocking) == ["a", "b"]
        told = await asyncio.to_thread(ApiClient(url, "").get_all, f"{V1}/pools", "pools")
        assert told.json == {"pools": [{"code": "a", **pool}, {"code": "b", **pool}], "cursor": None}
    assert [request.path for request in server.requests] == [f"{V1}/pools", f"{V1}/pools?cursor=a%2F1"] * 3
