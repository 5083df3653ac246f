"""Errors of queues that the router consumes and the dispatcher publishes to.

InvalidArgument
├── InvalidQueueUri        the URI is not a queue of a known kind
└── InvalidPublication     the queue can never carry this message
NotFound
└── BrokerQueueNotFound    the broker has no such queue
FailedPrecondition
├── BrokerRefused          the broker rejected the request
└── HeldBack               an earlier message of the group was not published
Unavailable
├── BrokerUnavailable      the broker did not answer, or cannot answer now
│   └── MalformedFrame     the broker sent something that is not STOMP
└── SourceClosed           the source or publisher was closed
"""

from penstock.domain.errors import FailedPrecondition, InvalidArgument, NotFound, Unavailable


class InvalidQueueUri(InvalidArgument):
    """The URI is not a queue of a known kind."""


class InvalidPublication(InvalidArgument):
    """The queue can never carry this message."""


class BrokerQueueNotFound(NotFound):
    """The broker has no such queue."""


class BrokerRefused(FailedPrecondition):
    """The broker rejected the request."""


class HeldBack(FailedPrecondition):
    """An earlier message of the group was not published, so this one was not sent."""

    def __init__(self, group: str | None) -> None:
        super().__init__(f"an earlier message of the group {group!r} was not published; publish both again, in order")


class BrokerUnavailable(Unavailable):
    """The broker did not answer, or cannot answer now."""


class MalformedFrame(BrokerUnavailable):
    """The broker sent something that is not STOMP."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the broker sent a malformed STOMP frame: {reason}")


class SourceClosed(Unavailable):
    """The source or publisher was closed."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the connection to queue {name!r} is closed; open a new one")
