"""Topics and subscriptions: made, shown, listed, changed and removed with Google's client."""

from datetime import timedelta
from typing import Any

import pytest
from google.api_core.exceptions import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound
from google.iam.v1 import policy_pb2  # type: ignore[import-untyped]

from tests.protocol.pubsub_rig import Rig, bodies
from tests.services.pubsub_server import PROJECT, Clients, PubsubServer, clients_of

pytest_plugins = ["tests.protocol.pubsub_fixtures"]


def update(rig: Rig, subscription: str, **fields: Any) -> Any:
    return rig.subscriber.update_subscription(
        request={"subscription": {"name": subscription, **fields}, "update_mask": {"paths": list(fields)}}
    )


def test_a_topic_is_made_shown_changed_and_removed(rig: Rig) -> None:
    name = rig.topic(labels={"team": "billing"}, kms_key_name="a-key")
    publisher = rig.publisher

    shown = publisher.get_topic(topic=name)
    assert (shown.name, shown.labels, shown.kms_key_name) == (name, {"team": "billing"}, "a-key")
    changed = publisher.update_topic(
        request={"topic": {"name": name, "labels": {"team": "orders"}}, "update_mask": {"paths": ["labels"]}}
    )
    assert (changed.labels, changed.kms_key_name) == ({"team": "orders"}, "a-key")
    assert publisher.get_topic(topic=name) == changed
    with pytest.raises(AlreadyExists, match=name):
        publisher.create_topic(name=name)
    publisher.delete_topic(topic=name)
    with pytest.raises(NotFound):
        publisher.get_topic(topic=name)
    publisher.create_topic(name=name)
    assert publisher.get_topic(topic=name).labels == {}


def test_lists_come_by_pages(memory_rig: Rig) -> None:
    topic = memory_rig.topic()
    made = sorted(memory_rig.subscription(topic) for _ in range(5))

    pages = memory_rig.publisher.list_topic_subscriptions(request={"topic": topic, "page_size": 2}).pages

    assert [list(page.subscriptions) for page in pages] == [made[:2], made[2:4], made[4:]]
    listed = [each.name for each in memory_rig.subscriber.list_subscriptions(request={"project": PROJECT})]
    assert set(made) <= set(listed)
    assert listed == sorted(listed)
    assert topic in [each.name for each in memory_rig.publisher.list_topics(request={"project": PROJECT})]
    assert not list(memory_rig.publisher.list_topics(project="projects/another"))
    with pytest.raises(InvalidArgument, match="page_token"):
        list(memory_rig.publisher.list_topics(request={"project": PROJECT, "page_token": "made up!"}))


def test_a_subscription_is_shown_with_its_defaults(rig: Rig) -> None:
    topic = rig.topic()
    name = rig.subscription(topic)

    shown = rig.subscriber.get_subscription(subscription=name)

    assert (shown.topic, shown.ack_deadline_seconds, shown.detached) == (topic, 10, False)
    assert shown.message_retention_duration == timedelta(days=7)
    assert shown.expiration_policy.ttl == timedelta(days=31)


def test_a_subscription_is_changed_by_its_mask_only(rig: Rig) -> None:
    topic, graves = rig.topic(), rig.topic()
    name = rig.subscription(topic, labels={"a": "b"}, retry_policy={"minimum_backoff": {"seconds": 3}})

    changed = update(
        rig,
        name,
        ack_deadline_seconds=60,
        dead_letter_policy={"dead_letter_topic": graves},
        enable_exactly_once_delivery=True,
    )

    assert (changed.ack_deadline_seconds, changed.labels) == (60, {"a": "b"})
    assert changed.retry_policy.minimum_backoff == timedelta(seconds=3)
    assert changed.retry_policy.maximum_backoff == timedelta(seconds=600)
    assert (changed.dead_letter_policy.max_delivery_attempts, changed.enable_exactly_once_delivery) == (5, True)
    assert rig.subscriber.get_subscription(subscription=name) == changed
    rig.publish(topic, "still works")
    (received,) = rig.pull(name, 1)
    assert received.delivery_attempt == 1


def test_a_push_endpoint_is_kept_and_shown(rig: Rig) -> None:
    name = rig.subscription(rig.topic())

    rig.subscriber.modify_push_config(subscription=name, push_config={"push_endpoint": "https://example.com/hook"})
    assert rig.subscriber.get_subscription(subscription=name).push_config.push_endpoint == "https://example.com/hook"
    rig.subscriber.modify_push_config(subscription=name, push_config={})
    assert rig.subscriber.get_subscription(subscription=name).push_config.push_endpoint == ""
    with pytest.raises(InvalidArgument, match="http or https URL"):
        rig.subscriber.modify_push_config(subscription=name, push_config={"push_endpoint": "ftp://example.com"})


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"ack_deadline_seconds": 9}, "between 10 and 600, got 9"),
        ({"ack_deadline_seconds": 601}, "between 10 and 600, got 601"),
        ({"message_retention_duration": {"seconds": 599}}, "between 0:10:00 and 31 days"),
        ({"expiration_policy": {"ttl": {"seconds": 3600}}}, "expiration_policy.ttl"),
        ({"retry_policy": {"maximum_backoff": {"seconds": 601}}}, "retry_policy.maximum_backoff"),
        ({"retry_policy": {"minimum_backoff": {"seconds": 9}, "maximum_backoff": {"seconds": 8}}}, "not be longer"),
        ({"dead_letter_policy": {"dead_letter_topic": "nope"}}, "Invalid name 'nope'"),
        (
            {"dead_letter_policy": {"dead_letter_topic": f"{PROJECT}/topics/abc", "max_delivery_attempts": 4}},
            "5 and 100",
        ),
        ({"filter": "attributes.a = b"}, "position 15: expected 'string'"),
        ({"bigquery_config": {"table": "t"}}, "bigquery_config is not supported"),
        ({"push_config": {"push_endpoint": "nowhere"}}, "http or https URL"),
    ],
)
def test_settings_out_of_range_are_refused(memory_rig: Rig, fields: dict[str, Any], problem: str) -> None:
    name = memory_rig.name("subscriptions")

    with pytest.raises(InvalidArgument, match=problem):
        memory_rig.subscriber.create_subscription(request={"name": name, "topic": memory_rig.topic(), **fields})
    with pytest.raises(NotFound):
        memory_rig.subscriber.get_subscription(subscription=name)


@pytest.mark.parametrize(
    "name",
    ["orders", "projects/p/topics/", "projects/p/topics/ab", "projects/p/topics/1abc", "projects/p/topics/google"],
)
def test_names_have_a_grammar(memory_rig: Rig, name: str) -> None:
    with pytest.raises(InvalidArgument, match="projects/PROJECT/topics/ID"):
        memory_rig.publisher.create_topic(name=name)


def test_what_cannot_change_is_refused(memory_rig: Rig) -> None:
    name = memory_rig.subscription(memory_rig.topic(), filter="attributes:a")

    for fields in ({"filter": "attributes:b"}, {"enable_message_ordering": True}, {"topic": memory_rig.topic()}):
        with pytest.raises(InvalidArgument, match="only these can be updated"):
            update(memory_rig, name, **fields)
    with pytest.raises(InvalidArgument, match="at least one field"):
        update(memory_rig, name)


def test_a_subscription_needs_its_topics(memory_rig: Rig) -> None:
    missing = memory_rig.name("topics")
    create = memory_rig.subscriber.create_subscription

    with pytest.raises(NotFound, match=missing):
        create(request={"name": memory_rig.name("subscriptions"), "topic": missing})
    policy = {"dead_letter_topic": missing}
    with pytest.raises(NotFound, match=missing):
        create(
            request={
                "name": memory_rig.name("subscriptions"),
                "topic": memory_rig.topic(),
                "dead_letter_policy": policy,
            }
        )
    taken = memory_rig.subscription(memory_rig.topic())
    with pytest.raises(AlreadyExists):
        create(request={"name": taken, "topic": memory_rig.topic()})


def test_a_deleted_topic_leaves_its_subscriptions_detached_and_empty(rig: Rig) -> None:
    topic = rig.topic()
    subscription = rig.subscription(topic)
    rig.publish(topic, "lost with its topic")

    rig.publisher.delete_topic(topic=topic)

    shown = rig.subscriber.get_subscription(subscription=subscription)
    assert (shown.topic, shown.detached) == ("_deleted-topic_", True)
    with pytest.raises(FailedPrecondition, match="detached"):
        rig.subscriber.pull(subscription=subscription, max_messages=1)


def test_a_detached_subscription_leaves_the_others_alone(rig: Rig) -> None:
    topic = rig.topic()
    detached, attached = rig.subscription(topic), rig.subscription(topic)
    rig.publish(topic, "before")

    rig.publisher.detach_subscription(request={"subscription": detached})
    rig.publish(topic, "after")

    shown = rig.subscriber.get_subscription(subscription=detached)
    assert (shown.topic, shown.detached) == (topic, True)
    assert list(rig.publisher.list_topic_subscriptions(topic=topic)) == [attached]
    with pytest.raises(FailedPrecondition, match="detached"):
        rig.subscriber.pull(subscription=detached, max_messages=1)
    assert bodies(rig.pull(attached, 2)) == ["before", "after"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("attributes:lang", "en cn"),
        ('attributes.lang = "en"', "en"),
        ('attributes.lang != "en"', "cn none"),
        ('hasPrefix(attributes.lang, "c")', "cn"),
        ('NOT attributes:lang OR (attributes.lang = "en" AND -attributes:missing)', "en none"),
    ],
)
def test_a_filter_decides_what_a_subscription_gets(rig: Rig, text: str, wanted: str) -> None:
    topic = rig.topic()
    filtered, everything = rig.subscription(topic, filter=text), rig.subscription(topic)

    for lang in ("en", "cn"):
        rig.publish(topic, lang, lang=lang)
    rig.publish(topic, "none", other="x")

    assert sorted(bodies(rig.pull(filtered, len(wanted.split())))) == sorted(wanted.split())
    assert rig.is_empty(filtered)
    assert len(rig.pull(everything, 3)) == 3


def test_policies_are_kept_and_everybody_may_do_everything(rig: Rig) -> None:
    topic = rig.topic()
    binding = policy_pb2.Binding(role="roles/pubsub.viewer", members=["allUsers"])

    before = rig.publisher.get_iam_policy(request={"resource": topic})
    after = rig.publisher.set_iam_policy(
        request={"resource": topic, "policy": policy_pb2.Policy(bindings=[binding], etag=before.etag)}
    )

    assert rig.publisher.get_iam_policy(request={"resource": topic}) == after
    assert list(after.bindings) == [binding]
    with pytest.raises(FailedPrecondition, match="changed since it was read"):
        rig.publisher.set_iam_policy(request={"resource": topic, "policy": policy_pb2.Policy(etag=before.etag)})
    permissions = ["pubsub.topics.publish"]
    tested = rig.publisher.test_iam_permissions(request={"resource": topic, "permissions": permissions})
    assert list(tested.permissions) == permissions
    with pytest.raises(NotFound):
        rig.publisher.get_iam_policy(request={"resource": rig.name("topics")})
    rig.publisher.delete_topic(topic=topic)
    rig.publisher.create_topic(name=topic)
    assert not rig.publisher.get_iam_policy(request={"resource": topic}).bindings


def test_definitions_survive_a_restart(own_pubsub: PubsubServer) -> None:
    topic, subscription, snapshot, schema = (
        f"{PROJECT}/{kind}/kept" for kind in ("topics", "subscriptions", "snapshots", "schemas")
    )

    def everything(clients: Clients) -> list[Any]:
        return [
            clients.publisher.get_topic(topic=topic),
            clients.subscriber.get_subscription(subscription=subscription),
            clients.subscriber.get_snapshot(snapshot=snapshot),
            list(clients.schemas.list_schema_revisions(request={"name": schema, "view": "FULL"})),
            clients.publisher.get_iam_policy(request={"resource": topic}),
        ]

    with clients_of(own_pubsub) as clients:
        definition = {"type_": "AVRO", "definition": '"string"'}
        clients.schemas.create_schema(parent=PROJECT, schema=definition, schema_id="kept")
        clients.publisher.create_topic(
            request={"name": topic, "labels": {"a": "b"}, "message_retention_duration": {"seconds": 3600}}
        )
        clients.subscriber.create_subscription(
            request={"name": subscription, "topic": topic, "filter": "attributes:a", "retain_acked_messages": True}
        )
        clients.publisher.publish(topic, b"wanted", a="b").result(timeout=60)
        clients.publisher.publish(topic, b"unwanted").result(timeout=60)
        clients.subscriber.create_snapshot(name=snapshot, subscription=subscription)
        clients.publisher.set_iam_policy(
            request={"resource": topic, "policy": policy_pb2.Policy(bindings=[policy_pb2.Binding(role="r")])}
        )
        received = clients.subscriber.pull(subscription=subscription, max_messages=10).received_messages
        clients.subscriber.acknowledge(subscription=subscription, ack_ids=[message.ack_id for message in received])
        before = everything(clients)

    own_pubsub.stop()
    own_pubsub.start()

    with clients_of(own_pubsub) as clients:
        assert everything(clients) == before
        for target in ({"snapshot": snapshot}, {"time": {"seconds": 1}}):
            clients.subscriber.seek(request={"subscription": subscription, **target})
            again = clients.subscriber.pull(subscription=subscription, max_messages=10).received_messages
            assert bodies(again) == ["wanted"]
