"""What event a Pub/Sub message becomes."""

from datetime import UTC, datetime
from typing import Any

import pytest
from google.pubsub_v1 import types

from penstock.domain.event import StoredEvent
from penstock.events.accept.topic_feeds import event_of_message, subscription_of
from penstock.events.store import TopicFeed

TOPIC = "projects/shop/topics/orders"
FEED = TopicFeed(topic=TOPIC, type="orders", type_attribute="eventType", tenant="acme")


def event_of(**fields: Any) -> StoredEvent:
    sent = datetime.fromtimestamp(1_790_000_000.123, UTC)
    return event_of_message(FEED, types.PubsubMessage(message_id="m1", publish_time=sent, **fields), "E1")


def test_an_event_has_the_id_the_key_the_data_and_the_time_of_its_message() -> None:
    event = event_of(data=b'{"total": 5}', ordering_key="customer-1", attributes={"eventType": "orders:placed"})

    assert (event.id, event.external_id, event.group, event.tenant) == ("E1", "m1", "customer-1", "acme")
    assert (event.source, event.type) == (f"//pubsub.googleapis.com/{TOPIC}", "orders:placed")
    assert (event.data, event.content_type) == (b'{"total": 5}', "application/json")
    assert (event.received_ms, event.time_ms) == (1_790_000_000_123, 1_790_000_000_123)


@pytest.mark.parametrize(
    "given", [{}, {"eventType": ""}, {"eventType": "orders:*"}, {"eventType": "a\nb"}, {"eventType": "x" * 257}]
)
def test_without_a_type_that_events_can_have_it_is_that_of_the_feed(given: dict[str, str]) -> None:
    assert event_of(data=b"1", attributes=given).type == "orders"


@pytest.mark.parametrize(
    ("data", "attributes", "content_type"),
    [
        (b"7", {}, "application/json"),
        (b"", {"a": "b"}, "application/json"),
        (b"plain text", {}, "application/octet-stream"),
        (b"\xff\x00", {}, "application/octet-stream"),
        (b"plain text", {"content-type": "text/plain"}, "text/plain"),
        (b"x", {"datacontenttype": "text/csv"}, "text/csv"),
        (b"7", {"content-type": "text\n"}, "application/json"),
    ],
)
def test_the_content_type(data: bytes, attributes: dict[str, str], content_type: str) -> None:
    assert event_of(data=data, attributes=attributes).content_type == content_type


def test_attributes_get_names_that_events_allow_and_none_replaces_a_member() -> None:
    given = {"Region-Code": "eu", "id": "fake", "partitionkey": "fake", "...": "x", "long": "y" * 5000, "nul": "a\0b"}

    attributes = event_of(data=b"1", attributes=given).attributes

    assert attributes == {"regioncode": "eu", "long": "y" * 4096, "nul": "a\N{REPLACEMENT CHARACTER}b"}


def test_keys_that_the_api_cannot_show_stay_different() -> None:
    keys = ["", "a\0b", "a\x01b", "k" * 256, "k" * 257, "k" * 258]

    groups = [event_of(data=b"1", ordering_key=key).group for key in keys]

    assert groups[0] is None
    assert groups[3] == "k" * 256
    assert len(set(groups)) == len(keys)
    assert all(group is None or (len(group) <= 256 and group.isprintable()) for group in groups)


def test_a_feed_has_a_subscription_of_its_own() -> None:
    assert subscription_of(TOPIC) == "projects/shop/subscriptions/penstock-feed-orders"
