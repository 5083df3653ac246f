"""Errors of requests over HTTP.

InvalidArgument
└── Undeliverable             a URL, token or secret can never be used
FailedPrecondition
└── EgressRefused             the egress guard keeps a delivery from leaving
Unavailable
└── DeliveryFailed            an endpoint gave no answer
    ├── ConnectFailed         it could not be reached
    │   └── ConnectTimedOut   not in time
    ├── ConnectionBroken      the connection broke, or spoke no HTTP, before the answer was whole
    │   └── StaleConnection   a kept one was closed before any of the answer came: worth one fresh connection
    └── AnswerTimedOut        the answer did not come in time
"""

from penstock.domain.errors import FailedPrecondition, InvalidArgument, Unavailable


class Undeliverable(InvalidArgument):
    """A pointer's URL, token or secret can never be used: no later attempt will do better."""


class EgressRefused(FailedPrecondition):
    """The egress guard keeps a delivery from leaving."""


class DeliveryFailed(Unavailable):
    """An endpoint gave no answer."""


class ConnectFailed(DeliveryFailed):
    """The endpoint could not be reached."""


class ConnectTimedOut(ConnectFailed):
    """The endpoint could not be reached in time."""

    def __init__(self, endpoint: str, after_s: float) -> None:
        super().__init__(f"no connection to {endpoint} within {after_s:g} s; check that it is up and reachable")
        self.after_s = after_s


class ConnectionBroken(DeliveryFailed):
    """The connection broke, or spoke no HTTP, before the answer was whole."""


class StaleConnection(ConnectionBroken):
    """A kept connection was closed before any of the answer came: worth one fresh connection."""


class AnswerTimedOut(DeliveryFailed):
    """The answer did not come in time."""

    def __init__(self, after_s: float) -> None:
        super().__init__(f"no answer within {after_s:g} s")
        self.after_s = after_s
