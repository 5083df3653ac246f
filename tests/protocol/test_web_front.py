"""The API with the web page in front: what it serves, what gets through to other parts, and what does not."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.console.front import WebFront
from penstock.console.page import CONTENT_SECURITY_POLICY
from penstock.domain.replay import ReplayProgress, ReplaySelection
from penstock.edge.pause import pause
from penstock.events.api.app import route_table
from penstock.events.api.changes import IN_WORDS
from penstock.events.statistics.inline import InlineCounter
from penstock.events.store.sqlite import sqlite_repository
from penstock.testing.receiver import Ending, RecordingReceiver, Reply
from tests.rigs.dispatch import Answer, DispatchRig, dispatch_rig, jobs_parts
from tests.rigs.job_database import with_tables

NOWHERE = "http://127.0.0.1:9"


def front(url: str = NOWHERE, **options: Any) -> WebFront:
    return WebFront.at(**{"router": url, "queues": url, "pipeline": url, **options})


@asynccontextmanager
async def served(directory: Path, web: WebFront, **settings: Any) -> AsyncIterator[DispatchRig]:
    repository = sqlite_repository(with_tables(directory / "jobs.db"), durability="survives-process-crash-only")
    async with dispatch_rig(repository, web, **settings) as rig:
        yield rig


@pytest.fixture
async def upstream() -> AsyncIterator[RecordingReceiver]:
    """Stands for the router and the SQS server."""
    async with RecordingReceiver(Reply(body=b'{"fine":true}')) as receiver:
        yield receiver


@pytest.fixture
async def rig(tmp_path: Path, upstream: RecordingReceiver) -> AsyncIterator[DispatchRig]:
    async with served(tmp_path, front(upstream.url)) as rig:
        yield rig


# The page


async def test_the_page_is_served_with_headers_that_let_nothing_else_in(rig: DispatchRig) -> None:
    page = await rig.ask("GET", "/")
    assert page.status == 200
    assert b"<title>Penstock</title>" in page.body
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert "script-src 'self'" in CONTENT_SECURITY_POLICY
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert page.headers["x-content-type-options"] == "nosniff"

    script = await rig.ask("GET", "/ui/app.js")
    assert (script.status, script.headers["content-type"]) == (200, "text/javascript; charset=utf-8")


async def test_what_the_browser_has_is_not_sent_again(rig: DispatchRig) -> None:
    tag = (await rig.ask("GET", "/ui/app.js")).headers["etag"]
    again = await rig.ask("GET", "/ui/app.js", headers={"If-None-Match": tag})
    other = await rig.ask("GET", "/ui/app.js", headers={"If-None-Match": '"another"'})
    assert (again.status, again.body) == (304, b"")
    assert (other.status, len(other.body) > 0) == (200, True)


@pytest.mark.parametrize("path", ["/ui/", "/ui/../assets.py", "/ui/%2e%2e/assets.py", "/ui/nothing.js", "/index.html"])
async def test_there_is_nothing_but_the_files_of_the_page(rig: DispatchRig, path: str) -> None:
    assert (await rig.ask("GET", path)).status == 404


async def test_the_page_can_be_looked_at_only(rig: DispatchRig) -> None:
    refused = await rig.ask("POST", "/", {})
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")
    head = await rig.ask("HEAD", "/")
    assert (head.status, head.body) == (200, b"")


async def test_the_page_needs_no_token_and_everything_it_asks_for_does(
    tmp_path: Path, upstream: RecordingReceiver
) -> None:
    async with served(tmp_path, front(upstream.url), api_token="secret") as rig:
        assert (await rig.ask("GET", "/")).status == 200
        for path in (
            "/api/router/monitoring",
            "/api/queues",
            "/api/v1/metrics",
            "/api/v1/groups/held",
            "/api/pipeline",
        ):
            assert (await rig.ask("GET", path)).status == 401, path
        granted = await rig.ask("GET", "/api/router/monitoring", headers={"Authorization": "Bearer secret"})
    assert granted.status == 200
    assert "authorization" not in upstream.requests[0].headers, "the page's token is not the router's"


# The ways to other parts


async def test_a_request_gets_through_as_it_is_and_so_does_the_answer(
    rig: DispatchRig, upstream: RecordingReceiver
) -> None:
    answer = await rig.ask("PUT", "/api/router/monitoring/pools/a%2Fb", {"concurrency": 3})
    assert (answer.status, answer.body) == (200, {"fine": True})
    (request,) = upstream.requests
    assert (request.method, request.path, request.body) == ("PUT", "/monitoring/pools/a%2Fb", b'{"concurrency":3}')
    assert request.headers["content-type"] == "application/json"


async def test_a_router_is_told_of_pools_at_once(rig: DispatchRig, upstream: RecordingReceiver) -> None:
    assert (await rig.ask("PUT", "/api/v1/pools/SLOW", {"concurrency": 3})).status == 200
    (told,) = await upstream.received(1, 60)
    assert (told.method, told.path) == ("POST", "/config/reload")
    assert (await rig.ask("DELETE", "/api/v1/pools/SLOW")).status == 200
    assert (await upstream.received(2, 60))[1].path == "/config/reload"


async def test_a_pool_is_kept_though_no_router_hears_of_it(tmp_path: Path) -> None:
    for place in (NOWHERE, ""):
        async with served(tmp_path, front(place)) as rig:
            assert (await rig.ask("PUT", "/api/v1/pools/SLOW", {"concurrency": 3})).status == 200
            assert (await rig.ask("GET", "/api/v1/pools/SLOW")).body["concurrency"] == 3


async def test_queries_are_checked_and_passed_on(rig: DispatchRig, upstream: RecordingReceiver) -> None:
    assert (await rig.ask("GET", "/api/queues/q.fifo/messages?limit=5&cursor=1.7")).status == 200
    assert (await rig.ask("GET", "/api/router/warnings?acknowledged=false&severity=ERROR")).status == 200
    for bad in ("/api/queues/q/messages?limit=101", "/api/queues/q/messages?x=1", "/api/router/warnings?severity=NO"):
        assert (await rig.ask("GET", bad)).status == 400, bad
    assert [request.path for request in upstream.requests] == [
        "/admin/queues/q.fifo/messages?limit=5&cursor=1.7",
        "/warnings?severity=ERROR&acknowledged=false",
    ]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/router/openapi.json"),
        ("POST", "/api/router/api/seed/messages"),
        ("GET", "/api/router//evil.example/monitoring"),
        ("GET", "/api/router/monitoring/../warnings"),
        ("DELETE", "/api/queues/q.fifo"),
        ("POST", "/api/queues/q.fifo/messages"),
        ("GET", "/api/queues/a/b/c"),
    ],
)
async def test_it_is_no_open_proxy(rig: DispatchRig, upstream: RecordingReceiver, method: str, path: str) -> None:
    assert (await rig.ask(method, path, None if method == "GET" else {})).status in (404, 405)
    assert upstream.requests == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"X-Penstock": "0"},
    ],
)
async def test_pages_of_other_sites_change_nothing(
    rig: DispatchRig, upstream: RecordingReceiver, headers: dict[str, str]
) -> None:
    for path in ("/api/queues/q/purge", "/api/router/warnings/acknowledge-all", "/api/v1/breakers/reset-all"):
        assert (await rig.ask("POST", path, None, headers)).status == 403, path
    forged = {"Content-Type": "text/plain", **headers}
    assert (await rig.ask("POST", "/api/v1/replays", b"{}", forged)).status in (403, 415)
    assert upstream.requests == []


async def test_a_part_that_is_not_there_is_told_in_a_sentence(tmp_path: Path) -> None:
    async with served(tmp_path, front(queues="")) as rig:
        away = await rig.ask("GET", "/api/router/monitoring")
        metrics = await rig.ask("GET", "/api/router/metrics")
        unknown = await rig.ask("GET", "/api/queues")
        pipeline = await rig.ask("GET", "/api/pipeline")
    assert (away.status, metrics.status, unknown.status) == (503, 503, 503)
    assert f"the router at {NOWHERE} cannot be reached" in away.body["detail"]
    assert "api.router" in away.body["detail"]
    assert "set api.queues" in unknown.body["detail"]
    # Not everyone has Spark: no error, but an answer.
    assert (pipeline.status, pipeline.body["reachable"], pipeline.body["queries"]) == (200, False, [])


@pytest.mark.parametrize(
    ("reply", "status", "said"),
    [
        (Reply(404, b'{"detail":"there is no pool"}'), 404, "there is no pool"),
        (Reply(409, b'{"__type":"com.amazonaws.sqs#X","message":"a purge is under way"}'), 409, "a purge is under way"),
        (Reply(401, b'{"detail":"token?"}'), 503, "refuses this API's credentials"),
        (Reply(200, b"<html>"), 503, "not JSON"),
        (Reply(500, b"<html>"), 503, "answered 500"),
        (Reply(200, b'{"half":', ending=Ending.CUT), 503, "closed the connection"),
        (Reply(200, b"[" * 5_000_000), 503, ""),
    ],
)
async def test_what_a_part_refuses_is_told_and_never_asks_the_user_for_a_token(
    rig: DispatchRig, upstream: RecordingReceiver, reply: Reply, status: int, said: str
) -> None:
    upstream.script(reply)
    answer = await rig.ask("GET", "/api/router/monitoring")
    assert answer.status == status, answer
    assert said in answer.body["detail"]


async def test_a_part_that_does_not_answer_is_given_up(rig: DispatchRig, upstream: RecordingReceiver) -> None:
    upstream.script(Reply(ending=Ending.HANG))
    async with asyncio.timeout(60):
        answer = await rig.ask("GET", "/api/router/monitoring")
    assert answer.status == 503
    assert "no answer within 5 s" in answer.body["detail"]


async def test_the_router_is_asked_with_its_own_token(tmp_path: Path, upstream: RecordingReceiver) -> None:
    async with served(tmp_path, front(upstream.url, router_token="the router's")) as rig:
        await rig.ask("GET", "/api/router/monitoring")
    assert upstream.requests[0].headers["authorization"] == "Bearer the router's"


# What the page shows beside


async def test_metrics_are_told_as_json(rig: DispatchRig, upstream: RecordingReceiver) -> None:
    await rig.subscribe()
    # The router is asked to reload its configuration, for the pool of the subscription.
    await upstream.received(1, 60)
    upstream.script(
        Reply(body=b'# TYPE penstock_x gauge\npenstock_x{pool="<a>"} 2\nother 1\n'), Reply(body=b"{no text")
    )
    await rig.publish()
    await rig.dispatch_all()

    own = (await rig.ask("GET", "/api/v1/metrics")).body
    router = (await rig.ask("GET", "/api/router/metrics")).body
    broken = await rig.ask("GET", "/api/router/metrics")

    delivered = {"name": "job_deliveries_total", "labels": {"outcome": "DELIVERED"}, "value": 1.0}
    assert delivered in own["samples"]
    assert router["samples"] == [{"name": "x", "labels": {"pool": "<a>"}, "value": 2.0}]
    assert broken.status == 503


async def test_a_lane_says_what_it_waits_for(rig: DispatchRig) -> None:
    subscription_id, _ = await rig.subscribe(retryDelaysS=[60])
    rig.receiver.script(Reply(500), Reply(500))
    for number in (1, 2):
        await rig.publish(number)
    await rig.dispatch_all()

    async def lane(key: str) -> Any:
        (found,) = (await rig.ask("GET", f"/api/v1/groups/lanes?key={key}")).body["lanes"]
        return found

    first, second = [job["id"] for job in (await lane("customer-1"))["jobs"]]
    waiting = await lane("customer-1")
    assert (waiting["subscription"], waiting["blockedBy"], waiting["paused"]) == ("billing", first, False)
    assert "waits for its next attempt" in waiting["reason"]

    rig.clock.advance(120)  # the wait is made longer or shorter by chance
    await rig.dispatch_all()
    blocked = await lane(f"{subscription_id}:customer-1")
    assert (blocked["blockedBy"], blocked["counts"]["ERROR"]) == (first, 1)
    assert "is in ERROR: answered 500" in blocked["reason"]
    (held,) = (await rig.ask("GET", "/api/v1/groups/held")).body["groups"]
    assert (held["groupKey"], held["subscription"], held["errors"]) == (f"{subscription_id}:customer-1", "billing", 1)

    await rig.ask("POST", f"/api/v1/subscriptions/{subscription_id}/pause")
    assert (await lane("customer-1"))["reason"] == "its subscription is paused"
    await rig.ask("POST", f"/api/v1/subscriptions/{subscription_id}/resume")
    await rig.ask("POST", f"/api/v1/jobs/{first}/ignore")
    await rig.dispatch_all()
    assert (await rig.job(second))["status"] == "COMPLETED"
    assert (await lane("customer-1"))["reason"] == "all jobs are finished"
    assert (await rig.ask("GET", "/api/v1/groups/lanes?key=nobody")).body == {"lanes": [], "cursor": None}


async def test_a_replay_is_counted_first_and_keeps_the_order(rig: DispatchRig) -> None:
    subscription_id, _ = await rig.subscribe(retryDelaysS=[])
    for number in range(5):
        await rig.publish(number)
    await rig.dispatch_all()
    direct = await rig.ask("POST", "/api/v1/jobs", {"target": rig.receiver.url, "payload": {"own": 1}, "group": "g"})
    rig.receiver.script(Reply(500))
    await rig.dispatch_all()
    failed = direct.body["id"]
    assert (await rig.job(failed))["status"] == "PENDING"
    before = len(rig.receiver.requests)

    count = (await rig.ask("GET", f"/api/v1/replays/count?subscriptionId={subscription_id}")).body
    assert count == {"retried": 0, "made": 5, "groups": 1, "truncated": False}
    assert len(rig.receiver.requests) == before, "counting delivers nothing"

    done: Answer = await rig.ask("POST", "/api/v1/replays", {"subscriptionId": subscription_id})
    assert (done.body["made"], done.body["retried"]) == (5, 0)
    await rig.dispatch_all()
    again = rig.receiver.requests[before:]
    assert [b'"number":%d' % number in request.body for number, request in enumerate(again)] == [True] * 5


async def test_a_replay_replaces_errors_and_leaves_out_what_cannot_go(rig: DispatchRig) -> None:
    gone, _ = await rig.subscribe("gone")
    subscription_id, _ = await rig.subscribe(retryDelaysS=[])
    rig.receiver.script(*[Reply(500)] * 4)
    await rig.publish()
    await rig.dispatch_all()
    await rig.ask("DELETE", f"/api/v1/subscriptions/{gone}")
    (failed,) = await rig.jobs(f"?subscriptionId={subscription_id}")
    assert failed["status"] == "ERROR"

    past_ms = rig.now_ms - 60_000
    assert (await rig.ask("GET", f"/api/v1/replays/count?createdToMs={past_ms}")).body["retried"] == 0
    assert (await rig.ask("GET", "/api/v1/replays/count?status=QUEUED")).body["made"] == 0
    assert (await rig.ask("GET", "/api/v1/replays/count")).body == {
        "retried": 1,
        "made": 0,
        "groups": 1,
        "truncated": False,
    }
    done = (await rig.ask("POST", "/api/v1/replays", {})).body
    assert (done["retried"], done["made"]) == (1, 0)
    assert (await rig.job(failed["id"]))["status"] == "CANCELLED"
    assert (await rig.job(f"{failed['id']}~{done['replayId']}"))["status"] == "PENDING"
    assert (await rig.ask("GET", "/api/v1/replays/count?status=CANCELLED")).body["made"] == 0


async def test_a_webhook_keeps_its_id_through_retries_and_replays(rig: DispatchRig) -> None:
    _, secret = await rig.subscribe(retryDelaysS=[])
    rig.receiver.script(Reply(500))
    await rig.publish()
    await rig.publish(2)
    await rig.dispatch_all()
    (failed, _) = await rig.jobs()
    replays = []
    for _ in range(2):  # the second finds the copy in ERROR, and replaces that
        rig.receiver.script(Reply(500))
        replays.append((await rig.ask("POST", "/api/v1/replays", {"status": "ERROR"})).body)
        await rig.dispatch_all()
    await rig.ask("POST", f"/api/v1/jobs/{failed['id']}~{replays[1]['replayId']}/retry")
    await rig.dispatch_all()
    rig.clock.advance(5)  # the second job came back three times: it rests
    await rig.dispatch_all()
    replays.append((await rig.ask("POST", "/api/v1/replays", {})).body)
    await rig.dispatch_all()

    assert [(done["retried"], done["made"]) for done in replays] == [(1, 0), (1, 0), (0, 2)]
    first, second, third = (done["replayId"] for done in replays)
    of_failed = [each for each in rig.receiver.requests if b'"number":1' in each.body]
    assert [each.headers.get("penstock-replay") for each in of_failed] == [None, first, second, second, third]
    assert {each.headers["webhook-id"] for each in of_failed} == {failed["id"]}
    assert [each.headers["penstock-job"] for each in of_failed[1:]] == [
        f"{failed['id']}~{replay_id}" for replay_id in (first, second, second, third)
    ]
    # The blocked job of the same key follows, and in the last replay both come in their first order.
    numbers = [b'"number":2' in each.body for each in rig.receiver.requests]
    assert numbers == [False, False, False, False, True, False, True]
    assert all(rig.signed_by(each, secret) for each in rig.receiver.requests)


async def test_a_replay_by_the_api_is_kept_as_one(rig: DispatchRig) -> None:
    subscription_id, _ = await rig.subscribe()
    await rig.publish()
    await rig.dispatch_all()
    done = (await rig.ask("POST", "/api/v1/replays", {"subscriptionId": subscription_id, "createdFromMs": 5})).body
    replays = rig.repository.replays(rig.clock)
    kept = await replays.get(done["replayId"])
    assert kept.request.selection == ReplaySelection(subscription_id=subscription_id, from_ms=5)
    assert (kept.total, kept.finished_at_ms) == (1, rig.now_ms)
    assert await replays.progress(kept.id) == ReplayProgress(done=1)


async def test_the_breakers_of_subscribers_are_shown_and_reset(rig: DispatchRig, upstream: RecordingReceiver) -> None:
    # The router has none of them.
    upstream.script(*[Reply(404)] * 20)
    await rig.subscribe(mode="IMMEDIATE", retryDelaysS=[])
    rig.receiver.script(*[Reply(500)] * 10)
    for number in range(10):
        await rig.publish(number)
    await rig.dispatch_all()

    (breaker,) = (await rig.ask("GET", "/api/v1/breakers")).body["circuitBreakers"]
    assert (breaker["state"], breaker["failures"]) == ("OPEN", 10)
    assert (await rig.ask("POST", "/api/v1/breakers/reset", {"endpoint": "http://other/"})).status == 404
    assert (await rig.ask("POST", "/api/v1/breakers/reset", {"endpoint": breaker["endpoint"]})).body == {"reset": 1}
    assert (await rig.ask("GET", "/api/v1/breakers")).body["circuitBreakers"][0]["state"] == "CLOSED"
    assert (await rig.ask("POST", "/api/v1/breakers/reset-all")).body == {"reset": 1}


async def test_a_subscription_tells_how_it_stands_and_what_failed(rig: DispatchRig) -> None:
    subscription_id, _ = await rig.subscribe(retryDelaysS=[])
    rig.receiver.script(Reply(500, body=b"the ledger is closed"))
    for number in range(3):
        await rig.publish(number)
    await rig.dispatch_all()

    page = f"/api/v1/subscriptions/{subscription_id}"
    report = (await rig.ask("GET", f"{page}/health")).body
    assert (report["health"]["name"], report["health"]["blockedGroups"]) == ("billing", 1)
    assert [reason["code"] for reason in report["reasons"]] == ["GROUPS_BLOCKED"]
    (failure,) = (await rig.ask("GET", f"{page}/failures")).body["failures"]
    assert (failure["key"], failure["attempt"]["response"]) == ("customer-1", "the ledger is closed")
    (held,) = (await rig.ask("GET", f"/api/v1/groups/held?subscriptionId={subscription_id}")).body["groups"]
    assert (held["errors"], held["waiting"]) == (1, 2)
    urgent = f"/api/v1/groups/held?order=urgent&subscriptionId={subscription_id}"
    assert (await rig.ask("GET", urgent)).body["groups"] == [held]
    assert (await rig.ask("GET", "/api/v1/groups/held?subscriptionId=0000000000000")).body["groups"] == []
    assert (await rig.ask("GET", "/api/v1/subscriptions/0000000000000/health")).status == 404
    assert (await rig.ask("GET", "/api/v1/subscriptions/0000000000000/failures")).status == 404


async def test_the_health_of_a_new_subscription_is_known_at_once(rig: DispatchRig) -> None:
    assert (await rig.ask("GET", "/health")).status == 200
    subscription_id, _ = await rig.subscribe()
    report = (await rig.ask("GET", f"/api/v1/subscriptions/{subscription_id}/health")).body
    assert (report["health"]["status"], report["reasons"]) == ("HEALTHY", [])


async def test_jobs_are_found_by_a_field_of_their_payload(rig: DispatchRig) -> None:
    await rig.subscribe()
    for number in range(4):
        await rig.publish(number, data={"total": number, "customer": {"id": f"c{number % 2}"}})
    await rig.ask("POST", "/api/v1/jobs", {"target": rig.receiver.url, "payload": {"customer": [{"id": "c1"}]}})

    async def found(query: str) -> tuple[int, str | None]:
        body = (await rig.ask("GET", f"/api/v1/jobs?{query}")).body
        return len(body["jobs"]), body["cursor"]

    assert await found("payload=total%3D3") == (1, None)
    assert await found("payload=data.customer.id%3Dc1") == (3, None)
    assert await found("payload=customer.id%3Dc1&type=orders:created") == (2, None)
    assert await found("payload=customer.name%3Dc1") == (0, None)
    count, cursor = await found("payload=customer.id%3Dc1&limit=2")
    assert (count, cursor is not None) == (2, True)
    assert await found(f"payload=customer.id%3Dc1&limit=2&cursor={cursor}") == (1, None)
    refused = await rig.ask("GET", "/api/v1/jobs?payload=total")
    assert (refused.status, "customer.id=17" in refused.body["detail"]) == (400, True)


async def test_a_change_of_nothing_is_refused(rig: DispatchRig) -> None:
    subscription_id, _ = await rig.subscribe()
    refused = await rig.ask("PATCH", f"/api/v1/subscriptions/{subscription_id}", {})
    assert (refused.status, "nothing to change" in refused.body["detail"]) == (400, True)


async def test_what_was_finished_is_told_newest_first(rig: DispatchRig) -> None:
    await rig.subscribe()
    for number in range(3):
        await rig.publish(number)
        await rig.dispatch_all()
        rig.clock.advance(1)
    found = (await rig.ask("GET", "/api/v1/deliveries?limit=2")).body["deliveries"]
    assert [each["status"] for each in found] == ["COMPLETED", "COMPLETED"]
    assert found[0]["finishedAtMs"] > found[1]["finishedAtMs"]
    later = await rig.ask("GET", f"/api/v1/deliveries?sinceMs={found[1]['finishedAtMs']}")
    assert [each["id"] for each in later.body["deliveries"]] == [found[0]["id"]]


async def test_history_is_told_in_steps_of_minutes(rig: DispatchRig) -> None:
    subscription_id, _ = await rig.subscribe(mode="IMMEDIATE", retryDelaysS=[])
    rig.receiver.script(Reply(500))
    began_ms = rig.now_ms
    for number in range(4):
        await rig.publish(number)
        await rig.dispatch_all()
        rig.clock.advance(60)
    assert await InlineCounter(rig.repository.statistics, rig.clock, pause).count_some(100) == 4

    async def history(query: str) -> list[tuple[int, int]]:
        steps = (await rig.ask("GET", f"/api/v1/statistics/history?{query}")).body["steps"]
        assert all(step["p50Ms"] is not None for step in steps)
        return [(step["delivered"], step["failed"] + step["refused"]) for step in steps]

    assert await history(f"sinceMs={began_ms - 60_000}") == [(0, 1), (1, 0), (1, 0), (1, 0)]
    assert sum(step[0] for step in await history(f"sinceMs={began_ms - 60_000}&stepMinutes=60")) == 3
    assert len(await history(f"by=subscription&name={subscription_id}")) == 4
    assert await history("by=subscription&name=nobody") == []


def test_the_reference_names_every_route_and_nothing_else() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/web-http.md").read_text()
    documented = set(re.findall(r"^\| `([A-Z]+ /[^`?]*)` \|", page, re.MULTILINE))
    assert documented == {f"{route.method} {route.path}" for route in front().routes(jobs_parts())}


def test_every_recorded_operation_is_said_in_words() -> None:
    parts = jobs_parts()
    routes = (*route_table(parts).routes, *front().routes(parts))
    assert {f"{route.method} {route.path}" for route in routes if route.is_decision} == set(IN_WORDS)


async def test_every_route_of_the_page_is_in_the_openapi_document(rig: DispatchRig) -> None:
    paths = (await rig.ask("GET", "/openapi.json")).body["paths"]
    assert {"/api/v1/replays", "/api/queues/{name}/purge", "/api/router/monitoring/pools/{code}"} <= set(paths)


async def test_what_cannot_work_is_said_when_a_subscription_is_created(rig: DispatchRig) -> None:
    async def warnings(**fields: Any) -> list[str]:
        body = {"name": "s", "pattern": "a:**", "target": rig.receiver.url, **fields}
        made = (await rig.ask("POST", "/api/v1/subscriptions", body)).body
        assert (await rig.ask("DELETE", f"/api/v1/subscriptions/{made['subscription']['id']}")).status == 200
        return list(made["warnings"])

    assert await warnings() == []
    (refused,) = await warnings(target="http://10.0.0.1/hook")
    assert "never delivered: 10.0.0.1 may not be reached" in refused
    (unknown,) = await warnings(pool="nosuch")
    assert "no pool 'nosuch' exists" in unknown
    await rig.ask("PUT", "/api/v1/pools/nosuch", {"concurrency": 3})
    assert await warnings(pool="nosuch") == []


async def test_what_is_wrong_with_a_body_is_said_by_the_name_of_the_field(rig: DispatchRig) -> None:
    body = {"name": "s", "pattern": "a:**", "target": rig.receiver.url}
    for wrong, said in (
        ({"mode": "X"}, "the body is wrong: mode: Invalid enum value 'X'"),
        ({"retryDelaysS": ["soon"]}, "the body is wrong: retryDelaysS[0]: Expected `float`, got `str`"),
        ({"name": 7}, "the body is wrong: name: Expected `str`, got `int`"),
    ):
        refused = await rig.ask("POST", "/api/v1/subscriptions", {**body, **wrong})
        assert (refused.status, refused.body["detail"]) == (422, said)
