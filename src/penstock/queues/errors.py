"""Errors of queues that the router consumes and the dispatcher publishes to.

InvalidArgument
├── InvalidQueueUri        the URI names no queue of a known kind
└── InvalidPublication     the queue can never carry this message
NotFound
└── BrokerQueueNotFound    the broker has no such queue
FailedPrecondition
├── BrokerRefused          the broker answered, and said no
└── HeldBack               an earlier message of the group did not get in
Unavailable
├── BrokerUnavailable      the broker did not answer, or says that it cannot now
│   └── MalformedFrame     the broker sent something that is not STOMP
└── SourceClosed           this end was closed
"""

from penstock.domain.errors import FailedPrecondition, InvalidArgument, NotFound, Unavailable


class InvalidQueueUri(InvalidArgument):
    """The URI names no queue of a known kind."""


class InvalidPublication(InvalidArgument):
    """The queue can never carry this message."""


class BrokerQueueNotFound(NotFound):
    """The broker has no such queue."""


class BrokerRefused(FailedPrecondition):
    """The broker answered, and said no."""


class HeldBack(FailedPrecondition):
    """An earlier message of the group did not get in, so this one was not sent."""

    def __init__(self, group: str | None) -> None:
        super().__init__(f"an earlier message of the group {group!r} did not get in; publish both again, in order")


class BrokerUnavailable(Unavailable):
    """The broker did not answer, or says that it cannot now."""


class MalformedFrame(BrokerUnavailable):
    """The broker sent something that is not STOMP."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the broker sent a malformed STOMP frame: {reason}")


class SourceClosed(Unavailable):
    """This end was closed."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the end of the queue {name!r} is closed; open a new one")
