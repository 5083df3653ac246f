"""Errors of the client; what the API refuses is raised as the root that fits it.

InvalidArgument
└── BadSignature           a webhook that nobody with the secret has sent, or that is too old
FailedPrecondition
└── TokenRefused           the API wants a token, or another one
Unavailable
├── NoAnswer               the connection could not be made, broke, or took too long
└── StrangeAnswer          something answered that is not a Penstock API
"""

from penstock.domain.errors import FailedPrecondition, InvalidArgument, Unavailable


class BadSignature(InvalidArgument):
    """A webhook that nobody with the secret has sent, or that is too old."""


class TokenRefused(FailedPrecondition):
    """The API wants a token, or another one."""


class NoAnswer(Unavailable):
    """The connection could not be made, broke, or took too long."""


class StrangeAnswer(Unavailable):
    """Something answered that is not a Penstock API."""
