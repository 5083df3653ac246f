"""Streaming pull with Google's subscriber client."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from google.api_core.exceptions import FailedPrecondition, InvalidArgument, NotFound, ServiceUnavailable
from google.cloud.pubsub_v1.subscriber.exceptions import (  # type: ignore[import-untyped]
    AcknowledgeError,
    AcknowledgeStatus,
)
from google.cloud.pubsub_v1.types import FlowControl  # type: ignore[import-untyped]

from tests.protocol.pubsub_rig import Rig, bodies
from tests.rigs.penstock_process import wait_until
from tests.services.pubsub_server import PubsubServer, clients_of

pytest_plugins = ["tests.protocol.pubsub_fixtures"]


@contextmanager
def streaming(rig: Rig, subscription: str, callback: Callable[[Any], None], **options: Any) -> Iterator[Any]:
    """A streaming pull that is cancelled on the way out."""
    pulling = rig.subscriber.subscribe(subscription, callback=callback, **options)
    try:
        yield pulling
    finally:
        pulling.cancel()
        pulling.result(timeout=60)


def test_messages_stream_to_the_callback_and_acked_ones_are_gone(rig: Rig) -> None:
    topic = rig.topic()
    subscription = rig.subscription(topic)
    got: list[str] = []

    def take(message: Any) -> None:
        got.append(message.data.decode())
        message.ack()

    with streaming(rig, subscription, take):
        sent = [str(number) for number in range(500)]
        rig.publish(topic, *sent)
        wait_until(lambda: len(got) >= 500)
        wait_until(lambda: rig.is_empty(subscription))

    assert sorted(got) == sorted(sent)


def test_keys_keep_their_order_while_some_messages_are_nacked(rig: Rig) -> None:
    topic = rig.topic()
    subscription = rig.subscription(topic, enable_message_ordering=True)
    seen: dict[str, list[str]] = defaultdict(list)
    refused: set[str] = set()
    lock = threading.Lock()

    def take(message: Any) -> None:
        body = message.data.decode()
        with lock:
            if body.endswith("3") and body not in refused:
                refused.add(body)
                message.nack()
                return
            seen[message.ordering_key].append(body)
        message.ack()

    with streaming(rig, subscription, take):
        for key in "abc":
            rig.publish(topic, *(f"{key}{number}" for number in range(10)), key=key)
        wait_until(lambda: sum(map(len, seen.values())) >= 30)

    assert refused == {"a3", "b3", "c3"}
    assert seen == {key: [f"{key}{number}" for number in range(10)] for key in "abc"}


def test_no_more_is_sent_than_the_client_asked_for(rig: Rig) -> None:
    topic = rig.topic()
    subscription = rig.subscription(topic)
    held: list[Any] = []

    with streaming(rig, subscription, held.append, flow_control=FlowControl(max_messages=5)):
        rig.publish(topic, *map(str, range(20)))
        wait_until(lambda: len(held) == 5)
        # What the stream was not sent, another caller can have.
        others = rig.pull(subscription, 15)
        assert len(held) == 5
        assert sorted(bodies(others) + [message.data.decode() for message in held]) == sorted(map(str, range(20)))
        for message in held[:5]:
            message.ack()
        rig.publish(topic, "more")
        wait_until(lambda: held[-1].data == b"more")
        held[-1].ack()
        wait_until(lambda: rig.is_empty(subscription))


def test_a_stream_that_goes_away_keeps_its_leases_until_their_deadline(memory_rig: Rig) -> None:
    topic = memory_rig.topic()
    subscription = memory_rig.subscription(topic)
    held: list[Any] = []
    with streaming(memory_rig, subscription, held.append):
        memory_rig.publish(topic, "held")
        wait_until(lambda: held)

    assert memory_rig.is_empty(subscription)


def test_a_stream_ends_when_its_subscription_goes_away(memory_rig: Rig) -> None:
    topic = memory_rig.topic()
    deleted, detached = memory_rig.subscription(topic), memory_rig.subscription(topic)
    first = memory_rig.subscriber.subscribe(deleted, callback=lambda message: message.ack())
    second = memory_rig.subscriber.subscribe(detached, callback=lambda message: message.ack())
    memory_rig.publish(topic, "both are open")
    wait_until(lambda: memory_rig.is_empty(deleted) and memory_rig.is_empty(detached))

    memory_rig.subscriber.delete_subscription(subscription=deleted)
    memory_rig.publisher.detach_subscription(request={"subscription": detached})

    with pytest.raises(NotFound, match="Subscription not found"):
        first.result(timeout=60)
    with pytest.raises(FailedPrecondition, match="detached"):
        second.result(timeout=60)


def test_a_stream_of_nothing_is_refused(memory_rig: Rig) -> None:
    def requests(**fields: Any) -> Iterator[dict[str, Any]]:
        yield fields

    name = memory_rig.name("subscriptions")
    with pytest.raises(NotFound):
        list(memory_rig.subscriber.streaming_pull(requests(subscription=name, stream_ack_deadline_seconds=10)))
    subscription = memory_rig.subscription(memory_rig.topic())
    with pytest.raises(InvalidArgument, match="between 10 and 600, got 9"):
        list(memory_rig.subscriber.streaming_pull(requests(subscription=subscription, stream_ack_deadline_seconds=9)))


def test_acks_and_deadlines_on_the_stream_take_effect(rig: Rig) -> None:
    topic = rig.topic()
    subscription = rig.subscription(topic)
    rig.publish(topic, "acked")
    answered = threading.Event()
    to_say: list[dict[str, Any]] = []

    def requests() -> Iterator[dict[str, Any]]:
        yield {"subscription": subscription, "stream_ack_deadline_seconds": 10}
        answered.wait(60)
        yield to_say.pop()

    responses = rig.subscriber.streaming_pull(requests())
    first = next(iter(responses)).received_messages
    rig.publish(topic, "nacked")
    second = next(iter(responses)).received_messages
    to_say.append(
        {
            "ack_ids": [first[0].ack_id],
            "modify_deadline_ack_ids": [second[0].ack_id],
            "modify_deadline_seconds": [0],
        }
    )
    answered.set()
    # The requests have ended, so the server ends the stream; what it sent again before that is not waited for.
    again = [message for response in responses for message in response.received_messages]

    if not again:
        again = rig.pull(subscription, 1)
    assert bodies(first) == ["acked"]
    assert bodies(again) == bodies(second) == ["nacked"]


def test_exactly_once_confirms_each_ack(rig: Rig) -> None:
    topic = rig.topic()
    subscription = rig.subscription(topic, enable_exactly_once_delivery=True)
    outcomes: list[Any] = []

    def take(message: Any) -> None:
        outcomes.append(message.ack_with_response())

    with streaming(rig, subscription, take):
        rig.publish(topic, *map(str, range(20)))
        wait_until(lambda: len(outcomes) >= 20)
        assert {future.result(timeout=60) for future in outcomes} == {AcknowledgeStatus.SUCCESS}
    assert rig.is_empty(subscription)


def test_exactly_once_tells_of_an_ack_that_came_too_late(rig: Rig) -> None:
    topic = rig.topic()
    subscription = rig.subscription(topic, enable_exactly_once_delivery=True)
    held: list[Any] = []

    with streaming(rig, subscription, held.append):
        rig.publish(topic, "late")
        wait_until(lambda: held)
        rig.subscriber.seek(request={"subscription": subscription, "time": {"seconds": 4_000_000_000}})
        with pytest.raises(AcknowledgeError) as failure:
            held[0].ack_with_response().result(timeout=60)

    assert failure.value.error_code is AcknowledgeStatus.INVALID_ACK_ID
    with pytest.raises(InvalidArgument, match="not current"):
        rig.subscriber.acknowledge(subscription=subscription, ack_ids=["never given"])


def test_a_stop_tells_streams_to_come_again_and_answers_waiting_pulls(own_pubsub: PubsubServer) -> None:
    with clients_of(own_pubsub) as clients, ThreadPoolExecutor() as threads:
        topic, subscription = "projects/test/topics/stop", "projects/test/subscriptions/stop"
        clients.publisher.create_topic(name=topic)
        clients.subscriber.create_subscription(name=subscription, topic=topic)
        clients.publisher.publish(topic, b"held").result(timeout=60)
        ended = threading.Event()

        def requests() -> Iterator[dict[str, Any]]:
            yield {"subscription": subscription, "stream_ack_deadline_seconds": 10}
            ended.wait(60)

        responses = clients.subscriber.streaming_pull(requests())
        assert len(next(iter(responses)).received_messages) == 1
        pulling = threads.submit(clients.subscriber.pull, subscription=subscription, max_messages=1, retry=None)
        wait_until(lambda: 'pubsub_calls_in_progress{method="Pull"} 1.0' in own_pubsub.get("/metrics"))

        assert own_pubsub.stop() == 0

        with pytest.raises(ServiceUnavailable, match="stopping; open the stream again"):
            list(responses)
        ended.set()
        assert not pulling.result(timeout=60).received_messages


def test_probes_tell_of_open_streams(memory_rig: Rig, memory_pubsub: PubsubServer) -> None:
    subscription = memory_rig.subscription(memory_rig.topic())

    with streaming(memory_rig, subscription, lambda message: message.ack()):
        wait_until(lambda: 'pubsub_calls_in_progress{method="StreamingPull"} 1.0' in memory_pubsub.get("/metrics"))

    assert '"status": "ready"' in memory_pubsub.get("/health/ready")
    assert f'subscription="{subscription}"' in memory_pubsub.get("/metrics")
    assert 'method="CreateTopic"' in memory_pubsub.get("/metrics")
