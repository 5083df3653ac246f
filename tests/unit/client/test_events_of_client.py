"""Events and webhooks of the client: what is published is what a subscriber reads."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client import BadSignature, Event, Webhook, verify_webhook
from penstock.client.event import MOST_BYTES_AT_ONCE, decode_event, encode_event, in_batches
from penstock.client.types import MOST_AT_ONCE, CloudEvent
from penstock.delivery.webhook.request import cloud_event
from penstock.domain.errors import InvalidArgument
from penstock.domain.signing import sign
from penstock.events.accept.cloud_event import event_of, members_of

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER_SECRET = "whsec_b2xkIHNlY3JldCBvZiBhIHN1YnNjcmliZXI="
NOW_S = 1_800_000_000
NOW_MS = NOW_S * 1000

names = st.text(st.characters(codec="ascii", min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)
whole_numbers = st.integers(-(2**53), 2**53)
json_values = st.recursive(
    st.none() | st.booleans() | whole_numbers | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=5,
)


def delivered(event: Event) -> Event:
    """The event as a subscriber reads it, after the server's own code took it in and wrote it out."""
    content = encode_event(event)
    (members,) = members_of(content)
    taken = event_of(msgspec.json.decode(content, type=CloudEvent), members, "0HZXEQ5Y8JY5Z", NOW_MS)
    return decode_event(cloud_event(taken))


@given(data=json_values, key=st.none() | names, subject=st.none() | names, tenant=st.none() | names)
def test_a_subscriber_reads_the_event_that_was_published(
    data: Any, key: str | None, subject: str | None, tenant: str | None
) -> None:
    event = Event(
        type="orders:placed",
        data=data,
        key=key,
        subject=subject,
        tenant=tenant,
        time=datetime(2026, 11, 16, tzinfo=UTC),
        attributes={"region": "eu"},
    )
    assert delivered(event) == event


@given(st.binary(min_size=1))
def test_bytes_arrive_as_they_were(data: bytes) -> None:
    assert delivered(Event(type="t", data=data, content_type="image/png")).data == data


def test_a_text_arrives_as_a_text() -> None:
    event = Event(type="t", data='"quoted"', content_type="text/plain")
    assert delivered(event) == event


def test_an_attribute_cannot_pass_for_a_member_of_the_event() -> None:
    told = json.loads(encode_event(Event(type="orders:placed", id="1", attributes={"id": "2", "type": "other"})))
    assert (told["id"], told["type"]) == ("1", "orders:placed")


def test_every_event_has_an_id_of_its_own() -> None:
    assert len({Event(type="t").id for _ in range(100)}) == 100


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"id":1}', b'{"id":"1","source":"/","type":"t","data_base64":"?"}']
)
def test_what_is_no_event_is_told(body: bytes) -> None:
    with pytest.raises(InvalidArgument, match="not an event"):
        decode_event(body)


def test_events_go_in_as_few_requests_as_the_api_takes() -> None:
    small = [Event(type="t", id=str(number)) for number in range(MOST_AT_ONCE + 1)]
    sizes = [len(json.loads(body)) for body in in_batches(small)]
    assert sizes == [MOST_AT_ONCE, 1]

    large = [Event(type="t", data="x" * (MOST_BYTES_AT_ONCE // 2)) for _ in range(3)]
    assert [len(json.loads(body)) for body in in_batches(large)] == [1, 1, 1]
    assert list(in_batches([])) == []


# Webhooks


def signed(body: bytes, *secrets: str) -> dict[str, str]:
    made = sign(secrets, "job-1", NOW_S, body)
    return {"Webhook-Id": made.message_id, "Webhook-Timestamp": made.timestamp, "Webhook-Signature": made.signatures}


def test_a_genuine_webhook_is_read() -> None:
    body = encode_event(Event(type="orders:placed", key="order-1", data={"total": 7}))
    webhook = verify_webhook(signed(body, SECRET), body, SECRET, NOW_MS)
    assert webhook == Webhook("job-1", datetime.fromtimestamp(NOW_S, UTC), body)
    assert (webhook.sent_at.timestamp(), webhook.event.key, webhook.event.data) == (NOW_S, "order-1", {"total": 7})


def test_either_secret_is_enough_while_one_replaces_the_other() -> None:
    assert verify_webhook(signed(b"{}", SECRET, OTHER_SECRET), b"{}", [OTHER_SECRET], NOW_MS).id == "job-1"
    assert verify_webhook(signed(b"{}", SECRET), b"{}", [OTHER_SECRET, SECRET], NOW_MS).id == "job-1"


@pytest.mark.parametrize(
    ("body", "secret", "now_ms"),
    [(b"{ }", SECRET, NOW_MS), (b"{}", OTHER_SECRET, NOW_MS), (b"{}", SECRET, NOW_MS + 301_000)],
    ids=["changed", "other secret", "too old"],
)
def test_a_webhook_that_is_not_genuine_is_refused_without_telling_the_secret(
    body: bytes, secret: str, now_ms: int
) -> None:
    with pytest.raises(BadSignature, match="check the secret and the clock") as refused:
        verify_webhook(signed(b"{}", SECRET), body, secret, now_ms)
    assert "whsec_" not in refused.value.message


@pytest.mark.parametrize("missing", ["Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"])
def test_a_request_without_a_signature_is_refused_by_name(missing: str) -> None:
    headers = {name: value for name, value in signed(b"{}", SECRET).items() if name != missing}
    with pytest.raises(BadSignature, match=f"no header {missing.lower()}"):
        verify_webhook(headers, b"{}", SECRET, NOW_MS)


def test_without_a_time_the_clock_of_the_machine_counts() -> None:
    with pytest.raises(BadSignature):
        verify_webhook(signed(b"{}", SECRET), b"{}", SECRET)
