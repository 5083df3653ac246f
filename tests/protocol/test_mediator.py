"""The mediator against a real receiver: what is sent, and what each answer leads to."""

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from email.utils import format_datetime

import msgspec
import pytest

from penstock.delivery.http.settings import DeliverySettings
from penstock.domain.outcome import (
    CircuitOpen,
    ClientErrors,
    Deferred,
    EgressDenied,
    HttpError,
    MediationOutcome,
    MediationResult,
    NetworkError,
    RateLimited,
    Timeout,
)
from penstock.domain.pointer import PROCESS_PATH, MessagePointer
from penstock.domain.signing import Signature, verify
from penstock.testing.receiver import Ending, RecordingReceiver, Reply, defer, rate_limit
from tests.rigs.http_endpoints import Rig, mediator_rig

SECRETS = ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_b2xkIHNlY3JldCBvZiBhIHN1YnNjcmliZXI=")


@pytest.fixture
async def receiver() -> AsyncIterator[RecordingReceiver]:
    async with RecordingReceiver() as receiver:
        yield receiver


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with mediator_rig(DeliverySettings(request_timeout_s=5)) as rig:
        yield rig


async def test_the_request_has_its_form(rig: Rig, receiver: RecordingReceiver) -> None:
    outcome = await rig.deliver(f"{receiver.url}/hook/a%20b?x=1&y=%2F#part", "m-1", "tok.en")
    assert outcome == MediationOutcome(MediationResult.SUCCESS, status=200)
    (request,) = receiver.requests
    assert (request.method, request.path) == ("POST", "/hook/a%20b?x=1&y=%2F")
    assert msgspec.json.decode(request.body) == {"messageId": "m-1"}
    assert request.headers["authorization"] == "Bearer tok.en"
    assert request.headers["content-type"] == request.headers["accept"] == "application/json"
    assert f"http://{request.headers['host']}" == receiver.url
    assert not any(name.startswith("webhook-") for name in request.headers)


@pytest.mark.parametrize("token", [None, "", "  "])
async def test_without_a_token_there_is_no_authorization(
    rig: Rig, receiver: RecordingReceiver, token: str | None
) -> None:
    await rig.deliver(receiver.url, token=token)
    assert "authorization" not in receiver.requests[0].headers
    assert receiver.requests[0].path == "/"


async def test_an_id_is_sent_as_json_whatever_it_holds(rig: Rig, receiver: RecordingReceiver) -> None:
    odd = 'a"b\\c\r\nInjected: yes\u2028é😀'
    assert (await rig.deliver(receiver.url, odd)).result is MediationResult.SUCCESS
    assert receiver.message_ids == [odd]
    assert "injected" not in receiver.requests[0].headers


async def test_a_message_with_secrets_is_signed_with_each(rig: Rig, receiver: RecordingReceiver) -> None:
    pointer = MessagePointer("m-1", receiver.url, signing_secrets=SECRETS)
    assert (await rig.mediator.attempt(pointer, 1)).result is MediationResult.SUCCESS
    (request,) = receiver.requests
    headers = request.headers
    signature = Signature(headers["webhook-id"], headers["webhook-timestamp"], headers["webhook-signature"])
    assert signature.message_id == "m-1"
    assert signature.timestamp == str(rig.clock.now_ms() // 1000)
    assert len(signature.signatures.split(" ")) == 2
    for secret in SECRETS:
        assert verify(signature, request.body, [secret], rig.clock.now_ms())


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (Reply(201), MediationOutcome(MediationResult.SUCCESS, status=201)),
        (Reply(200, b"not json"), MediationOutcome(MediationResult.SUCCESS, status=200)),
        (Reply(204, b""), MediationOutcome(MediationResult.SUCCESS, status=204)),
        (defer(), MediationOutcome(MediationResult.ERROR_PROCESS, None, Deferred(), 200)),
        (defer(90), MediationOutcome(MediationResult.ERROR_PROCESS, 90, Deferred(), 200)),
        (Reply(404), MediationOutcome(MediationResult.ERROR_CONFIG, None, HttpError(404), 404)),
        (Reply(501), MediationOutcome(MediationResult.ERROR_CONFIG, None, HttpError(501), 501)),
        (Reply(500), MediationOutcome(MediationResult.ERROR_PROCESS, None, HttpError(500), 500)),
        (rate_limit("12"), MediationOutcome(MediationResult.ERROR_PROCESS, 12, RateLimited(12), 429)),
        (rate_limit(), MediationOutcome(MediationResult.ERROR_PROCESS, 30, RateLimited(), 429)),
    ],
)
async def test_an_answer_leads_to_its_outcome(
    rig: Rig, receiver: RecordingReceiver, reply: Reply, outcome: MediationOutcome
) -> None:
    receiver.script(reply)
    assert await rig.deliver(receiver.url) == outcome


@pytest.mark.parametrize(
    ("path", "answer", "hold_s"),
    [
        (PROCESS_PATH, b'{"ack": true, "holdSeconds": 5}', 5),
        (PROCESS_PATH, b'{"ack": true, "holdSeconds": 86400}', 60),
        (PROCESS_PATH, b'{"ack": true, "holdSeconds": 0}', None),
        (PROCESS_PATH, b'{"ack": true, "holdSeconds": -1}', None),
        (PROCESS_PATH, b'{"ack": true, "holdSeconds": "soon"}', None),
        (PROCESS_PATH, b'{"holdSeconds', None),
        (PROCESS_PATH, b'{"ack": true}', None),
        ("/hook", b'{"ack": true, "holdSeconds": 5}', None),
    ],
)
async def test_only_the_process_endpoint_may_hold_a_subscription(
    rig: Rig, receiver: RecordingReceiver, path: str, answer: bytes, hold_s: int | None
) -> None:
    receiver.script(Reply(200, answer))
    outcome = await rig.deliver(receiver.url + path)
    assert outcome == MediationOutcome(MediationResult.SUCCESS, status=200, hold_s=hold_s)


async def test_a_redirect_is_an_error_and_not_followed(rig: Rig, receiver: RecordingReceiver) -> None:
    receiver.script(Reply(307, headers=(("location", f"{receiver.url}/elsewhere"),)))
    outcome = await rig.deliver(f"{receiver.url}/here")
    assert (outcome.result, outcome.error) == (MediationResult.ERROR_PROCESS, HttpError(307))
    assert [request.path for request in receiver.requests] == ["/here"]


async def test_client_errors_can_be_retried(receiver: RecordingReceiver) -> None:
    receiver.script(Reply(404))
    async with mediator_rig(DeliverySettings(client_errors=ClientErrors.RETRY)) as rig:
        assert (await rig.deliver(receiver.url)).result is MediationResult.ERROR_PROCESS
        assert rig.warnings == []


async def test_a_date_to_retry_after_counts_from_now(rig: Rig, receiver: RecordingReceiver) -> None:
    at = datetime.fromtimestamp(rig.clock.now_ms() // 1000 + 90, UTC)
    receiver.script(rate_limit(format_datetime(at, usegmt=True)))
    assert (await rig.deliver(receiver.url)).delay_s == 90


async def test_a_failure_is_logged_in_words(
    rig: Rig, receiver: RecordingReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.router")
    receiver.script(Reply(503), rate_limit("7"))
    for _ in range(2):
        await rig.deliver(receiver.url)
    endpoint = receiver.url.rstrip("/")
    assert caplog.messages == [
        f"not delivered: {endpoint}/: answered 503",
        f"not delivered: {endpoint}/: answered 429: too many requests",
    ]


async def test_a_refusal_is_warned_about_without_secrets(rig: Rig, receiver: RecordingReceiver) -> None:
    receiver.script(Reply(404), Reply(501), Reply(500))
    for _ in range(3):
        await rig.deliver(f"{receiver.url}/hook?key=hush", token="hush")
    assert [warning[:3] for warning in rig.warnings] == [
        ("CONFIGURATION", "ERROR", "HttpMediator"),
        ("CONFIGURATION", "CRITICAL", "HttpMediator"),
    ]
    assert all(f"{receiver.url}/hook" in warning[3] and "hush" not in warning[3] for warning in rig.warnings)
    assert ["404" in rig.warnings[0][3], "501" in rig.warnings[1][3]] == [True, True]


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/",
        "file:///etc/passwd",
        "//host/path",
        "http://",
        "http:///path",
        "http://user:hush@127.0.0.1/",
        "http://127.0.0.1\\@host/",
        "http://host:0/",
        "http://host:99999/",
        "http://host:port/",
        "http://ho st/",
        "http://host/\r\nInjected: yes",
        "http://host/\nInjected: yes",
        "http://host/\ttab",
        "http://höst/",
        "http://[fe80::1%25eth0]/",
        "http://[::1/",
        "not a url",
    ],
)
async def test_a_url_that_can_never_be_used_removes_the_message_with_a_warning(rig: Rig, url: str) -> None:
    outcome = await rig.deliver(url)
    assert outcome.result is MediationResult.ERROR_CONFIG
    assert isinstance(outcome.error, EgressDenied)
    ((code, severity, _, message),) = rig.warnings
    assert (code, severity) == ("CONFIGURATION", "ERROR")
    assert "hush" not in message
    assert rig.breakers.views() == []


async def test_an_id_that_is_not_text_is_refused(rig: Rig, receiver: RecordingReceiver) -> None:
    assert (await rig.deliver(receiver.url, "a\ud800")).result is MediationResult.ERROR_CONFIG
    assert "message 'a\\ud800' was removed" in rig.warnings[0][3]
    assert receiver.requests == []


@pytest.mark.parametrize("token", ["a\r\nInjected: yes", "a\nb", "a\x00b", "töken"])
async def test_a_token_that_would_break_out_of_its_header_is_refused(
    rig: Rig, receiver: RecordingReceiver, token: str
) -> None:
    outcome = await rig.deliver(receiver.url, token=token)
    assert outcome.result is MediationResult.ERROR_CONFIG
    assert token not in rig.warnings[0][3]
    assert receiver.requests == []


@pytest.mark.parametrize(
    ("message_id", "secret"), [("m1", "whsec_???"), ("m1", "hush"), ("a\r\nb", SECRETS[0]), ("a.b", SECRETS[0])]
)
async def test_what_cannot_be_signed_is_refused(
    rig: Rig, receiver: RecordingReceiver, message_id: str, secret: str
) -> None:
    pointer = MessagePointer(message_id, receiver.url, signing_secrets=(secret,))
    assert (await rig.mediator.attempt(pointer, 1)).result is MediationResult.ERROR_CONFIG
    assert "hush" not in rig.warnings[0][3]
    assert receiver.requests == []


async def test_each_of_many_requests_at_once_gets_its_own_answer(rig: Rig, receiver: RecordingReceiver) -> None:
    for _ in range(3):
        receiver.requests.clear()
        receiver.script(*(defer(number + 1) for number in range(50)))
        outcomes = await asyncio.gather(*(rig.deliver(receiver.url, f"m{number}") for number in range(50)))
        delays = {f"m{number}": outcome.delay_s for number, outcome in enumerate(outcomes)}
        assert delays == {message: number + 1 for number, message in enumerate(receiver.message_ids)}


async def test_no_answer_in_time_is_a_timeout(receiver: RecordingReceiver) -> None:
    receiver.script(Reply(ending=Ending.HANG))
    async with mediator_rig(DeliverySettings(request_timeout_s=2.0)) as rig:
        outcome = await rig.deliver(receiver.url)
        assert outcome == MediationOutcome(MediationResult.ERROR_PROCESS, error=Timeout(2.0))
        assert (await rig.deliver(receiver.url)).result is MediationResult.SUCCESS


async def test_an_answer_cut_short_is_a_connection_error(rig: Rig, receiver: RecordingReceiver) -> None:
    receiver.script(Reply(ending=Ending.CUT))
    outcome = await rig.deliver(receiver.url)
    assert outcome.result is MediationResult.ERROR_CONNECTION
    assert isinstance(outcome.error, NetworkError)
    assert len(receiver.requests) == 1


async def test_a_refused_connection_is_a_connection_error(rig: Rig) -> None:
    async with RecordingReceiver() as gone:
        url = gone.url
    outcome = await rig.deliver(url)
    assert outcome.result is MediationResult.ERROR_CONNECTION
    assert isinstance(outcome.error, NetworkError)


async def test_a_failing_endpoint_opens_its_breaker_and_probes_close_it(rig: Rig, receiver: RecordingReceiver) -> None:
    receiver.script(*[Reply(500)] * 10)
    url = f"{receiver.url}/hook"
    for number in range(10):
        await rig.deliver(f"{url}?n={number}")
    assert await rig.deliver(url) == MediationOutcome(MediationResult.ERROR_PROCESS, error=CircuitOpen(url, 5))
    assert (await rig.deliver(f"{receiver.url}/other")).result is MediationResult.SUCCESS
    assert len(receiver.requests) == 11
    (view, _) = rig.breakers.views()
    assert (view.endpoint, view.state, view.failures, view.rejected) == (url, "OPEN", 10, 1)
    rig.clock.advance(5)
    for _ in range(3):
        assert (await rig.deliver(url)).result is MediationResult.SUCCESS
    assert rig.breakers.views()[0].state == "CLOSED"


async def test_refusals_and_deferrals_open_no_breaker(rig: Rig, receiver: RecordingReceiver) -> None:
    for reply in (Reply(404), rate_limit(), defer()):
        receiver.script(*[reply] * 12)
        for _ in range(12):
            await rig.deliver(receiver.url)
    assert rig.breakers.views()[0].state == "CLOSED"


async def test_a_cancelled_probe_gives_its_place_back(rig: Rig, receiver: RecordingReceiver) -> None:
    receiver.script(*[Reply(500)] * 10, *[Reply(ending=Ending.HANG)] * 3)
    for _ in range(10):
        await rig.deliver(receiver.url)
    rig.clock.advance(5)
    probes = [asyncio.create_task(rig.deliver(receiver.url)) for _ in range(3)]
    await receiver.received(13)
    assert isinstance((await rig.deliver(receiver.url)).error, CircuitOpen)
    for probe in probes:
        probe.cancel()
    assert all(isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(*probes, return_exceptions=True))
    assert (await rig.deliver(receiver.url)).result is MediationResult.SUCCESS
