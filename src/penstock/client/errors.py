"""Errors of the client. Errors that the API reports are raised as the matching root class.

InvalidArgument
└── BadSignature           a webhook is not signed with the secret, or is too old
FailedPrecondition
└── TokenRefused           the API requires a token, or another one
Unavailable
├── DeliverLater           a receiver cannot process a delivery now
├── NoAnswer               the connection failed, broke, or took too long
└── StrangeAnswer          the answer is not from a Penstock API
"""

from penstock.domain.errors import FailedPrecondition, InvalidArgument, Unavailable


class BadSignature(InvalidArgument):
    """A webhook is not signed with the secret, or is too old."""


class TokenRefused(FailedPrecondition):
    """The API requires a token, or another one."""


class DeliverLater(Unavailable):
    """Raised by a handler that cannot process a delivery now: it comes again, without spending an attempt."""

    def __init__(self, delay_s: int = 30) -> None:
        super().__init__(f"deliver again in {delay_s} s")
        self.delay_s = delay_s


class NoAnswer(Unavailable):
    """The connection failed, broke, or took too long."""


class StrangeAnswer(Unavailable):
    """The answer is not from a Penstock API."""
