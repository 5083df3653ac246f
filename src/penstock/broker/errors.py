"""Errors of the broker, with the codes and messages of seed 001.

NotFound (code 5)
├── TopicNotFound             Topic not found: <name>
└── SubscriptionNotFound      Subscription not found: <name>
AlreadyExists (code 6)
└── SubscriptionExists        the name belongs to a subscription with another topic or other options
InvalidArgument (code 3)
├── InvalidAckId              Invalid ack ID: <ack id>
├── InvalidMessage            a message that cannot be published
└── InvalidOptions            subscription options out of range
ResourceExhausted (code 8)
└── SubscriptionFull          a subscription that rejects instead of dropping is at its capacity
"""

from penstock.core.errors import AlreadyExists, InvalidArgument, NotFound, ResourceExhausted


class TopicNotFound(NotFound):
    """No topic has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Topic not found: {name}")


class SubscriptionNotFound(NotFound):
    """No subscription has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Subscription not found: {name}")


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


class InvalidOptions(InvalidArgument):
    """Subscription options out of range."""


class SubscriptionFull(ResourceExhausted):
    """A subscription that rejects instead of dropping is at its capacity."""
