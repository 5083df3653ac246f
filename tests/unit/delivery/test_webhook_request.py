"""A job as the request that delivers it: body, headers, signature and trace."""

from urllib.parse import unquote

import msgspec
import pytest

from penstock.delivery.errors import Undeliverable
from penstock.delivery.webhook.request import (
    DeliveryRequest,
    checked_headers,
    cloud_event,
    delivery_request,
    percent_encoded,
)
from penstock.domain.errors import InvalidArgument
from penstock.domain.event import StoredEvent
from penstock.domain.job import DispatchJob
from penstock.domain.replay import REPLAY_HEADER, as_copy
from penstock.domain.signing import verify
from penstock.domain.subscription import Subscription
from tests.rigs.made_jobs import JOB_ID, NOW_MS, dispatch_job

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
EVENT = StoredEvent(id="0HZXEQ5Y8JY00", source="/shop", type="orders:created", received_ms=NOW_MS, external_id="e.1")
SUBSCRIPTION = Subscription(id="s", name="billing", pattern="**", target="https://a.example/", secrets=(SECRET,))


def headers_of(request: DeliveryRequest) -> dict[str, str]:
    return dict(request.head.headers)


def envelope(event: StoredEvent) -> dict[str, object]:
    decoded = msgspec.json.decode(cloud_event(event))
    assert isinstance(decoded, dict)
    return decoded


def test_an_event_is_sent_whole_and_signed_whole() -> None:
    job = dispatch_job(event_id=EVENT.id, subscription_id="s")
    request = delivery_request(job, EVENT, SUBSCRIPTION, NOW_MS)
    assert request.signature is not None
    assert request.signature.message_id == JOB_ID
    assert verify(request.signature, request.body, [SECRET], NOW_MS)
    assert msgspec.json.decode(request.body)["type"] == "orders:created"


def test_without_a_secret_there_is_an_id_and_a_time_but_no_signature() -> None:
    request = delivery_request(dispatch_job(), None, None, NOW_MS)
    assert request.signature is None
    assert headers_of(request)["webhook-id"] == JOB_ID
    assert headers_of(request)["webhook-timestamp"] == str(NOW_MS // 1000)


@pytest.mark.parametrize("secrets", [(), (SECRET,)])
def test_attempts_copies_and_copies_of_copies_have_the_webhook_id_of_the_first_job(secrets: tuple[str, ...]) -> None:
    subscription = msgspec.structs.replace(SUBSCRIPTION, secrets=secrets)

    def webhook_id(job: DispatchJob) -> str:
        request = delivery_request(job, None, subscription, NOW_MS)
        return headers_of(request)["webhook-id"] if request.signature is None else request.signature.message_id

    job = dispatch_job()
    copy = as_copy(job, "0HZXEQ5Y8JY60", 1)
    copy_of_copy = as_copy(copy, "0HZXEQ5Y8JY61", 3)
    again = dispatch_job(delivery_count=2)
    assert {webhook_id(each) for each in (job, again, copy, copy_of_copy)} == {JOB_ID}
    headers = headers_of(delivery_request(copy_of_copy, None, subscription, NOW_MS))
    assert headers["penstock-job"] == f"{JOB_ID}~0HZXEQ5Y8JY61"
    assert headers[REPLAY_HEADER] == "0HZXEQ5Y8JY61"


def test_the_key_and_the_number_of_a_job_are_the_same_for_each_attempt_and_replay() -> None:
    job = dispatch_job(event_id=EVENT.id, subscription_id="s", group="Änne 100%", key_sequence=7)
    later = msgspec.structs.replace(job, delivery_count=4)
    for each in (job, later, as_copy(later, "0HZXEQ5Y8JY60", 1)):
        headers = headers_of(delivery_request(each, EVENT, SUBSCRIPTION, NOW_MS))
        assert (headers["penstock-key"], headers["penstock-sequence"]) == ("%C3%84nne%20100%25", "7")
        assert unquote(headers["penstock-key"]) == "Änne 100%"
    without = headers_of(delivery_request(dispatch_job(), None, SUBSCRIPTION, NOW_MS))
    assert not {"penstock-key", "penstock-sequence"} & without.keys()


@pytest.mark.parametrize("text", ["a", "a b", "100%", "%41", 'say "hi"', "ü\n", "1,2;3", "\U0001f4a7"])
def test_text_survives_a_header(text: str) -> None:
    value = percent_encoded(text)
    assert all("!" <= character <= "~" for character in value)
    assert unquote(value) == text


def test_a_jobs_headers_go_before_its_subscriptions_and_ours_before_both() -> None:
    subscription = msgspec.structs.replace(SUBSCRIPTION, headers={"x-a": "subscription", "x-b": "subscription"})
    job = dispatch_job(headers={"x-a": "job", "penstock-job": "forged", "content-type": "forged"})
    headers = headers_of(delivery_request(job, None, subscription, NOW_MS))
    assert (headers["x-a"], headers["x-b"]) == ("job", "subscription")
    assert (headers["penstock-job"], headers["content-type"]) == (JOB_ID, "application/json")


def test_the_time_out_is_the_subscriptions() -> None:
    slow = msgspec.structs.replace(SUBSCRIPTION, timeout_s=77.0)
    assert delivery_request(dispatch_job(), None, slow, NOW_MS).timeout_s == 77
    assert delivery_request(dispatch_job(), None, None, NOW_MS).timeout_s == 30


@pytest.mark.parametrize(
    "job",
    [
        dispatch_job(target="ftp://orders.example"),
        dispatch_job(target="https://user:pw@orders.example"),
        dispatch_job(headers={"x-a": "two\r\nlines"}),
        dispatch_job(headers={"x a": "space"}),
    ],
)
def test_what_cannot_stand_in_a_request_is_undeliverable(job: DispatchJob) -> None:
    with pytest.raises(Undeliverable):
        delivery_request(job, None, None, NOW_MS)


@pytest.mark.parametrize(
    ("content_type", "data", "told"),
    [
        ("application/json", b'{"a": [1]}', {"data": {"a": [1]}}),
        ("application/vnd.shop+json; charset=utf-8", b"7", {"data": 7}),
        ("application/json", b"{broken", {"data_base64": "e2Jyb2tlbg=="}),
        ("text/plain", "grün".encode(), {"data": "grün"}),
        ("text/plain", b"\xff", {"data_base64": "/w=="}),
        ("image/png", b"\x89PNG", {"data_base64": "iVBORw=="}),
    ],
)
def test_data_has_the_form_that_cloud_events_has_for_its_type(
    content_type: str, data: bytes, told: dict[str, object]
) -> None:
    sent = envelope(msgspec.structs.replace(EVENT, content_type=content_type, data=data))
    assert {name: value for name, value in sent.items() if name.startswith("data")} == {
        "datacontenttype": content_type,
        **told,
    }


def test_an_event_without_data_and_options_has_what_cloud_events_requires() -> None:
    assert envelope(EVENT) == {"specversion": "1.0", "id": "e.1", "source": "/shop", "type": "orders:created"}


def test_an_extension_cannot_pass_for_something_else() -> None:
    forged = msgspec.structs.replace(EVENT, attributes={"type": "orders:paid", "specversion": "9"})
    assert envelope(forged)["type"] == "orders:created"
    assert envelope(forged)["specversion"] == "1.0"


# Headers that people ask for


def test_names_of_headers_are_kept_in_lower_case() -> None:
    assert checked_headers({"X-Team": "billing"}) == {"x-team": "billing"}


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "other"},
        {"Content-Length": "3"},
        {"webhook-signature": "v1,forged"},
        {"Penstock-Job": "forged"},
        {"": "empty"},
        {"x y": "space"},
        {"x-a": "two\nlines"},
        {"x-a": "ümlaut"},
        {"x-a": "long" * 2000},
        {f"x-{number}": "many" for number in range(51)},
    ],
)
def test_headers_that_are_ours_or_cannot_be_sent_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument):
        checked_headers(headers)


def test_each_delivery_of_a_subscription_has_headers_of_its_own_once() -> None:
    subscription = msgspec.structs.replace(SUBSCRIPTION, headers={"x-a": "1", "traceparent": "forged"})
    jobs = [dispatch_job(id=f"0HZXEQ5Y8JY0{number}", delivery_count=number) for number in (1, 2)]
    requests = [delivery_request(job, EVENT, subscription, NOW_MS) for job in jobs]
    for number, request in zip((1, 2), requests, strict=True):
        names = [name for name, _ in request.head.headers]
        assert len(names) == len(set(names))
        assert headers_of(request)["penstock-job"] == f"0HZXEQ5Y8JY0{number}"
        assert headers_of(request)["penstock-attempt"] == str(number)
        assert headers_of(request)["x-a"] == "1"
        raw = request.head.http1(request.body, request.signature)
        head, _, body = raw.partition(b"\r\n\r\n")
        assert body == request.body
        for name, value in request.head.headers:
            assert f"\r\n{name}: {value}\r\n".lower().encode() in head.lower() + b"\r\n"
    assert headers_of(requests[0])["traceparent"] != headers_of(requests[1])["traceparent"] != "forged"


def test_headers_of_a_changed_subscription_take_effect_immediately() -> None:
    changed = msgspec.structs.replace(SUBSCRIPTION, headers={"x-a": "2"})
    assert "x-a" not in headers_of(delivery_request(dispatch_job(), EVENT, SUBSCRIPTION, NOW_MS))
    assert headers_of(delivery_request(dispatch_job(), EVENT, changed, NOW_MS))["x-a"] == "2"
