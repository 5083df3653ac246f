"""Errors of the broker, with the codes and messages of BROKER-7.

NotFound (code 5)
├── TopicNotFound             Topic not found: <name>
├── SubscriptionNotFound      Subscription not found: <name>
└── SnapshotNotFound          Snapshot not found: <name>
AlreadyExists (code 6)
├── SubscriptionExists        the name belongs to a subscription with another topic or other options
└── SnapshotExists            Snapshot already exists: <name>
FailedPrecondition (code 9)
├── SubscriptionDetached      the subscription's topic was removed, or it was detached from it
└── WrongSnapshot             the snapshot belongs to another topic than the subscription
InvalidArgument (code 3)
├── InvalidAckId              Invalid ack ID: <ack id>
├── InvalidMessage            a message that cannot be published
├── InvalidFilter             a filter with a syntax error, with its position
└── InvalidOptions            subscription options out of range
ResourceExhausted (code 8)
└── SubscriptionFull          a subscription that rejects instead of dropping is at its capacity
"""

from penstock.domain.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted


class TopicNotFound(NotFound):
    """No topic has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Topic not found: {name}")


class SubscriptionNotFound(NotFound):
    """No subscription has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Subscription not found: {name}")


class SnapshotNotFound(NotFound):
    """No snapshot has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Snapshot not found: {name}")


class SnapshotExists(AlreadyExists):
    """A snapshot has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Snapshot already exists: {name}")


class SubscriptionDetached(FailedPrecondition):
    """The subscription's topic was removed, or it was detached from it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Subscription is detached from its topic, delete it and create another: {name}")


class WrongSnapshot(FailedPrecondition):
    """The snapshot belongs to another topic than the subscription."""

    def __init__(self, snapshot: str, subscription: str) -> None:
        super().__init__(f"Snapshot {snapshot} is not of the topic of subscription {subscription}")


class SubscriptionExists(AlreadyExists):
    """The name belongs to a subscription with another topic or other options."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Subscription already exists with another topic or other options: {name}")


class InvalidAckId(InvalidArgument):
    """The ack id was used, has expired, or never existed."""

    def __init__(self, ack_id: str) -> None:
        super().__init__(f"Invalid ack ID: {ack_id}")


class InvalidMessage(InvalidArgument):
    """A message that cannot be published."""


class InvalidFilter(InvalidArgument):
    """A filter with a syntax error; `position` counts characters from 0."""

    def __init__(self, problem: str, position: int) -> None:
        super().__init__(f"Invalid filter at position {position}: {problem}")
        self.position = position


class InvalidOptions(InvalidArgument):
    """Subscription options out of range."""


class SubscriptionFull(ResourceExhausted):
    """A subscription that rejects instead of dropping is at its capacity."""
