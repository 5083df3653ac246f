"""Topics: their valid settings, and the broker's copy of them."""

from google.pubsub_v1 import types

from penstock.broker import AsyncBroker, TopicNotFound
from penstock.pubsub import wire
from penstock.pubsub.errors import InvalidRequest
from penstock.pubsub.fields import checked_seconds
from penstock.pubsub.limits import MAX_RETENTION_S, MIN_RETENTION_S
from penstock.pubsub.wire import decode, has

MUTABLE = frozenset(
    {"labels", "message_storage_policy", "kms_key_name", "schema_settings", "message_retention_duration"}
)


def check_topic(topic: types.Topic) -> None:
    """Raise InvalidRequest for settings that are out of range or not supported."""
    if has(topic, "ingestion_data_source_settings"):
        raise InvalidRequest("ingestion_data_source_settings is not supported: publish to the topic instead")
    if topic.message_transforms:
        raise InvalidRequest("message_transforms is not supported: transform before publishing")
    retention_s(topic)


def retention_s(topic: types.Topic) -> int:
    """Return how long a topic retains messages, in seconds; 0 for not at all."""
    if not has(topic, "message_retention_duration"):
        return 0
    kept_s = checked_seconds(
        "message_retention_duration", topic.message_retention_duration, MIN_RETENTION_S, MAX_RETENTION_S
    )
    return int(kept_s)


def stored_topic(broker: AsyncBroker, name: str) -> types.Topic:
    """Return a topic as it was created or last updated."""
    metadata = broker.rules.topic(name)
    if metadata is None:
        raise TopicNotFound(name)
    topic = decode(wire.Topic, metadata.definition)
    topic.name = name
    topic.state = types.Topic.State(types.Topic.State.ACTIVE)
    return topic
