"""Seeking in time and to snapshots, and what is retained for it, with Google's client."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.api_core.exceptions import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound

from tests.protocol.pubsub_rig import Rig, bodies

pytest_plugins = ["tests.protocol.pubsub_fixtures"]


def seek(rig: Rig, subscription: str, **target: Any) -> None:
    rig.subscriber.seek(request={"subscription": subscription, **target})


def snapshot_of(rig: Rig, subscription: str) -> str:
    name = rig.name("snapshots")
    rig.subscriber.create_snapshot(name=name, subscription=subscription)
    return name


def long_ago() -> datetime:
    return datetime.now(UTC) - timedelta(hours=1)


def test_seeking_past_everything_discards_it(rig: Rig) -> None:
    topic = rig.topic()
    subscription = rig.subscription(topic)
    rig.publish(topic, "waiting", "leased")
    rig.pull(subscription, 1, ack=False)

    seek(rig, subscription, time=datetime.now(UTC))
    rig.publish(topic, "new")

    assert bodies(rig.pull(subscription, 1)) == ["new"]
    assert rig.is_empty(subscription)


def test_acked_messages_come_back_when_they_are_retained(rig: Rig) -> None:
    topic = rig.topic()
    retaining = rig.subscription(topic, retain_acked_messages=True)
    plain = rig.subscription(topic)
    rig.publish(topic, "old")
    middle = rig.pull(retaining, 1)[0].message.publish_time
    rig.pull(plain, 1)
    rig.publish(topic, "acked", "waiting")
    rig.pull(plain, 1)
    rig.pull(retaining, 1)

    seek(rig, retaining, time=long_ago())
    assert sorted(bodies(rig.pull(retaining, 3))) == ["acked", "old", "waiting"]
    seek(rig, retaining, time=middle + timedelta(milliseconds=1))
    assert sorted(bodies(rig.pull(retaining, 2))) == ["acked", "waiting"]
    assert rig.is_empty(retaining)
    seek(rig, plain, time=long_ago())
    assert len(rig.pull(plain, 1)) == 1
    assert rig.is_empty(plain)


def test_retention_can_be_switched_on_and_off(rig: Rig) -> None:
    topic = rig.topic()
    subscription = rig.subscription(topic)

    def retain(wanted: bool) -> None:
        rig.subscriber.update_subscription(
            request={
                "subscription": {"name": subscription, "retain_acked_messages": wanted},
                "update_mask": {"paths": ["retain_acked_messages"]},
            }
        )

    rig.publish(topic, "waiting")
    retain(True)
    rig.publish(topic, "acked")
    rig.pull(subscription, 2)
    seek(rig, subscription, time=long_ago())
    assert sorted(bodies(rig.pull(subscription, 2))) == ["acked", "waiting"]
    retain(False)
    seek(rig, subscription, time=long_ago())
    assert rig.is_empty(subscription)


def test_a_topic_that_retains_gives_a_later_subscription_its_past(rig: Rig) -> None:
    topic = rig.topic(message_retention_duration={"seconds": 3600})
    rig.publish(topic, "before", wanted="yes")
    rig.publish(topic, "unwanted", wanted="no")
    subscription = rig.subscription(topic, filter='attributes.wanted = "yes"')
    shown = rig.subscriber.get_subscription(subscription=subscription)

    seek(rig, subscription, time=long_ago())
    rig.publish(topic, "after", wanted="yes")

    assert shown.topic_message_retention_duration == timedelta(hours=1)
    assert bodies(rig.pull(subscription, 2)) == ["before", "after"]
    assert rig.is_empty(subscription)


def test_a_snapshot_brings_back_what_was_not_acked_and_what_came_since(rig: Rig) -> None:
    topic = rig.topic()
    subscription = rig.subscription(topic, enable_message_ordering=True)
    rig.publish(topic, "acked", "first", "second", key="k")
    rig.pull(subscription, 1)
    snapshot = snapshot_of(rig, subscription)
    rig.publish(topic, "third", key="k")
    rig.pull(subscription, 3)
    assert rig.is_empty(subscription)

    for _ in range(2):
        seek(rig, subscription, snapshot=snapshot)
        assert bodies(rig.pull(subscription, 3)) == ["first", "second", "third"]
        assert rig.is_empty(subscription)


def test_a_snapshot_serves_another_subscription_of_its_topic(rig: Rig) -> None:
    topic = rig.topic()
    first, second = rig.subscription(topic), rig.subscription(topic, filter="attributes:wanted")
    rig.publish(topic, "plain")
    rig.publish(topic, "wanted", wanted="yes")
    snapshot = snapshot_of(rig, first)
    rig.pull(second, 1)

    seek(rig, second, snapshot=snapshot)

    assert bodies(rig.pull(second, 1)) == ["wanted"]
    assert rig.is_empty(second)


def test_snapshots_are_shown_listed_changed_and_deleted(rig: Rig) -> None:
    topic = rig.topic()
    subscription = rig.subscription(topic)
    snapshot = snapshot_of(rig, subscription)
    subscriber = rig.subscriber

    shown = subscriber.get_snapshot(snapshot=snapshot)
    assert shown.topic == topic
    assert timedelta(days=6) < shown.expire_time - datetime.now(UTC) <= timedelta(days=7)
    assert list(rig.publisher.list_topic_snapshots(topic=topic)) == [snapshot]
    assert snapshot in [each.name for each in subscriber.list_snapshots(project="projects/test")]
    sooner = datetime.now(UTC) + timedelta(hours=2)
    changed = subscriber.update_snapshot(
        request={
            "snapshot": {"name": snapshot, "expire_time": sooner, "labels": {"a": "b"}},
            "update_mask": {"paths": ["expire_time", "labels"]},
        }
    )
    assert abs(changed.expire_time - sooner) < timedelta(seconds=1)
    assert changed.labels == {"a": "b"}
    subscriber.delete_snapshot(snapshot=snapshot)
    with pytest.raises(NotFound, match=f"Snapshot not found: {snapshot}"):
        subscriber.get_snapshot(snapshot=snapshot)
    with pytest.raises(NotFound):
        seek(rig, subscription, snapshot=snapshot)


def test_wrong_seeks_and_snapshots_are_refused(memory_rig: Rig) -> None:
    subscription, other = (memory_rig.subscription(memory_rig.topic()) for _ in range(2))
    snapshot = snapshot_of(memory_rig, subscription)

    with pytest.raises(AlreadyExists):
        memory_rig.subscriber.create_snapshot(name=snapshot, subscription=subscription)
    with pytest.raises(FailedPrecondition, match="not of the topic"):
        seek(memory_rig, other, snapshot=snapshot)
    with pytest.raises(InvalidArgument, match="a time or a snapshot"):
        seek(memory_rig, subscription)
    with pytest.raises(NotFound):
        seek(memory_rig, memory_rig.name("subscriptions"), time=long_ago())
    memory_rig.publisher.detach_subscription(request={"subscription": subscription})
    with pytest.raises(FailedPrecondition, match="detached"):
        seek(memory_rig, subscription, time=long_ago())


def test_all_of_it_works_on_postgresql(postgres_rig: Rig) -> None:
    rig = postgres_rig
    topic = rig.topic()
    subscription = rig.subscription(topic, enable_message_ordering=True, retain_acked_messages=True)
    rig.publish(topic, "first", "second", key="k")
    snapshot = snapshot_of(rig, subscription)

    for target in ({"snapshot": snapshot}, {"time": long_ago()}):
        assert bodies(rig.pull(subscription, 2)) == ["first", "second"]
        seek(rig, subscription, **target)
    assert bodies(rig.pull(subscription, 2)) == ["first", "second"]
