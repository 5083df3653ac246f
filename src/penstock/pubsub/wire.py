"""The protocol's messages: the raw protobuf classes of Google's package, without their wrappers.

To the type checker a raw class is its wrapper, which has the same fields.
"""

from typing import Protocol, TypeVar, cast

from google.pubsub_v1 import types

T = TypeVar("T")


def _raw(wrapper: type[T]) -> type[T]:
    return cast(type[T], wrapper.pb())  # type: ignore[attr-defined]  # proto-plus has no types


Topic = _raw(types.Topic)
Subscription = _raw(types.Subscription)
Snapshot = _raw(types.Snapshot)
Schema = _raw(types.Schema)
PublishResponse = _raw(types.PublishResponse)
PullResponse = _raw(types.PullResponse)
StreamingPullRequest = _raw(types.StreamingPullRequest)
StreamingPullResponse = _raw(types.StreamingPullResponse)
ListTopicsResponse = _raw(types.ListTopicsResponse)
ListTopicSubscriptionsResponse = _raw(types.ListTopicSubscriptionsResponse)
ListTopicSnapshotsResponse = _raw(types.ListTopicSnapshotsResponse)
ListSubscriptionsResponse = _raw(types.ListSubscriptionsResponse)
ListSnapshotsResponse = _raw(types.ListSnapshotsResponse)
ListSchemasResponse = _raw(types.ListSchemasResponse)
ListSchemaRevisionsResponse = _raw(types.ListSchemaRevisionsResponse)
DetachSubscriptionResponse = _raw(types.DetachSubscriptionResponse)
SeekResponse = _raw(types.SeekResponse)
ValidateSchemaResponse = _raw(types.ValidateSchemaResponse)
ValidateMessageResponse = _raw(types.ValidateMessageResponse)


class GrpcCall(Protocol):
    """What a handler can know about its call."""

    def time_remaining(self) -> float | None:
        """Return the seconds until the caller gives up, or None if it does not."""
        ...


class ProtobufMessage(Protocol):
    """The methods of every raw message."""

    def SerializeToString(self) -> bytes:  # noqa: N802 protobuf's name
        """Return the message as bytes."""
        ...


def encode(message: object) -> bytes:
    """Encode a raw message."""
    return cast(ProtobufMessage, message).SerializeToString()


def decode(kind: type[T], data: bytes) -> T:
    """Decode a raw message."""
    return cast(T, kind.FromString(data))  # type: ignore[attr-defined]  # the wrapper is declared, the raw class passed


def copy_of(message: T) -> T:
    """Return a copy of a raw message."""
    return decode(type(message), encode(message))


def has(message: object, field: str) -> bool:
    """Return whether an optional field is set."""
    return bool(message.HasField(field))  # type: ignore[attr-defined]  # the wrapper is declared, the raw class passed
