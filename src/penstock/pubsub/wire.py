"""The protocol's messages: the raw protobuf classes inside Google's package, without the wrappers around them.

To the type checker a raw class is the wrapper it comes from, which has the same fields.
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
    """What a handler may know of the call it answers."""

    def time_remaining(self) -> float | None:
        """Seconds until the caller gives up; None when it does not."""
        ...


class ProtobufMessage(Protocol):
    """What every raw message can do."""

    def SerializeToString(self) -> bytes:  # noqa: N802 protobuf's name
        """The message as bytes."""
        ...


def encode(message: object) -> bytes:
    """A raw message as bytes."""
    return cast(ProtobufMessage, message).SerializeToString()


def decode(kind: type[T], data: bytes) -> T:
    """A raw message from bytes."""
    return cast(T, kind.FromString(data))  # type: ignore[attr-defined]  # the wrapper stands for the raw class


def copy_of(message: T) -> T:
    """A raw message of the same content."""
    return decode(type(message), encode(message))


def has(message: object, field: str) -> bool:
    """Whether an optional field is set."""
    return bool(message.HasField(field))  # type: ignore[attr-defined]  # the wrapper stands for the raw class
