"""Lists come in pages: what the API tells, and that clients and commands go on until the last one."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any, get_origin

import msgspec
import pytest
from typer.testing import CliRunner

from penstock.cli.app import app
from penstock.client import AsyncPenstock, Penstock
from penstock.client.types import MOST_ON_A_PAGE
from penstock.console.front import WebFront
from penstock.domain.ids import TsidFactory
from penstock.engine.store.memory import MemoryStore
from penstock.events.api.app import route_table as jobs_routes
from penstock.events.api.jobs import groups
from penstock.events.store.sqlite import sqlite_repository
from penstock.http.api.paging import cursor_after
from penstock.router.monitoring.app import route_table as router_routes
from penstock.router.settings import RouterSettings
from penstock.sqs.admin.routes import AdminSurface
from penstock.sqs.queue.placement import OWN_DATABASE
from penstock.sqs.server import SqsServerSettings, open_service
from penstock.testing.clock import VirtualClock
from penstock.testing.receiver import RecordingReceiver, Reply
from tests.rigs.dispatch import DispatchRig, dispatch_rig, jobs_parts
from tests.rigs.job_database import with_tables
from tests.rigs.router_api import ServedApi
from tests.services.sqs_server import running

V1 = "/api/v1"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[DispatchRig]:
    repository = sqlite_repository(with_tables(tmp_path / "jobs.db"), durability="survives-process-crash-only")
    async with dispatch_rig(repository, WebFront.at(router="", queues="", pipeline="")) as rig:
        yield rig


async def told_in_pages(rig: DispatchRig, path: str, name: str, limit: int) -> list[list[Any]]:
    """What each page of a list has under a name."""
    found: list[list[Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        asked = f"limit={limit}" + (f"&cursor={cursor}" if cursor else "")
        answer = await rig.ask("GET", f"{path}{'&' if '?' in path else '?'}{asked}")
        assert answer.status == 200, answer
        found.append(answer.body[name])
        cursor = answer.body["cursor"]
    return found


async def pages(rig: DispatchRig, name: str, limit: int) -> list[list[str]]:
    """The names or codes of each page."""
    told = await told_in_pages(rig, f"{V1}/{name}", name, limit)
    return [[each.get("name") or each["code"] for each in page] for page in told]


async def test_subscriptions_come_the_oldest_first_and_pools_by_code(rig: DispatchRig) -> None:
    for name in ("c", "a", "b"):
        await rig.subscribe(name)
        await rig.ask("PUT", f"{V1}/pools/{name}", {"concurrency": 1})
    assert await pages(rig, "subscriptions", 2) == [["c", "a"], ["b"]]
    assert await pages(rig, "subscriptions", 3) == [["c", "a", "b"]]
    assert await pages(rig, "pools", 2) == [["a", "b"], ["c"]]
    for bad in ("limit=0", "limit=1001", "page=2"):
        assert (await rig.ask("GET", f"{V1}/pools?{bad}")).status == 400


async def test_held_groups_come_by_key_or_the_most_urgent_first(rig: DispatchRig) -> None:
    for group in ("b", "a", "c"):
        await rig.make(group, type="t")
    for job_id in await rig.queue_all():
        await rig.fail(job_id)
        rig.clock.advance(1)

    told = await told_in_pages(rig, f"{V1}/groups/held", "groups", 2)
    assert [[each["groupKey"] for each in page] for page in told] == [["t:a", "t:b"], ["t:c"]]
    urgent = (await rig.ask("GET", f"{V1}/groups/held?order=urgent&limit=2")).body
    assert ([each["groupKey"] for each in urgent["groups"]], urgent["cursor"]) == (["t:b", "t:a"], None)
    cursor = (await rig.ask("GET", f"{V1}/groups/held?limit=1")).body["cursor"]
    refused = await rig.ask("GET", f"{V1}/groups/held?order=urgent&cursor={cursor}")
    assert (refused.status, "takes no cursor" in refused.body["detail"]) == (400, True)


async def test_finished_jobs_and_attempts_come_in_pages(rig: DispatchRig) -> None:
    await rig.subscribe()
    for number in range(5):
        await rig.publish(number, partitionkey=f"order-{number}")
    ids = await rig.dispatch_all()

    told = await told_in_pages(rig, f"{V1}/deliveries?sinceMs=0", "deliveries", 2)
    assert [len(page) for page in told] == [2, 2, 1]
    assert sorted(each["id"] for page in told for each in page) == sorted(ids)

    tried = await rig.make()
    for _ in range(3):
        await rig.queue_all()
        await rig.fail_for_now(tried, 1)
        rig.clock.advance(1)
    told = await told_in_pages(rig, f"{V1}/jobs/{tried}/attempts", "attempts", 2)
    assert [[each["number"] for each in page] for page in told] == [[1, 2], [3]]


async def test_a_key_is_looked_for_in_the_lanes_of_every_subscription(
    rig: DispatchRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "MOST_LANES", 2)
    names = [(await rig.subscribe(f"subscriber-{number}"))[0] for number in range(5)]
    await rig.publish(partitionkey="order-1")

    found: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        asked = f"&cursor={cursor}" if cursor else ""
        body = (await rig.ask("GET", f"{V1}/groups/lanes?key=order-1{asked}")).body
        found += [lane["subscriptionId"] for lane in body["lanes"]]
        cursor = body["cursor"]
    assert found == names


async def test_jobs_of_a_key_are_found_whoever_they_are_owed_to(rig: DispatchRig) -> None:
    owed = [(await rig.subscribe(f"subscriber-{number}"))[0] for number in range(55)]
    await rig.publish(partitionkey="order-1")
    await rig.publish(partitionkey="order-2")

    told = await told_in_pages(rig, f"{V1}/jobs?key=order-1", "jobs", 50)
    assert [len(page) for page in told] == [50, 5]
    assert sorted(each["subscriptionId"] for page in told for each in page) == sorted(owed)
    assert {each["group"] for page in told for each in page} == {"order-1"}
    refused = await rig.ask("GET", f"{V1}/jobs?key=order-1&archived=true")
    assert (refused.status, "not archived" in refused.body["detail"]) == (400, True)


async def test_breakers_and_changes_come_in_pages(rig: DispatchRig) -> None:
    for number in range(3):
        target = f"{rig.receiver.url}/{number}"
        await rig.make(f"group {number}", target=target)
    await rig.dispatch_all()
    told = await told_in_pages(rig, f"{V1}/breakers", "circuitBreakers", 2)
    assert [[each["endpoint"][-1] for each in page] for page in told] == [["0", "1"], ["2"]]
    whole = (await rig.ask("GET", f"{V1}/breakers")).body
    assert (len(whole["circuitBreakers"]), whole["cursor"]) == (3, None)

    for name in "ab":
        await rig.subscribe(name)
    told = await told_in_pages(rig, f"{V1}/changes", "changes", 1)
    assert [[each["action"] for each in page] for page in told] == [["POST /api/v1/subscriptions"]] * 2


@pytest.mark.parametrize(
    "path",
    [
        "changes?",
        "deliveries?",
        "breakers?",
        "groups/held?",
        "groups/lanes?key=order-1&",
        "jobs?",
        "jobs?key=order-1&",
        "jobs/{job}/attempts?",
        "pools?",
        "subscriptions?",
    ],
)
async def test_a_cursor_that_no_list_made_is_refused_in_a_sentence(rig: DispatchRig, path: str) -> None:
    asked = path.format(job=await rig.make())

    for cursor in ("nonsense", "%00", "e30", cursor_after((True,)), cursor_after((2**63, ""))):
        refused = await rig.ask("GET", f"{V1}/{asked}cursor={cursor}")
        assert refused.status == 400, refused
        assert "send the cursor of the previous page unchanged" in refused.body["detail"]


@pytest.mark.parametrize(
    ("path", "key"),
    [("groups/held", ("\0",)), ("deliveries", (1, "\0")), ("deliveries", (-1, "x"))],
)
async def test_a_cursor_that_a_database_could_not_be_asked_for_is_refused(
    rig: DispatchRig, path: str, key: tuple[object, ...]
) -> None:
    refused = await rig.ask("GET", f"{V1}/{path}?cursor={cursor_after(key)}")

    assert (refused.status, "is not valid" in refused.body["detail"]) == (400, True)


async def test_the_queues_of_a_real_sqs_server_come_in_pages_that_queues_may_come_and_go_between(
    tmp_path: Path,
) -> None:
    with running(tmp_path / "sqs", "--memory") as sqs:
        for name in ("d", "b", "a", "c"):
            sqs.anyone.create_queue(QueueName=name)
        repository = sqlite_repository(with_tables(tmp_path / "jobs.db"), durability="survives-process-crash-only")
        async with dispatch_rig(repository, WebFront.at(router="", queues=sqs.url, pipeline="")) as rig:
            told = await told_in_pages(rig, "/api/queues", "queues", 3)
            assert [[each["name"] for each in page] for page in told] == [["a", "b", "c"], ["d"]]

            first = (await rig.ask("GET", "/api/queues?limit=2")).body
            sqs.anyone.delete_queue(QueueUrl=sqs.anyone.get_queue_url(QueueName="a")["QueueUrl"])
            sqs.anyone.create_queue(QueueName="aa")
            rest = (await rig.ask("GET", f"/api/queues?cursor={first['cursor']}")).body
            assert ([each["name"] for each in rest["queues"]], rest["cursor"]) == (["c", "d"], None)
            whole = (await rig.ask("GET", "/api/queues")).body
            assert [each["name"] for each in whole["queues"]] == ["aa", "b", "c", "d"]
            assert whole["cursor"] is None
            refused = await rig.ask("GET", "/api/queues?cursor=nonsense")
            assert (refused.status, "send the cursor of the previous page" in refused.body["detail"]) == (400, True)


# Answers with lists and no cursor, and why these cannot grow.
BOUNDED = {
    "/health": "a verdict names at most some reasons of each kind",
    "/api/v1/subscriptions/{id}/health": "a few kinds of reasons",
    "/api/v1/subscriptions/{id}/public-keys": "a key per secret, of which there are a few",
    "/api/v1/subscriptions/{id}/failures": "the newest ones, 200 at most; jobs in ERROR are listed as jobs",
    "/api/v1/metrics": "labels have a limited number of values",
    "/api/router/metrics": "labels have a limited number of values",
    "/api/v1/statistics/history": "a step per minute of two days at most",
    "/api/v1/replays": "the newest ones, a few",
    "/api/v1/feeds": "a feed per topic that an administrator made one",
    "/api/router/config": "routers read their configuration as a whole",
    "/api/pipeline": "a query per stream of the pipeline",
    "/api/queues/{name}": "partitions are limited; ten move tasks and the first dead-letter sources are shown",
    "/admin/queues/{name}": "partitions are limited; ten move tasks and the first dead-letter sources are shown",
    "/admin/queues/{name}/partitions": "partitions are limited",
    "/admin/queues/{name}/partitions/{index}/messages": "in pages by `after`, a sequence number",
}


async def test_every_list_that_can_grow_has_a_cursor() -> None:
    product = jobs_parts()
    front = WebFront.at(router="", queues="", pipeline="")
    router = router_routes(ServedApi(RouterSettings()).parts()).routes

    async with open_service(
        {OWN_DATABASE: MemoryStore()}, VirtualClock(), TsidFactory(1), SqsServerSettings()
    ) as service:
        sqs = AdminSurface(service).table.routes

    without: set[str] = set()
    for route in (*jobs_routes(product).routes, *front.routes(product), *router, *sqs):
        if route.method == "GET" and issubclass(route.answer, msgspec.Struct):
            answered = {field.name: get_origin(field.type) for field in msgspec.structs.fields(route.answer)}
            asked = {field.name for field in msgspec.structs.fields(route.query)}
            if list in answered.values() and not ("cursor" in answered and "cursor" in asked):
                without.add(route.path)
    assert without == BOUNDED.keys()


async def test_clients_tell_the_attempts_of_every_page(rig: DispatchRig, tmp_path: Path) -> None:
    tried, numbers = await rig.make(), list(range(1, MOST_ON_A_PAGE + 3))
    row = "INSERT INTO attempts (job_id, number, outcome, at_ms, duration_ms) VALUES (?, ?, 'DEFERRED', ?, 1)"
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection, connection:
        connection.executemany(row, [(tried, number, rig.now_ms + number) for number in numbers])

    async with AsyncPenstock(rig.server.url) as asynchronous:
        assert [each.number for each in await asynchronous.attempts(tried)] == numbers

    def blocking() -> list[int]:
        with Penstock(rig.server.url) as penstock:
            return [each.number for each in penstock.attempts(tried)]

    assert await asyncio.to_thread(blocking) == numbers
    told = await command("jobs", "show", tried, "--endpoint", rig.server.url)
    assert [each["number"] for each in told["attempts"]] == numbers


async def command(*arguments: str) -> Any:
    """What a command prints as JSON."""
    result = await asyncio.to_thread(CliRunner().invoke, app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


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
        told = await command("pools", "list", "--endpoint", url)
        assert told == {"pools": [{"code": "a", **pool}, {"code": "b", **pool}], "cursor": None}
    assert [request.path for request in server.requests] == [f"{V1}/pools", f"{V1}/pools?cursor=a%2F1"] * 3
