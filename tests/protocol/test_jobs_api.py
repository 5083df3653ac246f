"""The API of events, jobs, subscriptions and pools, over HTTP on both databases."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import positive_data_acceptance

from penstock.client.types import OldestAges
from penstock.domain.limits import MIB
from penstock.domain.signing import Signature, verify
from penstock.events.api.app import openapi, route_table
from penstock.events.store.sqlite import sqlite_repository
from penstock.http.api.probes import PATHS
from penstock.http.errors import ExposedWithoutCredentials
from penstock.ops.config.dispatch_options import FanOutBy
from penstock.router.config.configuration import parse_configuration
from penstock.testing.receiver import Reply
from tests.rigs.dispatch import DispatchRig, cloud_event, dispatch_rig, jobs_parts, request
from tests.rigs.job_database import Connect, with_tables
from tests.rigs.openapi import described, kept_connection
from tests.rigs.search import examples

V1 = "/api/v1"
UNKNOWN = "0HZXEQ5Y8JY5Z"
TARGET = "https://orders.example/hook"


@pytest.fixture
async def rig(connect: Connect) -> AsyncIterator[DispatchRig]:
    async with dispatch_rig(connect()) as served:
        yield served


@pytest.fixture
async def lite(tmp_path: Path) -> AsyncIterator[DispatchRig]:
    """For what no database has a part in."""
    async with dispatch_rig(
        sqlite_repository(with_tables(tmp_path / "jobs.db"), durability="survives-process-crash-only")
    ) as rig:
        yield rig


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The API in a thread, for a client that blocks; its URL."""
    path = tmp_path_factory.mktemp("api") / "jobs.db"
    urls: list[str] = []
    started, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def main() -> None:
        async with dispatch_rig(sqlite_repository(path, durability="survives-process-crash-only")) as rig:
            urls.append(rig.server.url)
            started.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),))
    thread.start()
    assert started.wait(60)
    yield urls[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(60)
    loop.close()


async def made(rig: DispatchRig, **fields: Any) -> str:
    answer = await rig.ask("POST", f"{V1}/jobs", {"target": TARGET, **fields})
    assert answer.status == 200, answer
    return str(answer.body["id"])


# Jobs


async def test_a_job_is_made_and_shown_as_it_was_given(rig: DispatchRig) -> None:
    job_id = await made(
        rig,
        type="invoices:send",
        tenant="acme",
        group="customer-1",
        sequence=3,
        mode="NEXT_ON_ERROR",
        pool="SLOW",
        payload={"total": 7},
        headers={"X-A": "b"},
        idempotencyKey="invoice-7",
    )

    job = await rig.job(job_id)

    assert (job["status"], job["groupKey"], job["target"]) == ("PENDING", "invoices:send:customer-1", TARGET)
    assert (job["type"], job["tenant"], job["group"], job["sequence"]) == ("invoices:send", "acme", "customer-1", 3)
    assert (job["mode"], job["pool"], job["payload"]) == ("NEXT_ON_ERROR", "SLOW", {"total": 7})
    assert (job["headers"], job["idempotencyKey"]) == ({"x-a": "***"}, "invoice-7")
    assert (job["attemptsSpent"], job["deliveries"], job["finishedAt"]) == (0, 0, None)
    assert job["createdAt"] == "2023-11-14T22:13:20Z"


async def test_a_payload_that_is_not_json_is_shown_in_base64(rig: DispatchRig) -> None:
    job_id = await made(rig, payloadBase64="AP8=", contentType="application/octet-stream")
    job = await rig.job(job_id)
    assert job["payloadBase64"] == "AP8="
    assert "payload" not in job


async def test_the_same_idempotency_key_returns_the_same_job(rig: DispatchRig) -> None:
    body = {"target": TARGET, "idempotencyKey": "once"}
    first = (await rig.ask("POST", f"{V1}/jobs", body)).body
    again = (await rig.ask("POST", f"{V1}/jobs", body)).body
    assert (first["isNew"], again) == (True, {"id": first["id"], "isNew": False})


async def test_a_thousand_jobs_are_made_at_once_and_one_more_is_refused(rig: DispatchRig) -> None:
    jobs = [{"target": TARGET, "payload": number} for number in range(1000)]
    answer = await rig.ask("POST", f"{V1}/jobs/batch", {"jobs": jobs})
    assert answer.status == 200
    assert len({job["id"] for job in answer.body["jobs"]}) == 1000
    assert (await rig.ask("GET", f"{V1}/jobs/counts")).body["counts"]["PENDING"] == 1000

    too_many = await rig.ask("POST", f"{V1}/jobs/batch", {"jobs": [*jobs, jobs[0]]})
    assert too_many.status == 422


async def test_of_a_batch_with_a_fault_nothing_is_made(rig: DispatchRig) -> None:
    answer = await rig.ask("POST", f"{V1}/jobs/batch", {"jobs": [{"target": TARGET}, {"target": "ftp://x"}]})
    assert answer.status == 400
    assert (await rig.jobs()) == []


async def test_a_job_of_a_subscription_has_its_target_mode_and_pool(rig: DispatchRig) -> None:
    subscription_id, secret = await rig.subscribe(mode="IMMEDIATE", pool="FAST", tenant="acme")
    answer = await rig.ask("POST", f"{V1}/jobs", {"subscriptionId": subscription_id, "payload": {}})
    job = await rig.job(answer.body["id"])
    assert (job["target"], job["mode"], job["pool"]) == (f"{rig.receiver.url}/billing", "IMMEDIATE", "FAST")
    assert (job["tenant"], job["groupKey"]) == ("acme", f"{subscription_id}:default")
    await rig.dispatch_all()
    assert rig.signed_by(rig.receiver.requests[0], secret)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"target": "no url"}, 400),
        ({"target": "https://user:secret@x.example/"}, 400),
        ({"target": TARGET, "headers": {"Host": "x"}}, 400),
        ({"target": TARGET, "payload": 1, "payloadBase64": "AA=="}, 400),
        ({"target": TARGET, "payload": "x" * 1_048_576}, 400),
        ({"target": TARGET, "expiresAt": "2020-01-01T00:00:00Z"}, 400),
        ({"target": TARGET, "expiresAt": "2030-01-01T00:00:00Z", "scheduledFor": "2031-01-01T00:00:00Z"}, 400),
        ({"target": TARGET, "scheduledFor": "2031-01-01T00:00:00"}, 422),
        ({"target": TARGET, "group": "two\nlines"}, 422),
        ({"target": TARGET, "group": "ends with a line break\n"}, 422),
        ({"target": TARGET, "mode": "SOMETIMES"}, 422),
        ({"target": TARGET, "tarket": "typo"}, 422),
        ({"subscriptionId": UNKNOWN}, 404),
        ({"subscriptionId": "none"}, 404),
    ],
)
def test_a_job_that_cannot_be_made_is_refused_with_a_problem(served: str, body: dict[str, Any], status: int) -> None:
    answer = request(served, "POST", f"{V1}/jobs", body)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json")
    assert answer.body["status"] == status
    assert answer.body["detail"]
    assert "secret" not in answer.body["detail"]


def test_a_body_that_is_too_large_is_413(served: str) -> None:
    answer = request(served, "POST", f"{V1}/jobs", b" " * (2 * 1_048_576 + 1))
    assert (answer.status, answer.body["code"]) == (413, "REQUEST_ENTITY_TOO_LARGE")


async def test_jobs_are_listed_by_what_they_are_and_page_by_page(rig: DispatchRig) -> None:
    ids = [await made(rig, group=f"g{number % 2}", type="a:b") for number in range(5)]
    other = await made(rig, type="c:d", tenant="acme")

    first = await rig.ask("GET", f"{V1}/jobs?type=a:b&limit=3")
    rest = await rig.ask("GET", f"{V1}/jobs?type=a:b&limit=3&cursor={first.body['cursor']}")

    assert [job["id"] for job in first.body["jobs"]] == ids[:1:-1]
    assert ([job["id"] for job in rest.body["jobs"]], rest.body["cursor"]) == (ids[1::-1], None)
    assert [job["id"] for job in await rig.jobs("?groupKey=a:b:g1")] == ids[1::2]
    assert [job["id"] for job in await rig.jobs("?tenant=acme&status=PENDING")] == [other]
    assert await rig.jobs("?status=ERROR") == []


async def test_the_oldest_that_waits_is_told_whichever_engine_runs(connect: Connect) -> None:
    async with dispatch_rig(connect(), fan_out=FanOutBy.PIPELINE) as rig:

        async def ages() -> tuple[float | None, float | None]:
            told = msgspec.convert((await rig.ask("GET", f"{V1}/jobs/oldest-waiting")).body, OldestAges)
            return told.age_s, told.held_age_s

        subscription_id, _ = await rig.subscribe()
        assert await ages() == (None, None)

        event_id = await rig.publish()
        rig.clock.advance(2)
        assert await ages() == (2.0, None)

        job = rig.new_job(subscription_id=subscription_id, event_id=event_id, created_at_ms=rig.now_ms)
        await rig.repository.fan_out([event_id], [job], rig.now_ms)
        rig.clock.advance(7)
        assert await ages() == (7.0, None)

        await rig.ask("POST", f"{V1}/subscriptions/{subscription_id}/pause")
        await rig.queue_all()
        assert await ages() == (None, 7.0)

        await rig.ask("POST", f"{V1}/subscriptions/{subscription_id}/resume")
        await rig.dispatch_all()
        assert await ages() == (None, None)


@pytest.mark.parametrize("query", ["status=LOST", "limit=0", "limit=1001", "cursor=nonsense", "colour=red"])
def test_a_list_that_cannot_be_is_400(served: str, query: str) -> None:
    assert request(served, "GET", f"{V1}/jobs?{query}").status == 400


async def test_cancel_retry_and_ignore_are_done_to_all_or_none(rig: DispatchRig) -> None:
    failed, pending = await made(rig, group="a"), await made(rig, group="b")
    await rig.queue_all()
    await rig.fail(failed)

    wrong = await rig.ask("POST", f"{V1}/jobs/cancel", {"ids": [pending, failed]})
    assert (wrong.status, failed in wrong.body["detail"]) == (409, True)
    assert (await rig.job(pending))["status"] == "QUEUED"

    assert (await rig.ask("POST", f"{V1}/jobs/{failed}/retry")).body == {"ids": [failed]}
    assert (await rig.job(failed))["status"] == "PENDING"
    assert (await rig.ask("POST", f"{V1}/jobs/cancel", {"ids": [pending, failed, pending]})).body == {
        "ids": [pending, failed]
    }
    assert {job["status"] for job in await rig.jobs()} == {"CANCELLED"}
    assert (await rig.ask("POST", f"{V1}/jobs/{pending}/ignore")).status == 409


async def test_a_job_that_is_not_there_is_404(rig: DispatchRig) -> None:
    for job_id in (UNKNOWN, "nonsense", "%00"):
        path = f"{V1}/jobs/{job_id}"
        assert (await rig.ask("GET", path)).status == 404
        assert (await rig.ask("GET", f"{path}/attempts")).status == 404
        for verb in ("cancel", "retry", "ignore"):
            assert (await rig.ask("POST", f"{path}/{verb}")).status == 404


# Events


async def test_an_event_is_published_in_either_content_type_and_looked_up(rig: DispatchRig) -> None:
    single = {"Content-Type": "application/cloudevents+json; charset=utf-8"}
    batch = {"Content-Type": "application/cloudevents-batch+json"}
    one = await rig.ask("POST", f"{V1}/events", cloud_event(1, colour="red", urgent=True, size=3), single)
    two = await rig.ask("POST", f"{V1}/events", [cloud_event(2), cloud_event(1)], batch)

    assert (one.status, [event["isNew"] for event in one.body["events"]]) == (200, [True])
    assert [event["isNew"] for event in two.body["events"]] == [True, False]
    assert two.body["events"][1]["id"] == one.body["events"][0]["id"]
    shown = (await rig.ask("GET", f"{V1}/events/{one.body['events'][0]['id']}")).body["event"]
    assert (shown["colour"], shown["urgent"], shown["size"]) == ("red", "true", "3")
    assert (shown["id"], shown["partitionkey"], shown["data"]) == ("order-1", "customer-1", {"number": 1})


async def test_a_thousand_events_fan_out_at_once(rig: DispatchRig) -> None:
    await rig.subscribe("a")
    await rig.subscribe("b")
    answer = await rig.ask("POST", f"{V1}/events", [cloud_event(number) for number in range(1000)])
    assert (answer.status, len(answer.body["events"])) == (200, 1000)
    assert (await rig.ask("GET", f"{V1}/jobs/counts")).body["counts"]["PENDING"] == 2000
    assert (await rig.ask("POST", f"{V1}/events", [cloud_event(n) for n in range(1001)])).status == 422


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"specversion": "0.3"}, 422),
        ({"type": ""}, 422),
        ({"source": "\x00"}, 422),
        ({"time": "yesterday"}, 422),
        ({"time": "0001-01-01T00:00:00+14:00"}, 400),
        ({"data_base64": "AA=="}, 400),
        ({"Not-A-Name": "x"}, 400),
        ({"nested": {"a": 1}}, 400),
        ({"ratio": 0.5}, 400),
        ({"long": "x" * 5000}, 400),
        ({"data": "x" * 1_048_576}, 400),
        ({f"x{number}": "many" for number in range(51)}, 400),
    ],
)
def test_an_event_that_is_none_is_refused(served: str, fields: dict[str, Any], status: int) -> None:
    answer = request(served, "POST", f"{V1}/events", cloud_event(**fields))
    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json")


BINARY = {
    "ce-specversion": "1.0",
    "ce-id": "17",
    "ce-source": "/shop",
    "ce-type": "orders:paid",
    "ce-partitionkey": "%C3%84nne%201",
    "ce-time": "2026-11-18T20:00:00Z",
    "ce-region": "eu",
    "ce-highpriority": "true",
}


@pytest.mark.parametrize(
    ("content_type", "data", "member"),
    [
        ("application/json", b'{"total": 7.10}', {"data": {"total": 7.1}}),
        ("text/plain", b"paid", {"data": "paid"}),
        ("image/png", b"\x89PNG", {"data_base64": "iVBORw=="}),
    ],
)
async def test_an_event_is_published_in_binary_mode(
    rig: DispatchRig, content_type: str, data: bytes, member: dict[str, object]
) -> None:
    headers = {**BINARY, "Content-Type": content_type, "X-Penstock": ""}
    answer = await asyncio.to_thread(request, rig.server.url, "POST", f"{V1}/events", data, headers)
    assert answer.status == 200, answer
    (receipt,) = answer.body["events"]
    event = (await rig.ask("GET", f"{V1}/events/{receipt['id']}")).body["event"]
    assert event == {
        "specversion": "1.0",
        "id": "17",
        "source": "/shop",
        "type": "orders:paid",
        "partitionkey": "Änne 1",
        "time": "2026-11-18T20:00:00Z",
        "region": "eu",
        "highpriority": "true",
        "datacontenttype": content_type,
        **member,
    }


@pytest.mark.parametrize(
    ("changed", "content", "status", "said"),
    [
        ({"ce-type": ""}, b"{}", 422, "type"),
        ({"ce-specversion": "0.3"}, b"{}", 422, "specversion"),
        ({"ce-time": "yesterday"}, b"{}", 422, "time"),
        ({"ce-data": "1"}, b"{}", 400, "`ce-data` is not a header"),
        ({"ce-re-gion": "eu"}, b"{}", 400, "extension"),
        ({}, b"{ not json", 400, "the body is not JSON"),
        ({}, b'"' + b"x" * MIB + b'"', 400, "at most 1048576"),
    ],
)
async def test_an_event_in_binary_mode_is_checked_as_any_other(
    rig: DispatchRig, changed: dict[str, str], content: bytes, status: int, said: str
) -> None:
    headers = {**BINARY, **changed}
    answer = await asyncio.to_thread(request, rig.server.url, "POST", f"{V1}/events", content, headers)
    assert (answer.status, said in answer.body["detail"]) == (status, True), answer


@pytest.mark.parametrize("left_out", ["specversion", "id", "source", "type"])
def test_what_cloud_events_requires_must_be_there(served: str, left_out: str) -> None:
    event = {name: value for name, value in cloud_event().items() if name != left_out}
    assert request(served, "POST", f"{V1}/events", event).status == 422


def test_an_event_in_another_content_type_is_415(served: str) -> None:
    answer = request(served, "POST", f"{V1}/events", cloud_event(), {"Content-Type": "application/problem+json"})
    assert (answer.status, "application/cloudevents+json" in answer.body["detail"]) == (415, True)


async def test_text_data_is_kept_as_text(lite: DispatchRig) -> None:
    event_id = await lite.publish(data='say "hi"', datacontenttype="text/plain")
    assert (await lite.repository.get_event(event_id)).data == b'say "hi"'


# Subscriptions


async def test_a_subscription_is_shown_without_its_secret(rig: DispatchRig) -> None:
    conditions = [{"attribute": "colour", "comparison": "prefix", "values": ["red"]}]
    body = {
        "name": "billing",
        "pattern": "orders:*",
        "target": TARGET,
        "filter": conditions,
        "filterExpression": "data.total >= 100",
        "retryDelaysS": [1, 2.5],
        "timeoutS": 5,
        "deadLetterTopic": "lost",
    }
    answer = await rig.ask("POST", f"{V1}/subscriptions", body)
    subscription_id, secret = answer.body["subscription"]["id"], answer.body["secret"]
    assert secret.startswith("whsec_")

    shown = await rig.ask("GET", f"{V1}/subscriptions/{subscription_id}")
    listed = await rig.ask("GET", f"{V1}/subscriptions")

    assert listed.body == {"subscriptions": [shown.body], "cursor": None}
    assert secret not in str(shown.body)
    assert {name: shown.body[name] for name in body} == body
    assert (shown.body["paused"], shown.body["secrets"], shown.body["mode"]) == (False, 1, "BLOCK_ON_ERROR")


async def test_a_change_changes_what_it_names_and_nothing_else(rig: DispatchRig) -> None:
    subscription_id, secret = await rig.subscribe(deadLetterTopic="lost", headers={"x-a": "b"})
    path = f"{V1}/subscriptions/{subscription_id}"
    await rig.ask("POST", f"{path}/pause")
    before = (await rig.ask("GET", path)).body

    change = {"pattern": "refunds:**", "timeoutS": 7, "deadLetterTopic": None, "retryDelaysS": [3], "filter": []}
    changed = await rig.ask("PATCH", path, change)

    assert changed.body == {**before, **change}
    assert (await rig.ask("GET", path)).body == changed.body
    assert (await rig.ask("PATCH", path, {})).status == 400
    assert (await rig.ask("GET", path)).body == changed.body
    assert (await rig.repository.get_subscription(subscription_id)).secrets == (secret,)


async def test_conditions_and_expression_of_a_filter_are_changed_apart(rig: DispatchRig) -> None:
    conditions = [{"attribute": "region", "comparison": "prefix", "values": ["eu"]}]
    subscription_id, _ = await rig.subscribe(filter=conditions, filterExpression=" data.total >= 100 ")
    path = f"{V1}/subscriptions/{subscription_id}"

    changed = await rig.ask("PATCH", path, {"filterExpression": "data.total >= 200"})
    assert (changed.body["filter"], changed.body["filterExpression"]) == (conditions, "data.total >= 200")
    changed = await rig.ask("PATCH", path, {"filter": []})
    assert (changed.body["filter"], changed.body["filterExpression"]) == ([], "data.total >= 200")
    assert (await rig.ask("PATCH", path, {"filterExpression": "total >= 2"})).status == 400


async def test_a_subscription_says_whether_it_wants_an_event(rig: DispatchRig) -> None:
    subscription_id, _ = await rig.subscribe(pattern="orders:*", filterExpression="data.total >= 100")
    path = f"{V1}/subscriptions/{subscription_id}/match"

    wanted = await rig.ask("POST", path, cloud_event(type="orders:placed", data={"total": 100}))
    other = await rig.ask("POST", path, cloud_event(type="carts:left", tenant="acme", data={"total": 5}))

    assert wanted.body == {"matches": True, "tenant": True, "pattern": True, "filter": True}
    assert other.body == {"matches": False, "tenant": False, "pattern": False, "filter": False}
    assert (await rig.ask("GET", f"{V1}/jobs")).body["jobs"] == []
    assert len((await rig.ask("GET", f"{V1}/changes")).body["changes"]) == 1


async def test_headers_are_shown_to_no_one(rig: DispatchRig) -> None:
    subscription_id, _ = await rig.subscribe(headers={"X-Api-Key": "hunter2", "X-Other": "hunter3"})
    path = f"{V1}/subscriptions/{subscription_id}"
    job_id = await made(rig, headers={"X-Job": "hunter4"})

    shown = (await rig.ask("GET", path)).body["headers"]
    assert shown == {"x-api-key": "***", "x-other": "***"}
    changed = await rig.ask("PATCH", path, {"headers": {**shown, "X-Other": "hunter5", "X-New": "hunter6"}})
    kept = (await rig.repository.get_subscription(subscription_id)).headers

    assert kept == {"x-api-key": "hunter2", "x-other": "hunter5", "x-new": "hunter6"}
    seen = [
        changed.body,
        *[(await rig.ask("GET", f"{V1}/{name}")).body for name in ("subscriptions", "jobs", "changes")],
    ]
    seen.append(await rig.job(job_id))
    assert "x-job" in str(seen)
    assert "hunter" not in str(seen)


async def test_two_subscriptions_of_a_tenant_cannot_have_one_name(rig: DispatchRig) -> None:
    await rig.subscribe("billing")
    other, _ = await rig.subscribe("shipping")
    body = {"name": "billing", "pattern": "**", "target": TARGET}
    assert (await rig.ask("POST", f"{V1}/subscriptions", body)).status == 409
    assert (await rig.ask("PATCH", f"{V1}/subscriptions/{other}", {"name": "billing"})).status == 409
    assert (await rig.ask("POST", f"{V1}/subscriptions", {**body, "tenant": "acme"})).status == 200


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"pattern": "orders:**:created"}, 400),
        ({"pattern": "a::b"}, 400),
        ({"target": "nowhere"}, 400),
        ({"secret": "short"}, 400),
        ({"headers": {"Webhook-Id": "x"}}, 400),
        ({"filter": [{"attribute": "a", "comparison": "present", "values": ["x"]}]}, 400),
        ({"filterExpression": "data.total >="}, 400),
        ({"filterExpression": "data.a == 1 or " * 200 + "data.a == 1"}, 422),
        ({"timeoutS": 601}, 422),
        ({"timeoutS": 0}, 422),
        ({"retryDelaysS": [-1]}, 422),
        ({"mode": "LATER"}, 422),
        ({"name": ""}, 422),
    ],
)
def test_a_subscription_that_cannot_be_is_refused(served: str, fields: dict[str, Any], status: int) -> None:
    body = {"name": "billing", "pattern": "**", "target": TARGET, **fields}
    answer = request(served, "POST", f"{V1}/subscriptions", body)
    assert answer.status == status
    assert "short" not in answer.body["detail"]


async def test_a_subscription_that_is_not_there_is_404(rig: DispatchRig) -> None:
    for subscription_id in (UNKNOWN, "nonsense", "%00"):
        path = f"{V1}/subscriptions/{subscription_id}"
        assert (await rig.ask("GET", path)).status == 404
        assert (await rig.ask("PATCH", path, {})).status == 404
        assert (await rig.ask("DELETE", path)).status == 404
        assert (await rig.ask("POST", f"{path}/rotate-secret", {})).status == 404
        for verb in ("pause", "resume", "test", "finish-rotation"):
            assert (await rig.ask("POST", f"{path}/{verb}")).status == 404


async def test_a_secret_can_be_brought_along_and_only_the_last_two_sign(lite: DispatchRig) -> None:
    own = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    subscription_id, secret = await lite.subscribe(secret=own)
    assert secret == own
    path = f"{V1}/subscriptions/{subscription_id}/rotate-secret"
    first = (await lite.ask("POST", path, {})).body
    second = (await lite.ask("POST", path, {"secret": "whsec_AAAAAAAAAAAAAAAAAAAAAAAA"})).body
    assert (first["secrets"], second["secrets"]) == (2, 2)
    kept = (await lite.repository.get_subscription(subscription_id)).secrets
    assert kept == ("whsec_AAAAAAAAAAAAAAAAAAAAAAAA", first["secret"])
    assert (await lite.ask("POST", path, {"secret": "whsec_!"})).status == 400


async def test_with_ed25519_receivers_get_public_keys_and_no_private_one(lite: DispatchRig) -> None:
    subscription_id, first = await lite.subscribe(signature="ed25519")
    path = f"{V1}/subscriptions/{subscription_id}"
    assert first.startswith("whpk_")
    assert (await lite.ask("GET", f"{path}/public-keys")).body == {"keys": [first]}
    rotated = (await lite.ask("POST", f"{path}/rotate-secret", {})).body
    assert (await lite.ask("GET", f"{path}/public-keys")).body == {"keys": [rotated["secret"], first]}
    assert await _verified_with(lite, path) == {first, rotated["secret"]}
    assert (await lite.ask("POST", f"{path}/finish-rotation")).body == {"secrets": 1}
    assert await _verified_with(lite, path) == {rotated["secret"]}
    back = (await lite.ask("POST", f"{path}/rotate-secret", {"signature": "hmac"})).body["secret"]
    assert back.startswith("whsec_")
    assert await _verified_with(lite, path, back) == {rotated["secret"], back}
    shown = (await lite.ask("GET", path)).body
    assert (shown["signature"], shown["secrets"]) == ("hmac", 2)
    assert "whsk_" not in str(shown)
    wrong = await lite.ask("POST", f"{path}/rotate-secret", {"signature": "ed25519", "secret": back})
    assert (wrong.status, "the secret signs with hmac" in wrong.body["detail"]) == (400, True)


async def _verified_with(rig: DispatchRig, path: str, *more: str) -> set[str]:
    """What verifies a test event, of the public keys and others."""
    assert (await rig.ask("POST", f"{path}/test")).body["delivered"]
    sent = rig.receiver.requests[-1]
    at_ms = int(sent.headers["webhook-timestamp"]) * 1000
    given = Signature(*(sent.headers[name] for name in ("webhook-id", "webhook-timestamp", "webhook-signature")))
    keys = [*(await rig.ask("GET", f"{path}/public-keys")).body["keys"], *more]
    return {key for key in keys if verify(given, sent.body, [key], at_ms)}


async def test_a_test_event_is_delivered_at_once_and_leaves_nothing_behind(lite: DispatchRig) -> None:
    subscription_id, secret = await lite.subscribe()
    path = f"{V1}/subscriptions/{subscription_id}/test"
    lite.receiver.script(Reply(204, b""), Reply(500, b"oh"))

    good, bad = await lite.ask("POST", path), await lite.ask("POST", path)

    assert (good.body["delivered"], good.body["statusCode"], good.body["error"]) == (True, 204, None)
    assert (bad.body["delivered"], bad.body["response"], bad.body["error"]) == (False, "oh", "answered 500")
    request = lite.receiver.requests[0]
    assert lite.signed_by(request, secret)
    assert msgspec.json.decode(request.body)["type"] == "penstock:test"
    assert await lite.jobs() == []


# Pools and routers


async def test_pools_are_made_changed_and_removed(rig: DispatchRig) -> None:
    path = f"{V1}/pools/FAST%2Fone"
    made_ = await rig.ask("PUT", path, {"concurrency": 5})
    changed = await rig.ask("PUT", path, {"concurrency": 7, "rateLimitPerMinute": 60})

    assert made_.body == {"code": "FAST/one", "concurrency": 5, "rateLimitPerMinute": None}
    assert changed.body == {"code": "FAST/one", "concurrency": 7, "rateLimitPerMinute": 60}
    assert (await rig.ask("GET", f"{V1}/pools")).body == {"pools": [changed.body], "cursor": None}
    assert (await rig.ask("DELETE", path)).body == changed.body
    assert (await rig.ask("GET", path)).status == 404
    assert (await rig.ask("DELETE", path)).status == 404


@pytest.mark.parametrize("body", [{"concurrency": 0}, {"rateLimitPerMinute": 0}, {"speed": 3}])
def test_a_pool_that_cannot_be_is_refused(served: str, body: dict[str, Any]) -> None:
    assert request(served, "PUT", f"{V1}/pools/P", body).status == 422


async def test_routers_get_their_configuration_from_the_pools_and_the_queue(connect: Connect) -> None:
    uri = "http://127.0.0.1:9324/000000000000/dispatch.fifo"
    async with dispatch_rig(connect(), queue_uri=uri) as rig:
        await rig.ask("PUT", f"{V1}/pools/FAST", {"concurrency": 5, "rateLimitPerMinute": 60})
        document = (await rig.ask("GET", "/api/router/config")).body
        assert await rig.repository.pool_queues() == ["FAST"]

    configuration = parse_configuration(document, "the API")
    assert [(pool.code, pool.concurrency) for pool in configuration.processing_pools] == [
        ("FAST", 5),
        ("DISPATCH-POOL", 10),
    ]
    fast = uri.replace("dispatch.fifo", "dispatch-FAST.fifo")
    assert [queue.queue_uri for queue in configuration.queues] == [uri, fast]


async def test_routers_are_told_which_pools_several_subscriptions_share(lite: DispatchRig) -> None:
    for name, pool in (("a", "both"), ("b", "both"), ("c", "alone")):
        body = {"name": name, "pattern": "t:**", "target": "https://example.com/hook", "pool": pool}
        assert (await lite.ask("POST", f"{V1}/subscriptions", body)).status == 200
    pools = (await lite.ask("GET", "/api/router/config")).body["processingPools"]
    assert {pool["code"] for pool in pools if pool["shared"]} == {"both"}


async def test_the_default_pool_can_be_changed(lite: DispatchRig) -> None:
    await lite.ask("PUT", f"{V1}/pools/DISPATCH-POOL", {"concurrency": 50})
    pools = (await lite.ask("GET", "/api/router/config")).body["processingPools"]
    assert pools == [{"code": "DISPATCH-POOL", "concurrency": 50, "rateLimitPerMinute": None, "shared": False}]


# Who may ask


async def test_with_a_token_only_those_who_know_it_are_answered(tmp_path: Path) -> None:
    async with dispatch_rig(sqlite_repository(tmp_path / "jobs.db"), api_token="hunter2") as rig:
        bearer = {"Authorization": "Bearer hunter2"}
        basic = {"Authorization": "Basic cm91dGVyOmh1bnRlcjI="}  # what a router sends for http://router:hunter2@…
        for headers, status in (({}, 401), ({"Authorization": "Bearer x"}, 401), (bearer, 200), (basic, 200)):
            assert (await rig.ask("GET", f"{V1}/jobs", headers=headers)).status == status
            assert (await rig.ask("GET", "/api/router/config", headers=headers)).status == status
        # The process endpoint has tokens of its own.
        assert (await rig.process(UNKNOWN)).status == 200
        assert (await rig.process(UNKNOWN, "hunter2")).status == 401
        assert (await rig.ask("GET", "/health/ready")).status == 200


async def test_without_a_token_only_this_machine_may_ask(tmp_path: Path) -> None:
    with pytest.raises(ExposedWithoutCredentials):
        async with dispatch_rig(sqlite_repository(tmp_path / "jobs.db"), host="0.0.0.0"):
            pass


def test_pages_of_other_sites_cannot_change_anything(served: str) -> None:
    body = msgspec.json.encode(cloud_event())
    for headers in (
        {"X-Penstock": "", "Content-Type": "text/plain"},
        {"Origin": "https://evil.example"},
        {"Host": "evil.example"},
    ):
        assert request(served, "POST", f"{V1}/events", body, headers).status in (403, 415)


async def test_the_database_decides_whether_it_is_ready(lite: DispatchRig) -> None:
    assert (await lite.ask("GET", "/health/ready")).status == 200
    await lite.repository.close()
    assert (await lite.ask("GET", "/health/ready")).status == 503
    assert (await lite.ask("GET", "/health/live")).status == 200


async def test_deliveries_are_counted(lite: DispatchRig) -> None:
    await lite.subscribe()
    await lite.publish()
    (job_id,) = await lite.dispatch_all()
    await lite.processed(job_id)

    metrics = (await lite.ask("GET", "/metrics")).body.decode()

    assert 'penstock_job_deliveries_total{outcome="DELIVERED"} 1.0' in metrics
    assert 'penstock_job_pointers_without_delivery_total{reason="FINAL"} 1.0' in metrics
    assert "penstock_job_delivery_seconds_count 1.0" in metrics


# The documents

EXAMPLES = 5


@pytest.fixture
def session() -> Iterator[requests.Session]:
    with kept_connection() as session:
        yield session


@pytest.fixture
def schema(request: pytest.FixtureRequest) -> BaseSchema:
    return described(openapi(route_table(jobs_parts())), request.node)


@schemathesis.pytest.from_fixture("schema").parametrize()
@settings(max_examples=examples(EXAMPLES), suppress_health_check=list(HealthCheck))
def test_every_answer_is_as_the_document_says(
    case: schemathesis.Case[Any], served: str, session: requests.Session
) -> None:
    # What makes a URL, an event pattern or an id cannot all be said in a schema.
    case.call_and_validate(base_url=served, session=session, excluded_checks=[positive_data_acceptance])


def test_the_document_is_served(served: str) -> None:
    document = request(served, "GET", "/openapi.json").body
    assert document["openapi"] == "3.1.0"
    assert "/api/dispatch/process" in document["paths"]
    content = document["paths"]["/api/v1/events"]["post"]["requestBody"]["content"]
    assert {"application/cloudevents+json", "application/cloudevents-batch+json"} <= set(content)


def test_every_route_stands_in_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/jobs-http.md").read_text()
    documented = set(re.findall(r"^\| `([A-Z]+ /[^`?]*)` \|", page, re.MULTILINE))
    routes = {f"{route.method} {route.path}" for route in route_table(jobs_parts()).routes}
    assert documented == routes | {f"GET {path}" for path in PATHS}
