"""From an event to a signed webhook: API, claim, process endpoint and receiver, on both databases."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from penstock.client import verify_webhook
from penstock.domain.errors import Unavailable
from penstock.events.process import TOKEN_LIFETIME_S
from penstock.http.server.asgi import Receive, Scope, Send, accept_lifespan, send_answer
from penstock.http.server.server import HttpServer
from penstock.testing.receiver import Ending, Reply, defer, rate_limit
from tests.rigs.dispatch import DispatchRig, dispatch_rig
from tests.rigs.job_database import Connect
from tests.rigs.jobs import BLOCK, IMMEDIATE, NEXT

ACK = {"ack": True}
FAILURE = Reply(500, b"out of order")
GONE = Reply(410)


@pytest.fixture
async def rig(connect: Connect) -> AsyncIterator[DispatchRig]:
    async with dispatch_rig(connect()) as served:
        yield served


async def failing_job(rig: DispatchRig, *replies: Reply, **subscription: Any) -> str:
    """A job whose first delivery was answered so."""
    await rig.subscribe(**subscription)
    await rig.publish()
    rig.receiver.script(*replies)
    (job_id,) = await rig.dispatch_all()
    return job_id


class SlowEndpoint:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await accept_lifespan(receive, send)
            return
        self.requests += 1
        self.arrived.set()
        await self.may_answer.wait()
        await send_answer(scope, send, 200, b"", {})


@asynccontextmanager
async def slow_delivery(rig: DispatchRig, **subscription: Any) -> AsyncIterator[tuple[str, SlowEndpoint]]:
    """A job that is being delivered, and the endpoint that has not answered yet."""
    endpoint = SlowEndpoint()
    async with HttpServer(endpoint, "127.0.0.1", 0) as server, asyncio.timeout(60):
        await rig.subscribe(target=server.url, **subscription)
        await rig.publish()
        (job_id,) = await rig.queue_all()
        delivering = asyncio.create_task(rig.process(job_id))
        await endpoint.arrived.wait()
        yield job_id, endpoint
        endpoint.may_answer.set()
        assert (await delivering).body == ACK


# The whole way


async def test_an_event_arrives_as_a_signed_cloud_event(rig: DispatchRig) -> None:
    subscription_id, secret = await rig.subscribe(headers={"X-Team": "billing"})
    trace = f"00-{'ab' * 16}-{'cd' * 8}-01"
    event_id = await rig.publish(colour="red", traceparent=trace, time="2026-01-02T03:04:05Z", subject="7")

    (job_id,) = await rig.dispatch_all()

    (request,) = rig.receiver.requests
    assert (request.method, request.path) == ("POST", "/billing")
    assert rig.signed_by(request, secret)
    assert request.headers["webhook-id"] == request.headers["penstock-job"] == job_id
    assert request.headers["penstock-event"] == event_id
    assert request.headers["penstock-subscription"] == subscription_id
    assert request.headers["penstock-attempt"] == "1"
    assert request.headers["x-team"] == "billing"
    assert request.headers["content-type"] == "application/cloudevents+json; charset=utf-8"
    assert request.headers["traceparent"].startswith(f"00-{'ab' * 16}-")
    assert request.headers["traceparent"].endswith("-01")
    assert request.headers["traceparent"] != trace
    assert msgspec.json.decode(request.body) == {
        "specversion": "1.0",
        "id": "order-1",
        "source": "/shop",
        "type": "orders:created",
        "subject": "7",
        "time": "2026-01-02T03:04:05Z",
        "partitionkey": "customer-1",
        "colour": "red",
        "traceparent": trace,
        "datacontenttype": "application/json",
        "data": {"number": 1},
    }


async def test_a_delivered_job_is_completed_with_its_attempt(rig: DispatchRig) -> None:
    job_id = await failing_job(rig, Reply(201, b"thanks"))

    job = await rig.job(job_id)
    assert (job["status"], job["attemptsSpent"], job["deliveries"]) == ("COMPLETED", 1, 1)
    assert job["finishedAt"] is not None
    (attempt,) = await rig.attempts(job_id)
    assert (attempt["number"], attempt["outcome"], attempt["statusCode"]) == (1, "DELIVERED", 201)
    assert (attempt["response"], attempt["error"]) == ("thanks", None)
    assert attempt["durationMs"] >= 0


async def test_events_of_a_key_arrive_in_order_and_only_once(rig: DispatchRig) -> None:
    await rig.subscribe()
    for number in range(5):
        await rig.publish(number)
    await rig.publish(3)

    await rig.dispatch_all()

    arrived = [msgspec.json.decode(request.body)["data"]["number"] for request in rig.receiver.requests]
    assert arrived == [0, 1, 2, 3, 4]


async def test_a_subscription_may_want_the_data_alone_with_the_attributes_in_headers(rig: DispatchRig) -> None:
    _, secret = await rig.subscribe(body="binary")
    await rig.publish(7, partitionkey="order 7")
    await rig.dispatch_all()
    (sent,) = rig.receiver.requests
    sent_ms = int(sent.headers["webhook-timestamp"]) * 1000
    event = verify_webhook(sent.headers, sent.body, secret, sent_ms).event
    assert (sent.headers["ce-partitionkey"], sent.headers["penstock-sequence"]) == ("order%207", "1")
    assert sent.headers["content-type"] == "application/json"
    assert (event.key, event.type, event.data) == ("order 7", "orders:created", msgspec.json.decode(sent.body))


async def test_a_job_without_an_event_is_delivered_as_it_was_given(rig: DispatchRig) -> None:
    body = {
        "target": f"{rig.receiver.url}/direct",
        "payloadBase64": "aGVsbG8=",
        "contentType": "text/plain",
        "headers": {"X-Order": "7"},
    }
    job_id = (await rig.ask("POST", "/api/v1/jobs", body)).body["id"]

    assert await rig.dispatch_all() == [job_id]

    (request,) = rig.receiver.requests
    assert (request.body, request.headers["content-type"], request.headers["x-order"]) == (b"hello", "text/plain", "7")
    assert request.headers["webhook-id"] == job_id
    assert "webhook-signature" not in request.headers


async def test_two_secrets_sign_during_a_rotation_and_one_after_it(rig: DispatchRig) -> None:
    subscription_id, old = await rig.subscribe()
    path = f"/api/v1/subscriptions/{subscription_id}/rotate-secret"
    new = (await rig.ask("POST", path, {})).body["secret"]
    await rig.publish(1)
    await rig.dispatch_all()
    await rig.ask("POST", f"/api/v1/subscriptions/{subscription_id}/finish-rotation")
    await rig.publish(2)
    await rig.dispatch_all()
    newest = (await rig.ask("POST", path, {"keepPrevious": False})).body["secret"]
    await rig.publish(3)
    await rig.dispatch_all()

    during, after, leaked = rig.receiver.requests
    assert (rig.signed_by(during, old), rig.signed_by(during, new)) == (True, True)
    assert (rig.signed_by(after, old), rig.signed_by(after, new)) == (False, True)
    assert (rig.signed_by(leaked, new), rig.signed_by(leaked, newest)) == (False, True)


# The token


@pytest.mark.parametrize("token", ["", "nonsense", "v1.9999999999." + "A" * 43])
async def test_a_bad_token_is_401_and_leaves_the_job_untouched(rig: DispatchRig, token: str) -> None:
    await rig.subscribe()
    await rig.publish()
    (job_id,) = await rig.queue_all()
    before = await rig.job(job_id)

    send_answer = await rig.process(job_id, token)

    assert (send_answer.status, send_answer.headers["content-type"]) == (401, "application/problem+json")
    assert await rig.job(job_id) == before
    assert rig.receiver.requests == []


async def test_a_token_of_another_job_or_one_that_expired_is_401(rig: DispatchRig) -> None:
    await rig.subscribe()
    await rig.publish()
    (job_id,) = await rig.queue_all()
    expired = rig.tokens.token(job_id, rig.now_ms)
    rig.clock.advance(TOKEN_LIFETIME_S)

    assert (await rig.process(job_id, expired)).status == 401
    assert (await rig.process(job_id, rig.tokens.token(rig.new_id(), rig.now_ms))).status == 401
    assert (await rig.job(job_id))["status"] == "QUEUED"


# What a failure leads to


async def test_a_failed_delivery_is_tried_again_when_due_and_its_pointer_is_acked(rig: DispatchRig) -> None:
    job_id = await failing_job(rig, FAILURE)

    job = await rig.job(job_id)
    assert (job["status"], job["attemptsSpent"], job["lastError"]) == ("PENDING", 1, "answered 500")
    rig.clock.advance(4.9)
    assert await rig.dispatch_all() == []
    rig.clock.advance(1.2)
    assert await rig.dispatch_all() == [job_id]
    assert (await rig.job(job_id))["status"] == "COMPLETED"
    assert [request.headers["penstock-attempt"] for request in rig.receiver.requests] == ["1", "2"]
    assert [attempt["outcome"] for attempt in await rig.attempts(job_id)] == ["FAILED", "DELIVERED"]
    assert (await rig.attempts(job_id))[0]["response"] == "out of order"


async def test_every_attempt_has_the_same_webhook_id_and_trace_and_a_fresh_signature(rig: DispatchRig) -> None:
    _, secret = await rig.subscribe(retryDelaysS=[600])
    await rig.publish()
    rig.receiver.script(FAILURE)
    await rig.dispatch_all()
    rig.clock.advance(720)
    await rig.dispatch_all()

    first, second = (request.headers for request in rig.receiver.requests)
    assert first["webhook-id"] == second["webhook-id"]
    assert first["traceparent"].split("-")[1] == second["traceparent"].split("-")[1]
    assert first["traceparent"].split("-")[2] != second["traceparent"].split("-")[2]
    assert rig.signed_by(rig.receiver.requests[1], secret)


async def test_the_schedule_is_the_subscriptions_and_after_it_the_job_is_in_error(rig: DispatchRig) -> None:
    job_id = await failing_job(rig, FAILURE, FAILURE, FAILURE, retryDelaysS=[1, 100])
    for delay_s in (1.2, 120):
        rig.clock.advance(delay_s)
        assert await rig.dispatch_all() == [job_id]

    job = await rig.job(job_id)
    assert (job["status"], job["attemptsSpent"]) == ("ERROR", 3)
    assert len(await rig.attempts(job_id)) == 3


async def test_retry_after_is_waited_out(rig: DispatchRig) -> None:
    job_id = await failing_job(rig, Reply(503, headers=(("retry-after", "300"),)))

    rig.clock.advance(299)
    assert await rig.dispatch_all() == []
    rig.clock.advance(1)
    assert await rig.dispatch_all() == [job_id]


@pytest.mark.parametrize(
    ("reply", "delay_s"),
    [(defer(90), 90), (rate_limit("90"), 90), (defer(), 30 * 1.2), (rate_limit(), 30 * 1.2)],
    ids=["ack false", "429", "ack false without a delay", "429 without a delay"],
)
async def test_a_deferred_delivery_spends_no_attempt(rig: DispatchRig, reply: Reply, delay_s: float) -> None:
    job_id = await failing_job(rig, reply, retryDelaysS=[])

    job = await rig.job(job_id)
    assert (job["status"], job["attemptsSpent"], job["deliveries"]) == ("PENDING", 0, 1)
    rig.clock.advance(29)
    assert await rig.dispatch_all() == []
    rig.clock.advance(delay_s - 29)
    assert await rig.dispatch_all() == [job_id]
    assert (await rig.job(job_id))["status"] == "COMPLETED"
    assert [attempt["outcome"] for attempt in await rig.attempts(job_id)] == ["DEFERRED", "DELIVERED"]


async def test_410_pauses_the_subscription_and_keeps_its_jobs_for_later(
    rig: DispatchRig, caplog: pytest.LogCaptureFixture
) -> None:
    subscription_id, _ = await rig.subscribe()
    await rig.publish(1)
    await rig.publish(2)
    rig.receiver.script(GONE)

    await rig.dispatch_all()

    path = f"/api/v1/subscriptions/{subscription_id}"
    assert (await rig.ask("GET", path)).body["paused"] is True
    assert "answered 410" in caplog.text
    assert [job["status"] for job in await rig.jobs()] == ["PENDING", "PENDING"]
    assert len(rig.receiver.requests) == 1

    await rig.ask("POST", f"{path}/resume")
    await rig.dispatch_all()
    assert [job["status"] for job in await rig.jobs()] == ["COMPLETED", "COMPLETED"]
    numbers = [msgspec.json.decode(request.body)["data"]["number"] for request in rig.receiver.requests]
    assert numbers == [1, 1, 2]


async def test_410_ends_a_job_that_has_no_subscription(rig: DispatchRig) -> None:
    rig.receiver.script(GONE)
    await rig.ask("POST", "/api/v1/jobs", {"target": rig.receiver.url})

    (job_id,) = await rig.dispatch_all()

    assert (await rig.job(job_id))["status"] == "ERROR"
    assert [attempt["outcome"] for attempt in await rig.attempts(job_id)] == ["REFUSED"]


async def test_a_job_that_is_given_up_goes_to_the_dead_letter_topic(rig: DispatchRig) -> None:
    job_id = await failing_job(rig, FAILURE, retryDelaysS=[], deadLetterTopic="lost")

    event_id = (await rig.job(job_id))["eventId"]
    assert rig.dead_letters.copies == [("lost", job_id, event_id, "answered 500")]


async def test_a_dead_letter_topic_that_fails_does_not_keep_the_job_from_error(rig: DispatchRig) -> None:
    rig.dead_letters.failure = Unavailable("the broker is away")

    job_id = await failing_job(rig, FAILURE, retryDelaysS=[], deadLetterTopic="lost")

    assert (await rig.job(job_id))["status"] == "ERROR"


async def test_an_endpoint_that_does_not_answer_in_the_subscriptions_time_has_failed(rig: DispatchRig) -> None:
    job_id = await failing_job(rig, Reply(ending=Ending.HANG), timeoutS=0.2)

    assert (await rig.job(job_id))["lastError"] == "no answer within 0.2 s"
    assert [attempt["statusCode"] for attempt in await rig.attempts(job_id)] == [None]


async def test_a_target_that_the_egress_guard_keeps_us_from_is_never_reached(connect: Connect) -> None:
    async with dispatch_rig(connect(), egress_allow=()) as rig:
        job_id = await failing_job(rig)

        job = await rig.job(job_id)
        assert (job["status"], job["attemptsSpent"]) == ("PENDING", 1)
        assert "loopback" in job["lastError"]
        assert rig.receiver.requests == []


async def test_an_endpoint_that_fails_too_often_is_left_alone_for_a_while(rig: DispatchRig) -> None:
    await rig.subscribe(retryDelaysS=[1000], mode="IMMEDIATE")
    rig.receiver.script(*[FAILURE] * 10)
    for number in range(11):
        await rig.publish(number)

    await rig.dispatch_all()

    assert len(rig.receiver.requests) == 10
    last = (await rig.jobs())[-1]
    assert (last["status"], last["attemptsSpent"]) == ("PENDING", 0)
    assert "breaker is open" in last["lastError"]
    rig.clock.advance(36)
    assert await rig.dispatch_all() == [last["id"]]
    assert len(rig.receiver.requests) == 11


async def test_the_answer_says_that_the_breaker_refuses_the_whole_subscription(rig: DispatchRig) -> None:
    await rig.subscribe(retryDelaysS=[1000], mode="IMMEDIATE")
    rig.receiver.script(*[FAILURE] * 10)
    for number in range(11):
        await rig.publish(number)
    queued = await rig.queue_all()
    answers = [await rig.processed(job_id) for job_id in queued]

    assert answers[:10] == [{"ack": True}] * 10
    assert answers[10] == {"ack": True, "holdSeconds": 5}


# Order


async def test_a_group_that_blocks_on_error_waits_for_the_retry_and_another_does_not(rig: DispatchRig) -> None:
    await rig.subscribe(mode=BLOCK)
    rig.receiver.script(FAILURE)
    await rig.publish(1)
    await rig.publish(2)
    await rig.publish(3, partitionkey="customer-2")

    await rig.dispatch_all()
    first, second, other = await rig.jobs()
    assert [job["status"] for job in (first, second, other)] == ["PENDING", "PENDING", "COMPLETED"]

    rig.clock.advance(6)
    assert await rig.dispatch_all() == [first["id"], second["id"]]


async def test_followers_pass_a_failed_job_of_a_group_that_goes_on_after_errors(rig: DispatchRig) -> None:
    await rig.subscribe(mode=NEXT)
    rig.receiver.script(FAILURE)
    await rig.publish(1)
    await rig.publish(2)

    await rig.dispatch_all()

    assert [job["status"] for job in await rig.jobs()] == ["PENDING", "COMPLETED"]


async def test_a_follower_that_is_in_the_queue_already_goes_back_when_an_earlier_job_ends_in_error(
    rig: DispatchRig,
) -> None:
    await rig.subscribe(mode=BLOCK, retryDelaysS=[])
    await rig.publish(1)
    await rig.publish(2)
    first, second = await rig.queue_all()
    rig.receiver.script(FAILURE)
    await rig.processed(first)

    assert await rig.processed(second) == ACK

    assert (await rig.job(first))["status"] == "ERROR"
    assert ((await rig.job(second))["status"], len(rig.receiver.requests)) == ("PENDING", 1)
    assert await rig.dispatch_all() == []
    await rig.ask("POST", f"/api/v1/jobs/{first}/ignore")
    assert await rig.dispatch_all() == [second]


async def test_a_group_in_error_is_retried_in_order(rig: DispatchRig) -> None:
    await rig.subscribe(mode=NEXT, retryDelaysS=[])
    rig.receiver.script(FAILURE, FAILURE)
    for number in (1, 2, 3):
        await rig.publish(number)
    await rig.dispatch_all()
    first, second, third = await rig.jobs()
    assert [job["status"] for job in (first, second, third)] == ["ERROR", "ERROR", "COMPLETED"]

    retried = await rig.ask("POST", "/api/v1/jobs/retry-group", {"groupKey": first["groupKey"]})

    assert retried.body == {"ids": [first["id"], second["id"]]}
    assert await rig.dispatch_all() == [first["id"], second["id"]]
    assert {job["status"] for job in await rig.jobs()} == {"COMPLETED"}


async def test_one_subscribers_failure_never_blocks_another(rig: DispatchRig) -> None:
    await rig.subscribe("billing", target=f"{rig.receiver.url}/billing", retryDelaysS=[])
    await rig.subscribe("shipping", target=f"{rig.receiver.url}/shipping")
    rig.receiver.script(FAILURE)
    await rig.publish(1)
    await rig.publish(2)

    await rig.dispatch_all()

    shipped = [request.path for request in rig.receiver.requests if request.path == "/shipping"]
    assert len(shipped) == 2


async def test_the_log_says_why_an_attempt_failed_and_not_what_it_holds_back(
    rig: DispatchRig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.events.process")
    await rig.subscribe(retryDelaysS=[7, 7])
    rig.receiver.script(FAILURE)
    for number in range(5):
        await rig.publish(number)
    for job_id in await rig.queue_all():
        await rig.process(job_id)

    (line,) = [each for each in caplog.records if each.name.startswith("penstock.events.process")]
    assert re.fullmatch(r"attempt 1 failed: answered 500; the next is in \d+ s", line.getMessage())
    assert {"job", "subscription", "group", "pool"} <= line.__dict__.keys()


# What is not delivered


async def test_a_final_job_is_acked_without_a_delivery(rig: DispatchRig) -> None:
    await rig.subscribe(mode=IMMEDIATE, retryDelaysS=[])
    rig.receiver.script(Reply(), FAILURE)
    await rig.publish(1)
    await rig.publish(2)
    await rig.dispatch_all()
    await rig.publish(3)
    (cancelled,) = await rig.queue_all()
    await rig.ask("POST", f"/api/v1/jobs/{cancelled}/cancel")

    assert [job["status"] for job in await rig.jobs()] == ["COMPLETED", "ERROR", "CANCELLED"]
    for job in await rig.jobs():
        assert await rig.processed(job["id"]) == ACK
    assert len(rig.receiver.requests) == 2


async def test_a_job_that_nobody_knows_is_acked(rig: DispatchRig) -> None:
    assert await rig.processed(rig.new_id()) == ACK


async def test_a_second_pointer_of_a_job_that_is_being_delivered_comes_again_later(rig: DispatchRig) -> None:
    async with slow_delivery(rig) as (job_id, endpoint):
        rig.clock.advance(20)
        assert (await rig.process(job_id)).body == {"ack": False, "delaySeconds": 10}

    assert await rig.processed(job_id) == ACK
    assert ((await rig.job(job_id))["status"], endpoint.requests) == ("COMPLETED", 1)


async def settled(rig: DispatchRig, job_id: str) -> dict[str, int]:
    """Tell that the queue of a job's pool has nothing any more."""
    return {(await rig.repository.get_job(job_id)).pool: rig.now_ms}


async def test_a_delivery_of_a_job_that_was_thought_to_be_lost_ends_it_all_the_same(rig: DispatchRig) -> None:
    async with slow_delivery(rig) as (job_id, _):
        rig.clock.advance(901)
        assert await rig.repository.recover_stale(rig.now_ms, 10, settled=await settled(rig, job_id)) == [job_id]

    assert (await rig.job(job_id))["status"] == "COMPLETED"
    assert len(await rig.attempts(job_id)) == 1


async def test_a_subscription_with_a_long_time_out_has_a_lease_as_long(rig: DispatchRig) -> None:
    async with slow_delivery(rig, timeoutS=600) as (job_id, _):
        rig.clock.advance(620)
        assert await rig.repository.recover_stale(rig.now_ms, 10, settled=await settled(rig, job_id)) == []

    assert (await rig.job(job_id))["status"] == "COMPLETED"


async def test_paused_subscriptions_keep_their_jobs_for_later(rig: DispatchRig) -> None:
    subscription_id, _ = await rig.subscribe()
    await rig.publish(1)
    (queued,) = await rig.queue_all()
    await rig.ask("POST", f"/api/v1/subscriptions/{subscription_id}/pause")
    await rig.publish(2)

    assert await rig.processed(queued) == ACK
    assert await rig.dispatch_all() == []
    assert rig.receiver.requests == []

    await rig.ask("POST", f"/api/v1/subscriptions/{subscription_id}/resume")
    assert len(await rig.dispatch_all()) == 2


async def test_a_delayed_job_goes_out_when_its_time_has_come(rig: DispatchRig) -> None:
    at = "2023-11-14T22:14:20Z"  # a minute after the rig's clock
    body = {"target": rig.receiver.url, "scheduledFor": at}
    job_id = (await rig.ask("POST", "/api/v1/jobs", body)).body["id"]

    rig.clock.advance(59)
    assert await rig.dispatch_all() == []
    rig.clock.advance(1)
    assert await rig.dispatch_all() == [job_id]


async def test_a_pointer_that_comes_before_its_job_is_due_is_acked(rig: DispatchRig) -> None:
    job_id = await failing_job(rig, FAILURE)

    assert await rig.processed(job_id) == ACK
    assert ((await rig.job(job_id))["status"], len(rig.receiver.requests)) == ("PENDING", 1)


async def test_a_job_that_expired_in_the_queue_is_not_delivered(rig: DispatchRig) -> None:
    body = {"target": rig.receiver.url, "expiresAt": "2023-11-14T22:14:20Z"}
    job_id = (await rig.ask("POST", "/api/v1/jobs", body)).body["id"]
    await rig.queue_all()
    rig.clock.advance(61)

    assert await rig.processed(job_id) == ACK
    assert ((await rig.job(job_id))["status"], rig.receiver.requests) == ("EXPIRED", [])


async def test_a_job_whose_next_attempt_would_come_too_late_expires(rig: DispatchRig) -> None:
    body = {"target": rig.receiver.url, "expiresAt": "2023-11-14T22:13:24Z"}
    rig.receiver.script(FAILURE)
    job_id = (await rig.ask("POST", "/api/v1/jobs", body)).body["id"]

    await rig.dispatch_all()

    assert (await rig.job(job_id))["status"] == "EXPIRED"
    assert [attempt["outcome"] for attempt in await rig.attempts(job_id)] == ["FAILED"]


async def test_jobs_of_a_deleted_subscription_are_cancelled_and_one_under_way_ends_in_error(rig: DispatchRig) -> None:
    subscription_id, _ = await rig.subscribe()
    await rig.publish(1)
    await rig.publish(2)
    late = await rig.make(group="other", subscription_id=subscription_id, target=rig.receiver.url)

    removed = await rig.ask("DELETE", f"/api/v1/subscriptions/{subscription_id}")
    after = await rig.make(group="other", subscription_id=subscription_id, target=rig.receiver.url)
    await rig.dispatch_all()

    assert removed.body == {"id": subscription_id, "cancelledJobs": 3}
    assert (await rig.job(late))["status"] == "CANCELLED"
    assert (await rig.job(after))["status"] == "ERROR"
    assert "Subscription not found" in (await rig.job(after))["lastError"]
    assert rig.receiver.requests == []


async def test_high_priority_of_an_event_a_job_or_a_subscription_is_shown_and_claimed(rig: DispatchRig) -> None:
    plain_id, _ = await rig.subscribe()
    urgent_id, _ = await rig.subscribe("urgent", highPriority=True)
    regular_event, urgent_event = await rig.publish(1), await rig.publish(2, highpriority=True)
    created = [
        (await rig.ask("POST", "/api/v1/jobs", {"target": rig.receiver.url, **given})).body["id"]
        for given in ({"highPriority": True}, {}, {"subscriptionId": urgent_id}, {"highPriority": False})
    ]

    jobs = {job["id"]: job for job in await rig.jobs()}
    claimed = {job.id: job.high_priority for job in await rig.claim()}

    of_events = {
        (job["subscriptionId"], job["eventId"]): job["highPriority"] for job in jobs.values() if job["eventId"]
    }
    assert of_events == {
        (plain_id, regular_event): False,
        (plain_id, urgent_event): True,
        (urgent_id, regular_event): True,
        (urgent_id, urgent_event): True,
    }
    assert [jobs[job_id]["highPriority"] for job_id in created] == [True, False, True, False]
    assert {job["sequence"] for job in jobs.values()} == {99}
    assert claimed == {job_id: job["highPriority"] for job_id, job in jobs.items()}


async def test_while_the_database_is_away_the_answer_is_503_and_nothing_is_sent(rig: DispatchRig) -> None:
    await rig.subscribe()
    await rig.publish()
    (job_id,) = await rig.queue_all()
    await rig.repository.close()

    answer = await rig.process(job_id)

    assert (answer.status, answer.headers["content-type"]) == (503, "application/problem+json")
    assert rig.receiver.requests == []
