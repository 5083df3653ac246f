"""One attempt through a breaker: what it sends, how failures are classified, and what the breaker counts."""

import asyncio

import pytest

from penstock.delivery.attempt import Attempts
from penstock.delivery.errors import AnswerTimedOut, ConnectFailed, ConnectionBroken, ConnectTimedOut, EgressRefused
from penstock.delivery.http.answer import Answer
from penstock.delivery.http.request import RequestHead, request_head
from penstock.domain.breaker import CLOSED, HALF_OPEN, MIN_CALLS, OPEN, PROBES, Breaker
from penstock.domain.outcome import (
    CircuitOpen,
    EgressDenied,
    MediationError,
    MediationOutcome,
    MediationResult,
    NetworkError,
    Timeout,
    outcome_of,
)
from penstock.domain.signing import Signature
from penstock.testing.clock import VirtualClock

HEAD = request_head("http://shop.example/in?secret=1", None)
ENDPOINT = "http://shop.example/in"
PROCESS, CONNECTION = MediationResult.ERROR_PROCESS, MediationResult.ERROR_CONNECTION


class Endpoint:
    """A client that answers, fails, or waits, as the test says."""

    def __init__(self) -> None:
        self.result: int | Exception | None = 200
        self.bodies: list[bytes] = []

    async def send(
        self, head: RequestHead, body: bytes, signature: Signature | None = None, *, timeout_s: float | None = None
    ) -> Answer:
        assert head is HEAD
        self.bodies.append(body)
        if isinstance(self.result, Exception):
            raise self.result
        if self.result is None and timeout_s is not None:
            raise AnswerTimedOut(timeout_s)
        if self.result is None:
            await asyncio.Event().wait()
        return Answer(self.result or 0, None, b"")


def read(answer: Answer) -> MediationOutcome:
    return outcome_of(answer.status, answer.retry_after, answer.body, 0)


class Rig:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.endpoint = Endpoint()
        self.reports: list[tuple[MediationOutcome, str, str, int]] = []
        self.attempts = Attempts(self.endpoint, self.clock, lambda *report: self.reports.append(report))
        self.breaker = Breaker(self.clock.now_ms())

    async def attempt(
        self, result: int | Exception | None, timeout_s: float | None = None, ticket: int | None = None
    ) -> MediationOutcome:
        self.endpoint.result = result
        return await self.attempts.make(
            self.breaker, HEAD, b"{}", None, read, timeout_s=timeout_s, ticket=ticket, message_id="m1", number=2
        )

    async def open_breaker(self) -> None:
        for _ in range(MIN_CALLS):
            await self.attempt(500)
        assert self.breaker.state is OPEN


@pytest.fixture
def rig() -> Rig:
    return Rig()


async def test_an_answer_is_read_by_the_caller_and_counted(rig: Rig) -> None:
    assert (await rig.attempt(204)).status == 204
    assert (rig.breaker.calls, rig.breaker.failures, rig.reports) == (1, 0, [])
    assert (await rig.attempt(500)).status == 500
    assert (rig.breaker.calls, rig.breaker.failures) == (2, 1)


@pytest.mark.parametrize(
    ("failure", "result", "error", "calls", "failures"),
    [
        (AnswerTimedOut(9), PROCESS, Timeout(9), 1, 1),
        (ConnectTimedOut("shop.example:80", 3), CONNECTION, Timeout(3), 1, 1),
        (ConnectFailed("refused"), CONNECTION, NetworkError("refused"), 1, 1),
        (ConnectionBroken("reset"), CONNECTION, NetworkError("reset"), 1, 1),
        (EgressRefused("private"), PROCESS, EgressDenied("private"), 0, 0),
    ],
)
async def test_a_failure_is_classified_reported_and_counted(
    rig: Rig, failure: Exception, result: MediationResult, error: MediationError, calls: int, failures: int
) -> None:
    outcome = await rig.attempt(failure)
    assert outcome == MediationOutcome(result, error=error)
    assert rig.reports == [(outcome, ENDPOINT, "m1", 2)]
    assert (rig.breaker.calls, rig.breaker.failures) == (calls, failures)


@pytest.mark.parametrize("bug", [ZeroDivisionError(), TimeoutError()])
async def test_an_unexpected_exception_is_a_failed_attempt_and_logged(
    rig: Rig, bug: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    outcome = await rig.attempt(bug)
    assert outcome == MediationOutcome(PROCESS, error=NetworkError(type(bug).__name__))
    assert "unexpected" in caplog.text
    assert rig.breaker.failures == 1


async def test_the_callers_time_limit_ends_an_attempt(rig: Rig) -> None:
    assert await rig.attempt(None, timeout_s=0.01) == MediationOutcome(PROCESS, error=Timeout(0.01))
    assert rig.breaker.failures == 1


async def test_nothing_is_sent_while_the_breaker_is_open(rig: Rig) -> None:
    await rig.open_breaker()
    outcome = await rig.attempt(200)
    assert outcome == MediationOutcome(PROCESS, error=CircuitOpen(ENDPOINT, 5))
    assert rig.reports[-1] == (outcome, ENDPOINT, "m1", 2)
    assert len(rig.endpoint.bodies) == MIN_CALLS


async def test_a_ticket_of_before_is_used_and_settled_once(rig: Rig) -> None:
    await rig.open_breaker()
    rig.clock.advance(5)
    tickets = [rig.breaker.admit(rig.clock.now_ms()) for _ in range(PROBES)]
    assert rig.breaker.admit(rig.clock.now_ms()) is None
    for ticket in tickets:
        assert rig.breaker.state is HALF_OPEN
        assert (await rig.attempt(200, ticket=ticket)).result is MediationResult.SUCCESS
    assert rig.breaker.state is CLOSED


async def test_a_cancelled_attempt_gives_its_probe_back(rig: Rig) -> None:
    await rig.open_breaker()
    rig.clock.advance(5)
    probes = [asyncio.create_task(rig.attempt(None)) for _ in range(PROBES)]
    await asyncio.sleep(0)
    assert (await rig.attempt(200)).error == CircuitOpen(ENDPOINT, 1)
    for probe in probes:
        probe.cancel()
    ends = await asyncio.gather(*probes, return_exceptions=True)
    assert [type(end) for end in ends] == [asyncio.CancelledError] * PROBES
    assert (await rig.attempt(200)).result is MediationResult.SUCCESS
    assert rig.breaker.state is HALF_OPEN


async def test_the_log_says_once_that_an_endpoint_fails_and_when_it_answers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    clock, endpoint = VirtualClock(), Endpoint()
    attempts, breaker = Attempts(endpoint, clock), Breaker(clock.now_ms())

    async def attempt(result: int) -> None:
        endpoint.result = result
        await attempts.make(breaker, HEAD, b"", None, lambda answer: outcome_of(answer.status, None, b"", 0))

    for _ in range(MIN_CALLS + 3):
        await attempt(500)
    for result in (500, *[200] * PROBES):
        clock.advance(6)
        await attempt(result)
    assert breaker.state is CLOSED
    assert [(record.levelname, record.getMessage().partition(":")[0]) for record in caplog.records] == [
        ("WARNING", "the breaker has opened"),
        ("INFO", "the breaker is closed again"),
    ]
    assert {record.endpoint for record in caplog.records} == {ENDPOINT}  # type: ignore[attr-defined]
