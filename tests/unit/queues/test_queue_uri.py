"""Queue URIs: what each names, what is refused, and that no password is ever shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.queues.errors import InvalidQueueUri
from penstock.queues.open import QueueSpec, publisher_for, source_for
from penstock.queues.uri import EmbeddedUri, Login, NatsUri, QueueUri, SqsUri, StompUri, parse_uri, queue_uri

AWS = "https://sqs.eu-central-1.amazonaws.com/123456789012/orders.fifo"
OURS = "http://127.0.0.1:9324/000000000000/orders"


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        (AWS, SqsUri(AWS, "orders.fifo", "sqs.eu-central-1.amazonaws.com", 443, True, "eu-central-1")),
        (OURS, SqsUri(OURS, "orders", "127.0.0.1", 9324, False, None)),
        ("http://[::1]:9324/0/q", SqsUri("http://[::1]:9324/0/q", "q", "::1", 9324, False, None)),
        ("nats://broker:4223/EVENTS/router", NatsUri("broker", 4223, "EVENTS", "router")),
        ("nats://broker/EVENTS/router", NatsUri("broker", 4222, "EVENTS", "router")),
        ("stomp://mq:61614/queue/orders", StompUri("mq", 61614, "orders")),
        ("stomp://u:p%40ss@mq/queue/a/b", StompUri("mq", 61613, "a/b", Login("u", "p@ss"))),
        ("sqlite:///var/lib/q.db?queue=orders", EmbeddedUri("/var/lib/q.db", "orders")),
        ("sqlite:////var/lib/q.db?queue=orders", EmbeddedUri("/var/lib/q.db", "orders")),
        ("sqlite:///a%20b.db?queue=x%2Fy", EmbeddedUri("/a b.db", "x/y")),
    ],
)
def test_a_uri_names_a_queue(text: str, uri: QueueUri) -> None:
    assert parse_uri(text) == uri


@pytest.mark.parametrize(
    "text",
    [
        "",
        "orders",
        "amqp://broker/orders",
        "http://127.0.0.1:9324/",
        "http:///000000000000/orders",
        "http://user:secret-word@host/0/q",
        "http://127.0.0.1:not-a-port/0/q",
        "nats://broker/EVENTS",
        "nats:///EVENTS/router",
        "nats://broker/EVENTS/",
        "stomp://mq/topic/orders",
        "stomp://mq/queue/",
        "sqlite:///var/lib/q.db",
        "sqlite:///var/lib/q.db?queue=",
        "sqlite:///var/lib/q.db?queue=a&queue=b",
        "sqlite://host/q.db?queue=a",
        "sqlite:///?queue=a",
        "stomp://user:secret-word@mq/topic/orders",
    ],
)
def test_anything_else_is_refused_with_the_forms_there_are(text: str) -> None:
    with pytest.raises(InvalidQueueUri, match="sqlite:///path") as refusal:
        parse_uri(text)
    assert "secret-word" not in str(refusal.value)


def test_an_override_says_where_the_queue_of_a_url_is_asked() -> None:
    uri = parse_uri(AWS, "http://localhost:4566")
    assert uri == SqsUri(AWS, "orders.fifo", "localhost", 4566, False, "eu-central-1")


def test_an_override_that_is_no_url_is_refused_by_name() -> None:
    with pytest.raises(InvalidQueueUri, match="SQS_ENDPOINT_OVERRIDE is 'localhost:4566'"):
        parse_uri(AWS, "localhost:4566")


def test_the_override_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQS_ENDPOINT_OVERRIDE", "http://127.0.0.1:1")
    uri = queue_uri(AWS)
    assert isinstance(uri, SqsUri)
    assert (uri.host, uri.port) == ("127.0.0.1", 1)


def test_only_names_with_the_suffix_are_fifo() -> None:
    assert [uri.fifo for uri in map(parse_uri, (AWS, OURS)) if isinstance(uri, SqsUri)] == [True, False]


@pytest.mark.parametrize("text", ["nats://u:secret-word@h/S/c", "stomp://u:secret-word@h/queue/q"])
def test_what_is_shown_of_a_uri_holds_no_password(text: str) -> None:
    uri = parse_uri(text)
    assert "secret-word" not in uri.shown + repr(uri)
    assert parse_uri(uri.shown).shown == uri.shown


@given(st.text(min_size=1), st.text(min_size=1))
def test_an_embedded_queue_s_uri_names_it_whatever_its_characters(path: str, queue: str) -> None:
    uri = EmbeddedUri("/" + path.lstrip("/") + "x", queue)
    if any("\ud800" <= char <= "\udfff" for char in path + queue):
        return
    assert parse_uri(uri.shown) == uri


@pytest.mark.parametrize(
    ("uri", "ordered"),
    [(AWS, True), (OURS, False), ("sqlite:///q.db?queue=a", True)],
)
def test_a_source_is_made_for_a_queue(uri: str, ordered: bool) -> None:
    source = source_for(QueueSpec("orders", uri, visibility_timeout=45))
    assert (source.name, source.ordered, source.visibility_s) == ("orders", ordered, 45)
    assert source.address == parse_uri(uri).shown


def test_a_publisher_is_made_for_each_kind_of_queue() -> None:
    kinds = {type(publisher_for(uri)).__name__ for uri in (AWS, "sqlite:///q.db?queue=a")}
    assert kinds == {"SqsPublisher", "EmbeddedPublisher"}


def test_a_source_is_refused_for_an_unknown_kind() -> None:
    with pytest.raises(InvalidQueueUri):
        source_for(QueueSpec("orders", "amqp://broker/orders"))
