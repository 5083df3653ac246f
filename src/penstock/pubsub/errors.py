"""Errors of the Pub/Sub API; `handlers` maps these and all others to gRPC.

InvalidArgument (code 3)
├── InvalidName               a malformed resource name
├── InvalidRequest            a field out of range, missing, or immutable
├── InvalidSchema             a definition that is not an Avro schema or a protocol-buffer message
├── SchemaMismatch         a message that does not match its topic's schema
└── StaleAckIds               ack ids that are not current, reported one by one for exactly-once delivery
NotFound (code 5)
└── SchemaNotFound            no such schema, or no such revision of it
AlreadyExists (code 6)
└── ResourceExists            the name is taken
FailedPrecondition (code 9)
├── LastRevision              the only revision of a schema cannot be deleted
├── NotForPush                a subscription with a push endpoint is not pulled
├── PolicyChanged             the policy was changed since it was read
└── SnapshotTooShort          a snapshot would expire within the hour
Unavailable (code 14)
└── ServerStopping            the client should open the stream again
"""

from collections.abc import Sequence

from penstock.domain.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound, Unavailable


class InvalidName(InvalidArgument):
    """A malformed resource name."""


class InvalidRequest(InvalidArgument):
    """A field out of range, missing, or immutable."""


class InvalidSchema(InvalidArgument):
    """A definition that is not an Avro schema or a protocol-buffer message."""


class SchemaMismatch(InvalidArgument):
    """A message that does not match its topic's schema."""


class StaleAckIds(InvalidArgument):
    """Ack ids that are not current; the others of the request took effect."""

    def __init__(self, ack_ids: Sequence[str]) -> None:
        super().__init__(f"{len(ack_ids)} ack ids are not current; the message is delivered again unless it was acked")
        self.ack_ids = tuple(ack_ids)


class SchemaNotFound(NotFound):
    """No such schema, or no such revision of it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Schema not found: {name}")


class ResourceExists(AlreadyExists):
    """The name is taken."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Resource already exists: {name}")


class LastRevision(FailedPrecondition):
    """The only revision of a schema cannot be deleted."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is the only revision of its schema; delete the schema instead")


class NotForPush(FailedPrecondition):
    """A subscription with a push endpoint is not pulled."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"This method is not supported for push subscriptions; remove the push endpoint to pull: {name}"
        )


class PolicyChanged(FailedPrecondition):
    """The policy was changed since it was read."""

    def __init__(self, resource: str) -> None:
        super().__init__(f"the policy of {resource} has changed since it was read; read it again")


class SnapshotTooShort(FailedPrecondition):
    """A snapshot would expire within the hour."""

    def __init__(self, subscription: str) -> None:
        super().__init__(f"a snapshot of {subscription} would expire within the hour: its oldest message is too old")


class ServerStopping(Unavailable):
    """The client should open the stream again."""
