"""Both Python clients against a real API process on SQLite, and against servers that break off."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from penstock.client import (
    AsyncPenstock,
    Condition,
    DispatchMode,
    Event,
    JobStatus,
    NoAnswer,
    Penstock,
    StrangeAnswer,
    TokenRefused,
    verify_webhook,
)
from penstock.domain.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound
from penstock.events.process.tokens import FILE_NAME, AuthTokens
from penstock.testing.receiver import RecordingReceiver, Reply
from tests.rigs.dispatch import request
from tests.rigs.http_endpoints import RawServer
from tests.rigs.penstock_process import ApiProcess
from tests.services.server_process import free_port

UNKNOWN = "0HZXEQ5Y8JY5Z"
TOKEN = "the token of the API"
PAGE = 100
_POOLS = b'{"pools":[],"cursor":null}'
_numbers = count(1)


class InThread:
    """The blocking client, with every call made by another thread: one test then serves both clients."""

    def __init__(self, penstock: Penstock) -> None:
        self._penstock = penstock

    def __getattr__(self, name: str) -> Any:
        async def call(*given: Any, **options: Any) -> Any:
            return await asyncio.to_thread(getattr(self._penstock, name), *given, **options)

        return call

    async def jobs(self, **which: Any) -> AsyncIterator[Any]:
        for job in await asyncio.to_thread(lambda: list(self._penstock.jobs(**which))):
            yield job


@asynccontextmanager
async def client(kind: str, url: str, token: str | None = None, timeout_s: float = 30.0) -> AsyncIterator[Any]:
    """A client of either kind."""
    if kind == "async":
        async with AsyncPenstock(url, token, timeout_s=timeout_s) as penstock:
            yield penstock
    else:
        with Penstock(url, token, timeout_s=timeout_s) as penstock:
            yield InThread(penstock)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("client")


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[str]:
    with ApiProcess(directory, settings={"PENSTOCK_API__TOKEN": TOKEN}) as api:
        yield api.url


@pytest.fixture(params=["blocking", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def penstock(kind: str, server: str) -> AsyncIterator[Any]:
    async with client(kind, server, TOKEN) as made:
        yield made


def fresh(word: str) -> str:
    return f"{word}-{next(_numbers)}"


async def listed(penstock: Any, **which: Any) -> list[Any]:
    return [job async for job in penstock.jobs(**which)]


async def test_events_become_jobs_once_each_in_order(penstock: Any) -> None:
    shop = fresh("shop")
    made = await penstock.subscribe(shop, f"{shop}:**", "https://orders.example/hook")
    events = [Event(type=f"{shop}:placed", key="order-1", data={"number": number}) for number in range(PAGE + 5)]

    receipts = await penstock.publish_all(events)
    again = await penstock.publish(events[0])

    assert all(receipt.is_new for receipt in receipts)
    assert (again.id, again.is_new) == (receipts[0].id, False)
    jobs = await listed(penstock, subscription_id=made.subscription.id)
    assert [job.event_id for job in reversed(jobs)] == [receipt.id for receipt in receipts]
    assert {job.group for job in jobs} == {"order-1"}
    one = await listed(penstock, event_id=receipts[3].id, status=JobStatus.PENDING, type=f"{shop}:placed")
    assert [job.id for job in one] == [jobs[-4].id]


async def test_a_subscription_is_made_looked_at_paused_and_removed(penstock: Any) -> None:
    name = fresh("billing")
    made = await penstock.subscribe(
        name,
        "orders:*",
        "https://a.example",
        filter=[Condition("region", values=("eu",))],
        mode=DispatchMode.NEXT_ON_ERROR,
        retry_delays_s=[1, 2.5],
        timeout_s=3,
    )
    found = made.subscription
    assert made.secret.startswith("whsec_")
    assert (found.name, found.mode, found.retry_delays_s, found.timeout_s) == (name, "NEXT_ON_ERROR", (1, 2.5), 3)
    assert found.filter == (Condition("region", values=("eu",)),)
    assert found in await penstock.subscriptions()
    assert (await penstock.pause(found.id)).paused
    assert (await penstock.subscription(found.id)).paused
    assert not (await penstock.resume(found.id)).paused
    with pytest.raises(AlreadyExists, match=name):
        await penstock.subscribe(name, "orders:*", "https://a.example")
    assert (await penstock.unsubscribe(found.id)).id == found.id
    with pytest.raises(NotFound):
        await penstock.subscription(found.id)


async def test_a_delivery_is_verified_and_jobs_are_decided_about(penstock: Any, server: str, directory: Path) -> None:
    tokens = AuthTokens([(directory / "data" / FILE_NAME).read_bytes()])
    shop = fresh("shop")
    async with RecordingReceiver() as receiver:
        receiver.script(Reply(501, b"sorry"), Reply(501))
        made = await penstock.subscribe(shop, f"{shop}:*", receiver.url)
        for number in range(3):
            await penstock.publish(Event(type=f"{shop}:placed", key=f"order-{number}", data=number))
        ignored, retried, cancelled = await listed(penstock, subscription_id=made.subscription.id)
        for job in (ignored, retried):
            headers = {"Authorization": f"Bearer {tokens.token(job.id, time.time_ns() // 1_000_000)}"}
            await asyncio.to_thread(request, server, "POST", "/api/dispatch/process", {"messageId": job.id}, headers)
        first = receiver.requests[0]
    webhook = verify_webhook(first.headers, first.body, made.secret)
    assert (webhook.id, webhook.event.key, webhook.event.data) == (ignored.id, "order-2", 2)

    (attempt,) = await penstock.attempts(ignored.id)
    assert (attempt.number, attempt.outcome, attempt.status_code, attempt.response) == (1, "REFUSED", 501, "sorry")
    assert await penstock.ignore(ignored.id) == [ignored.id]
    assert await penstock.retry(retried.id) == [retried.id]
    assert await penstock.cancel(cancelled.id) == [cancelled.id]
    statuses = [(await penstock.job(job.id)).status for job in (ignored, retried, cancelled)]
    assert statuses == [JobStatus.CANCELLED, JobStatus.PENDING, JobStatus.CANCELLED]
    with pytest.raises(FailedPrecondition, match="cannot be retried"):
        await penstock.retry(ignored.id)


async def test_a_subscription_is_changed_tested_and_given_a_new_secret(penstock: Any) -> None:
    async with RecordingReceiver() as receiver:
        receiver.script(Reply(200, b"fine"), Reply(500))
        made = await penstock.subscribe(fresh("shop"), "orders:*", receiver.url, dead_letter_topic="failed")
        found = made.subscription.id
        accepted, refused = await penstock.test_subscription(found), await penstock.test_subscription(found)
    assert (accepted.delivered, accepted.status_code, accepted.response) == (True, 200, "fine")
    assert (refused.delivered, refused.status_code) == (False, 500)

    changed = await penstock.update_subscription(found, timeout_s=4, dead_letter_topic=None)
    assert (changed.timeout_s, changed.dead_letter_topic, changed.target) == (4, None, made.subscription.target)
    rotated = await penstock.rotate_secret(found)
    assert (rotated.secrets, rotated.secret != made.secret) == (2, True)
    assert (await penstock.finish_rotation(found)).secrets == 1
    assert (await penstock.rotate_secret(found, secret=made.secret, keep_previous=False)).secret == made.secret


@pytest.mark.parametrize(
    ("payload", "content_type", "shown"),
    [
        ({"total": 7}, "application/json", ({"total": 7}, None)),
        (b"\x89PNG", "image/png", (None, b"\x89PNG")),
    ],
    ids=["JSON", "bytes"],
)
async def test_a_job_is_created_once_and_shown_with_its_payload(
    penstock: Any, payload: object, content_type: str, shown: tuple[object, object]
) -> None:
    job_type, key = fresh("type"), fresh("key")
    options: Any = {"target": "https://a.example", "type": job_type, "idempotency_key": key, "payload": payload}
    made = await penstock.create_job(content_type=content_type, group="order-1", **options)
    again = await penstock.create_job(content_type=content_type, group="order-1", **options)
    assert (made.is_new, again.id, again.is_new) == (True, made.id, False)

    job = await penstock.job(made.id)
    assert (job.payload, job.payload_base64) == shown
    assert await penstock.retry_group(job.group_key) == []
    page = await penstock.job_page(1, type=job_type)
    assert ([each.id for each in page.jobs], page.cursor) == ([made.id], None)


async def test_changes_are_listed_page_by_page(penstock: Any) -> None:
    codes = [fresh("POOL") for _ in range(2)]
    for code in codes:
        await penstock.put_pool(code, 1)
    first = await penstock.change_page(1)
    second = await penstock.change_page(1, first.cursor)
    assert [change.target for page in (second, first) for change in page.changes] == [{"code": code} for code in codes]


async def test_pools_are_set_listed_and_removed(penstock: Any) -> None:
    code = fresh("POOL/slow")
    pool = await penstock.put_pool(code, 2, rate_limit_per_minute=60)
    assert (pool.code, pool.concurrency, pool.rate_limit_per_minute) == (code, 2, 60)
    assert pool in await penstock.pools()
    assert await penstock.delete_pool(code) == pool
    with pytest.raises(NotFound, match="Pool not found"):
        await penstock.delete_pool(code)


async def test_calls_at_the_same_time_share_a_client(penstock: Any) -> None:
    events = [Event(type="nobody:asked", id=fresh("event")) for _ in range(20)]
    receipts = await asyncio.gather(*map(penstock.publish, events))
    again = await asyncio.gather(*map(penstock.publish, events))
    assert [receipt.id for receipt in receipts] == [receipt.id for receipt in again]
    assert len({receipt.id for receipt in receipts}) == len(events)


async def test_what_is_refused_is_an_error_that_says_why(penstock: Any) -> None:
    with pytest.raises(NotFound, match="Job not found"):
        await penstock.job(UNKNOWN)
    with pytest.raises(InvalidArgument, match="not a URL to deliver to"):
        await penstock.subscribe(fresh("x"), "orders:*", "nowhere")
    with pytest.raises(InvalidArgument, match="type"):
        await penstock.publish(Event(type=""))


async def test_a_wrong_token_is_refused(kind: str, server: str) -> None:
    async with client(kind, server, "another") as penstock:
        with pytest.raises(TokenRefused) as refused:
            await penstock.pools()
    assert "another" not in refused.value.message


# Connections


PROBLEM = b'{"status":404,"code":"NOT_FOUND","title":"Not Found","detail":"no"}'


def answer(content: bytes = _POOLS, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(content)}\r\n\r\n".encode() + content


class Flaky(RawServer):
    """Answers each request with the next of a script: bytes, or None to break off; may hang up after each."""

    def __init__(self, *script: bytes | None, hangs_up: bool = False) -> None:
        super().__init__(self._reply)
        self._hangs_up = hangs_up
        self._script = list(script)
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _reply(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _head(reader):
            self.requests.append(head.split(" HTTP")[0])
            reply = self._script.pop(0)
            if reply is None:
                writer.transport.abort()
                return
            writer.write(reply)
            await writer.drain()
            if self._hangs_up:
                writer.close()
                return


async def _head(reader: asyncio.StreamReader) -> str:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    except (asyncio.IncompleteReadError, ConnectionError):
        return ""
    length = next(
        int(line[15:]) for line in [*head.splitlines(), "content-length:0"] if line.lower()[:15] == "content-length:"
    )
    await reader.readexactly(length)
    return head


async def test_one_connection_serves_call_after_call(kind: str) -> None:
    flaky = Flaky(answer(), answer(PROBLEM, "404 Not Found"), answer())
    async with flaky.serving(), client(kind, flaky.url) as penstock:
        await penstock.pools()
        with pytest.raises(NotFound, match="no"):
            await penstock.job(UNKNOWN)
        await penstock.pools()
        assert flaky.accepted == 1


async def test_a_publish_is_repeated_when_the_connection_breaks(kind: str) -> None:
    flaky = Flaky(None, None, answer(b'{"events":[{"id":"1","isNew":true,"subscriptions":0}]}'))
    async with flaky.serving(), client(kind, flaky.url) as penstock:
        assert (await penstock.publish(Event(type="t"))).is_new
    assert flaky.requests == ["POST /api/v1/events"] * 3


async def test_an_answer_that_does_not_end_is_waited_for_only_so_long(kind: str) -> None:
    flaky = Flaky(answer()[:-3])
    async with flaky.serving(), client(kind, flaky.url, timeout_s=0.2) as penstock:
        with pytest.raises(NoAnswer, match=r"no answer within 0\.2 s"):
            await penstock.pools()
    assert flaky.requests == ["GET /api/v1/pools"]


async def test_what_must_not_happen_twice_is_not_repeated(kind: str) -> None:
    flaky = Flaky(None)
    async with flaky.serving(), client(kind, flaky.url) as penstock:
        with pytest.raises(NoAnswer, match="it may have taken effect"):
            await penstock.subscribe("billing", "orders:**", "https://a.example")
    assert flaky.requests == ["POST /api/v1/subscriptions"]


async def test_what_was_never_sent_has_no_effect(kind: str) -> None:
    async with client(kind, f"http://127.0.0.1:{free_port()}") as penstock:
        with pytest.raises(NoAnswer, match=r"refused|Connect call failed") as raised:
            await penstock.subscribe("billing", "orders:**", "https://a.example")
    assert "taken effect" not in raised.value.message


async def test_a_connection_that_the_server_will_close_is_not_used_again(kind: str) -> None:
    made = answer(b'{"ids":["1"]}')
    flaky = Flaky(made, answer(b'{"ids":["1"]}', headers="Connection: close\r\n"), made)
    async with flaky.serving(), client(kind, flaky.url) as penstock:
        for _ in range(3):
            assert await penstock.cancel("1") == ["1"]
        assert flaky.accepted == 2


async def test_a_connection_that_ended_while_idle_is_not_used_again(kind: str) -> None:
    flaky = Flaky(*[answer(b'{"ids":["1"]}')] * 2, hangs_up=True)
    async with flaky.serving(), client(kind, flaky.url) as penstock:
        for _ in range(2):
            assert await penstock.cancel("1") == ["1"]
            await flaky.until_open(0)
            # Another turn of the loop, in which the client's end of the connection hears of it too.
            await asyncio.to_thread(lambda: None)
        assert flaky.accepted == 2


async def test_nobody_at_the_address_is_told(kind: str) -> None:
    async with client(kind, "http://127.0.0.1:9") as penstock:
        with pytest.raises(NoAnswer, match=r"http://127\.0\.0\.1:9 did not answer GET /api/v1/pools"):
            await penstock.pools()


async def test_another_server_at_the_address_is_told(kind: str) -> None:
    flaky = Flaky(answer(b"<h1>It works!</h1>"), answer(b"gone", "502 Bad Gateway"))
    async with flaky.serving(), client(kind, flaky.url) as penstock:
        for status in ("200", "502"):
            with pytest.raises(StrangeAnswer, match=f"with {status} and content"):
                await penstock.pools()
