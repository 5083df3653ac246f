"""Subscriptions: their valid settings and defaults, and their conversion to the broker's options."""

from google.pubsub_v1 import types

from penstock.broker import (
    AsyncBroker,
    BrokerSubscription,
    DeadLetterPolicy,
    Overflow,
    SubscriptionDetached,
    SubscriptionMetadata,
    SubscriptionOptions,
)
from penstock.delivery import Undeliverable, parse_target
from penstock.domain.limits import DEFAULT_ACK_DEADLINE_S, MAX_ACK_DEADLINE_S, MIN_ACK_DEADLINE_S
from penstock.domain.retry import RetryPolicy
from penstock.pubsub import limits, wire
from penstock.pubsub.errors import InvalidRequest, NotForPush
from penstock.pubsub.fields import checked_seconds, seconds_of, set_seconds
from penstock.pubsub.names import DELETED_TOPIC, topic_name
from penstock.pubsub.wire import copy_of, decode, has

MUTABLE = frozenset(
    {
        "push_config",
        "ack_deadline_seconds",
        "retain_acked_messages",
        "message_retention_duration",
        "labels",
        "expiration_policy",
        "dead_letter_policy",
        "retry_policy",
        "enable_exactly_once_delivery",
    }
)
FEED_LABEL = "penstock-feed"
"""Marks a subscription whose consumer takes several messages of a key at once and settles them together."""
_UNSUPPORTED = ("bigquery_config", "cloud_storage_config", "bigtable_config")


def normalized_subscription(given: types.Subscription) -> types.Subscription:
    """Return a subscription with its defaults filled in; raise InvalidRequest for settings out of range."""
    subscription = copy_of(given)
    for field in _UNSUPPORTED:
        if has(subscription, field):
            raise InvalidRequest(f"{field} is not supported: consume the subscription and write there yourself")
    if subscription.message_transforms:
        raise InvalidRequest("message_transforms is not supported: transform before publishing")
    deadline_s = subscription.ack_deadline_seconds or DEFAULT_ACK_DEADLINE_S
    if not MIN_ACK_DEADLINE_S <= deadline_s <= MAX_ACK_DEADLINE_S:
        raise InvalidRequest(
            f"ack_deadline_seconds must be between {MIN_ACK_DEADLINE_S} and {MAX_ACK_DEADLINE_S}, got {deadline_s}"
        )
    subscription.ack_deadline_seconds = deadline_s
    if not has(subscription, "message_retention_duration"):
        set_seconds(subscription.message_retention_duration, limits.DEFAULT_RETENTION_S)
    checked_seconds(
        "message_retention_duration",
        subscription.message_retention_duration,
        limits.MIN_RETENTION_S,
        limits.MAX_RETENTION_S,
    )
    _normalize_policies(subscription)
    check_push_endpoint(subscription.push_config)
    return subscription


def _normalize_policies(subscription: types.Subscription) -> None:
    if not has(subscription, "expiration_policy"):
        set_seconds(subscription.expiration_policy.ttl, limits.DEFAULT_EXPIRATION_S)
    elif has(subscription.expiration_policy, "ttl"):
        checked_seconds("expiration_policy.ttl", subscription.expiration_policy.ttl, limits.MIN_EXPIRATION_S, 1e11)
    if has(subscription, "retry_policy"):
        _normalize_retry(subscription.retry_policy)
    if has(subscription, "dead_letter_policy"):
        _normalize_dead_letters(subscription.dead_letter_policy)


def _normalize_retry(retry: types.RetryPolicy) -> None:
    for field, default_s in (
        ("minimum_backoff", limits.DEFAULT_MIN_BACKOFF_S),
        ("maximum_backoff", limits.MAX_BACKOFF_S),
    ):
        if not has(retry, field):
            set_seconds(getattr(retry, field), default_s)
        checked_seconds(f"retry_policy.{field}", getattr(retry, field), 0, limits.MAX_BACKOFF_S)
    if seconds_of(retry.minimum_backoff) > seconds_of(retry.maximum_backoff):
        raise InvalidRequest("retry_policy.minimum_backoff must not be longer than maximum_backoff")


def _normalize_dead_letters(policy: types.DeadLetterPolicy) -> None:
    topic_name(policy.dead_letter_topic)
    attempts = policy.max_delivery_attempts or limits.MIN_DELIVERY_ATTEMPTS
    if not limits.MIN_DELIVERY_ATTEMPTS <= attempts <= limits.MAX_DELIVERY_ATTEMPTS:
        raise InvalidRequest(
            f"dead_letter_policy.max_delivery_attempts must be between {limits.MIN_DELIVERY_ATTEMPTS} and "
            f"{limits.MAX_DELIVERY_ATTEMPTS}, got {attempts}"
        )
    policy.max_delivery_attempts = attempts


def check_push_endpoint(push: types.PushConfig) -> None:
    """Raise InvalidRequest for an endpoint that cannot be posted to."""
    if push.push_endpoint:
        try:
            parse_target(push.push_endpoint)
        except Undeliverable as error:
            # Without the URL: it may contain a secret.
            reason = error.message.partition(": ")[2]
            raise InvalidRequest(f"push_endpoint must be an http or https URL: {reason}") from error


def options_of(subscription: types.Subscription, *, durable: bool) -> SubscriptionOptions:
    """Convert a normalized subscription to the broker's options."""
    dead_letters = subscription.dead_letter_policy
    return SubscriptionOptions(
        ack_deadline_seconds=subscription.ack_deadline_seconds,
        message_ordering=subscription.enable_message_ordering,
        retry_policy=_retry_of(subscription),
        dead_letter_policy=DeadLetterPolicy(
            dead_letter_topic=dead_letters.dead_letter_topic, max_delivery_attempts=dead_letters.max_delivery_attempts
        )
        if has(subscription, "dead_letter_policy")
        else None,
        message_retention_seconds=int(seconds_of(subscription.message_retention_duration)),
        max_messages=limits.BACKLOG_MESSAGES if durable else limits.MEMORY_BACKLOG_MESSAGES,
        max_bytes=limits.BACKLOG_BYTES if durable else limits.MEMORY_BACKLOG_BYTES,
        overflow=Overflow.REJECT,
        filter=subscription.filter,
        several_of_a_key=FEED_LABEL in subscription.labels,
        retain_acked=subscription.retain_acked_messages,
    )


def _retry_of(subscription: types.Subscription) -> RetryPolicy | None:
    """Return the back-off; a failing push endpoint is never retried immediately."""
    if has(subscription, "retry_policy"):
        retry = subscription.retry_policy
        return RetryPolicy(seconds_of(retry.minimum_backoff), seconds_of(retry.maximum_backoff))
    if subscription.push_config.push_endpoint:
        return RetryPolicy(limits.PUSH_MIN_BACKOFF_S, limits.PUSH_MAX_BACKOFF_S)
    return None


def push_config_of(broker: AsyncBroker, name: str) -> types.PushConfig | None:
    """Return the push settings of a subscription; None if it is pulled, detached or gone."""
    metadata = broker.rules.find_subscription(name)
    if metadata is None or metadata.detached:
        return None
    push = decode(wire.Subscription, metadata.definition).push_config
    return push if push.push_endpoint else None


def pulled_subscription(broker: AsyncBroker, name: str) -> BrokerSubscription:
    """Return a subscription that may be pulled and streamed."""
    subscription = broker.rules.subscription(name)
    if subscription.config.detached:
        raise SubscriptionDetached(name)
    if push_config_of(broker, name) is not None:
        raise NotForPush(name)
    return subscription


def expires_after_s(subscription: types.Subscription) -> float | None:
    """Return how long an unused subscription is kept, in seconds, or None for ever."""
    policy = subscription.expiration_policy
    return seconds_of(policy.ttl) if has(policy, "ttl") else None


def stored_subscription(broker: AsyncBroker, name: str) -> types.Subscription:
    """Return a subscription as it was created or last updated."""
    return shown_subscription(broker, broker.rules.subscription(name).metadata())


def shown_subscription(broker: AsyncBroker, metadata: SubscriptionMetadata) -> types.Subscription:
    """Return a subscription as the API shows it."""
    subscription = decode(wire.Subscription, metadata.definition)
    subscription.name = metadata.name
    subscription.topic = metadata.topic
    subscription.state = types.Subscription.State(types.Subscription.State.ACTIVE)
    if metadata.detached:
        # A detached subscription keeps its topic's name; for a deleted topic Google shows a fixed name.
        subscription.topic = metadata.topic if subscription.detached else DELETED_TOPIC
        subscription.detached = True
        return subscription
    topic = broker.rules.topic(metadata.topic)
    if topic is not None:
        kept = decode(wire.Topic, topic.definition)
        if has(kept, "message_retention_duration"):
            set_seconds(subscription.topic_message_retention_duration, seconds_of(kept.message_retention_duration))
    return subscription
