"""Errors of the client. Errors that the API reports are raised as the matching root class.

InvalidArgument
└── BadSignature           a webhook is not signed with the secret, or is too old
FailedPrecondition
└── TokenRefused           the API requires a token, or another one
Unavailable
├── NoAnswer               the connection failed, broke, or took too long
└── StrangeAnswer          the answer is not from a Penstock API
"""

from penstock.domain.errors import FailedPrecondition, InvalidArgument, Unavailable


class BadSignature(InvalidArgument):
    """A webhook is not signed with the secret, or is too old."""


class TokenRefused(FailedPrecondition):
    """The API requires a token, or another one."""


class NoAnswer(Unavailable):
    """The connection failed, broke, or took too long."""


class StrangeAnswer(Unavailable):
    """The answer is not from a Penstock API."""
