"""Errors of serving.

InvalidArgument
└── BadCursor                     a list's cursor was not made by that list
FailedPrecondition
└── ExposedWithoutCredentials     other machines could reach a service that asks for no credentials
Unavailable
├── CannotListen                  the address cannot be listened on
│   └── PortInUse                 another program listens there
└── StartFailed                   the service's own start-up failed
"""

from penstock.domain.errors import FailedPrecondition, InvalidArgument, Unavailable

_MOST_SHOWN = 100


class BadCursor(InvalidArgument):
    """A list's cursor was not made by that list."""

    def __init__(self, cursor: str) -> None:
        shown = cursor[:_MOST_SHOWN]
        super().__init__(f"the cursor {shown!r} is none: pass on the one of the last page as it is")


class ExposedWithoutCredentials(FailedPrecondition):
    """Other machines could reach a service that asks for no credentials."""


class CannotListen(Unavailable):
    """The address cannot be listened on."""


class PortInUse(CannotListen):
    """Another program listens on the port."""


class StartFailed(Unavailable):
    """The service's own start-up failed."""
