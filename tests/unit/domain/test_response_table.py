"""What an endpoint's answer means: the table of DELIVERY-ANSWER-1 row by row."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.outcome import (
    MAX_DELAY_S,
    ClientErrors,
    Deferred,
    EgressDenied,
    HttpError,
    MediationOutcome,
    MediationResult,
    NetworkError,
    RateLimited,
    Severity,
    is_retryable,
    outcome_of,
    severity_of,
)

NOW_MS = 784_111_777_000  # Sun, 06 Nov 1994 08:49:37 GMT

SUCCESS = MediationResult.SUCCESS
PROCESS = MediationResult.ERROR_PROCESS
CONFIG = MediationResult.ERROR_CONFIG


def answered(status: int, body: bytes = b"", retry_after: str | None = None) -> MediationOutcome:
    return outcome_of(status, retry_after, body, NOW_MS)


@pytest.mark.parametrize(
    ("status", "result", "retried_at_once", "severity"),
    [
        (200, SUCCESS, False, None),
        (201, SUCCESS, False, None),
        (204, SUCCESS, False, None),
        (299, SUCCESS, False, None),
        (301, PROCESS, False, None),
        (302, PROCESS, False, None),
        (304, PROCESS, False, None),
        (400, CONFIG, False, Severity.ERROR),
        (401, CONFIG, False, Severity.ERROR),
        (403, CONFIG, False, Severity.ERROR),
        (404, CONFIG, False, Severity.ERROR),
        (408, PROCESS, True, None),
        (410, CONFIG, False, Severity.ERROR),
        (425, PROCESS, True, None),
        (429, PROCESS, False, None),
        (499, CONFIG, False, Severity.ERROR),
        (500, PROCESS, True, None),
        (501, CONFIG, False, Severity.CRITICAL),
        (502, PROCESS, True, None),
        (503, PROCESS, True, None),
        (504, PROCESS, True, None),
        (599, PROCESS, True, None),
        (199, PROCESS, False, None),
        (999, PROCESS, True, None),
    ],
)
def test_a_status_alone(status: int, result: MediationResult, retried_at_once: bool, severity: Severity | None) -> None:
    outcome = answered(status)
    assert outcome.result is result
    assert is_retryable(outcome.error) is retried_at_once
    assert severity_of(outcome) is severity
    assert outcome.status == status


@pytest.mark.parametrize(
    ("status", "result"),
    [(400, PROCESS), (404, PROCESS), (410, PROCESS), (408, PROCESS), (429, PROCESS), (501, CONFIG), (200, SUCCESS)],
)
def test_with_client_errors_retried_no_4xx_removes_a_message(status: int, result: MediationResult) -> None:
    outcome = outcome_of(status, None, b"", NOW_MS, ClientErrors.RETRY)
    assert outcome.result is result


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"ack":true}',
        b'{"ack": true, "delaySeconds": 60}',
        b"{}",
        b'{"ack":null}',
        b'{"ack":"false"}',
        b'{"ack":0}',
        b'{"ack":[false]}',
        b'{"Ack":false}',
        b'{"other":false}',
        b'{"nested":{"ack":false}}',
        b'[{"ack":false}]',
        b"false",
        b'{"ack":false',
        b"<html>false</html>",
        b'\xff\xfe{"ack":false}',
        b'{"ack":false} and more',
        b'{"ack":false,"ack":true}',
        b'{"ack":' + b"[" * 100_000 + b"false",
    ],
)
def test_any_other_body_of_a_2xx_is_a_success(body: bytes) -> None:
    assert answered(200, body).result is SUCCESS
    assert answered(202, body) == MediationOutcome(SUCCESS, status=202)


@pytest.mark.parametrize(
    ("delay", "delay_s", "effective_s"),
    [
        ("", None, 30),
        (',"delaySeconds":60', 60, 60),
        (',"delaySeconds":1', 1, 1),
        (',"delaySeconds":0', None, 30),
        (',"delaySeconds":-5', 1, 1),
        (',"delaySeconds":2.1', 3, 3),
        (',"delaySeconds":43200', 43_200, 43_200),
        (',"delaySeconds":43201', 43_200, 43_200),
        (',"delaySeconds":' + "9" * 300, 43_200, 43_200),
        (',"delaySeconds":-1e300', 1, 1),
        (',"delaySeconds":null', None, 30),
        (',"delaySeconds":"60"', None, 30),
        (',"delaySeconds":true', None, 30),
        (',"delaySeconds":{"a":1}', None, 30),
        (',"delaySeconds":[1,2]', None, 30),
        (',"delaySeconds":10,"delaySeconds":20', 20, 20),
    ],
)
def test_ack_false_defers_by_the_delay_it_names(delay: str, delay_s: int | None, effective_s: int) -> None:
    outcome = answered(200, b'{"ack":false' + delay.encode() + b"}")
    assert outcome == MediationOutcome(PROCESS, delay_s, Deferred(), 200)
    assert outcome.effective_delay_s == effective_s
    assert not is_retryable(outcome.error)
    assert severity_of(outcome) is None


@pytest.mark.parametrize("number", ["1e400", "-1e400", "9" * 5000, "1" + "0" * 400])
def test_a_number_that_no_type_holds_does_not_hide_the_ack_false_beside_it(number: str) -> None:
    outcome = answered(200, b'{"delaySeconds":' + number.encode() + b',"ack":false}')
    assert (outcome.result, outcome.error) == (PROCESS, Deferred())
    assert 1 <= outcome.effective_delay_s <= MAX_DELAY_S


def test_ack_false_is_found_under_an_escaped_key() -> None:
    assert answered(200, b'{"\\u0061ck": false}').error == Deferred()


def test_ack_false_says_nothing_in_an_error() -> None:
    assert answered(500, b'{"ack":false,"delaySeconds":5}').delay_s is None
    assert answered(404, b'{"ack":false}').result is CONFIG


@pytest.mark.parametrize(
    ("header", "asked_s", "delay_s"),
    [
        (None, None, 30),
        ("120", 120, 120),
        ("0", 1, 1),
        ("99999", 43_200, 43_200),
        ("Sun, 06 Nov 1994 08:51:37 GMT", 120, 120),
        ("soon", None, 30),
        ("-5", None, 30),
    ],
)
def test_429_waits_as_long_as_retry_after_says(header: str | None, asked_s: int | None, delay_s: int) -> None:
    outcome = answered(429, retry_after=header)
    assert outcome == MediationOutcome(PROCESS, delay_s, RateLimited(asked_s), 429)


def test_503_waits_as_long_as_retry_after_says_and_is_retried() -> None:
    outcome = answered(503, retry_after="7")
    assert outcome == MediationOutcome(PROCESS, 7, HttpError(503), 503)
    assert answered(500, retry_after="7").delay_s is None


def test_a_denied_target_is_warned_about_and_a_broken_connection_is_not() -> None:
    assert severity_of(MediationOutcome(PROCESS, error=EgressDenied("private"))) is Severity.ERROR
    assert severity_of(MediationOutcome(CONFIG, error=EgressDenied("no URL"))) is Severity.ERROR
    assert severity_of(MediationOutcome(MediationResult.ERROR_CONNECTION, error=NetworkError("reset"))) is None


FRAGMENTS = st.sampled_from([b'{"ack":false', b',"delaySeconds":', b"1e999", b"[", b"{", b"}", b'"', b"\\u", b"\x00"])


@given(
    status=st.integers(100, 999),
    retry_after=st.none() | st.text(),
    body=st.binary() | st.lists(FRAGMENTS | st.binary(max_size=3), max_size=12).map(b"".join),
    client_errors=st.sampled_from(ClientErrors),
)
def test_no_answer_whatever_raises_or_leaves_the_limits(
    status: int, retry_after: str | None, body: bytes, client_errors: ClientErrors
) -> None:
    outcome = outcome_of(status, retry_after, body, NOW_MS, client_errors)
    assert outcome.delay_s is None or 1 <= outcome.delay_s <= MAX_DELAY_S
    assert outcome.is_final == (outcome.result in (SUCCESS, CONFIG))
    assert (severity_of(outcome) is not None) == (outcome.result is CONFIG)
    assert outcome.result is not SUCCESS or 200 <= status < 300
