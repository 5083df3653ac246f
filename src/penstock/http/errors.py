"""Errors of serving HTTP.

InvalidArgument
└── BadCursor                     a cursor was not created by the list that it was sent to
FailedPrecondition
├── BadCertificate                the files of a certificate cannot be used
└── ExposedWithoutCredentials     other machines could reach a service that requires no credentials
Unavailable
├── CannotListen                  the address cannot be listened on
│   └── PortInUse                 another program listens there
└── StartFailed                   the service's own start-up failed
"""

from penstock.domain.errors import FailedPrecondition, InvalidArgument, Unavailable

_MOST_SHOWN = 100


class BadCursor(InvalidArgument):
    """A cursor was not created by the list that it was sent to."""

    def __init__(self, cursor: str) -> None:
        shown = cursor[:_MOST_SHOWN]
        super().__init__(f"the cursor {shown!r} is not valid: send the cursor of the previous page unchanged")


class BadCertificate(FailedPrecondition):
    """The files of a certificate cannot be used."""


class ExposedWithoutCredentials(FailedPrecondition):
    """Other machines could reach a service that requires no credentials."""


class CannotListen(Unavailable):
    """The address cannot be listened on."""


class PortInUse(CannotListen):
    """Another program listens on the port."""


class StartFailed(Unavailable):
    """The service's own start-up failed."""
