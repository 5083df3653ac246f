"""Errors of requests over HTTP.

InvalidArgument
└── Undeliverable             a URL, token or secret can never be used
FailedPrecondition
└── EgressRefused             the egress guard does not allow the address
Unavailable
├── SecretUnreadable          a secret is encrypted, and its key is missing or wrong
├── NoToken                   an OAuth2 issuer gave no token
└── DeliveryFailed            an endpoint did not answer
    ├── ConnectFailed         there was no connection
    │   └── ConnectTimedOut   there was no connection in time
    ├── ConnectionBroken      the connection broke, or was not HTTP, before the answer was complete
    │   └── StaleConnection   a reused one was closed before the answer began: retry with a new one
    └── AnswerTimedOut        there was no answer in time
"""

from penstock.domain.errors import FailedPrecondition, InvalidArgument, Unavailable


class Undeliverable(InvalidArgument):
    """A pointer's URL, token or secret can never be used, so retries are pointless."""


class EgressRefused(FailedPrecondition):
    """The egress guard does not allow the address."""


class SecretUnreadable(Unavailable):
    """A secret is encrypted, and its key is missing or wrong; a process that has the key can use it."""


class NoToken(Unavailable):
    """An OAuth2 issuer gave no token; `rest_s` is how long its breaker rests, if that is open."""

    def __init__(self, issuer: str, reason: str, rest_s: int | None = None) -> None:
        super().__init__(f"no OAuth2 token from {issuer}: {reason}")
        self.issuer = issuer
        self.rest_s = rest_s


class DeliveryFailed(Unavailable):
    """An endpoint did not answer."""


class ConnectFailed(DeliveryFailed):
    """There was no connection to the endpoint."""


class ConnectTimedOut(ConnectFailed):
    """There was no connection to the endpoint in time."""

    def __init__(self, endpoint: str, after_s: float) -> None:
        super().__init__(f"no connection to {endpoint} within {after_s:g} s; check that it is running and reachable")
        self.after_s = after_s


class ConnectionBroken(DeliveryFailed):
    """The connection broke, or was not HTTP, before the answer was complete."""


class StaleConnection(ConnectionBroken):
    """A reused connection was closed before the answer began: retry with a new one."""


class AnswerTimedOut(DeliveryFailed):
    """There was no answer in time."""

    def __init__(self, after_s: float) -> None:
        super().__init__(f"no answer within {after_s:g} s")
        self.after_s = after_s
