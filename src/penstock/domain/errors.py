"""The root of every error Penstock raises on purpose.

PenstockError                     stable `code`, a message that says what was wrong and what to do
├── InvalidArgument               a value the caller gave cannot be used
├── NotFound                      a named thing does not exist
├── AlreadyExists                 a name is taken
├── FailedPrecondition            the thing exists but its state does not allow this
├── ResourceExhausted             a limit is reached; try later or raise the limit
└── Unavailable                   a part Penstock needs (disk, database, broker) did not answer

Each package derives its own errors from these in its `errors.py`; each protocol maps these six once.
The numbers follow gRPC's canonical codes (BROKER-7; 3 = invalid argument, 5 = not found).
"""

from collections.abc import Callable
from typing import Any, ClassVar


class PenstockError(Exception):
    """Something that Penstock refuses or cannot do, explained in one sentence."""

    code: ClassVar[int] = 2

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __reduce__(self) -> tuple[Callable[..., "PenstockError"], tuple[object, ...]]:
        # Subclasses have constructors with other arguments than the message, so pickle must not call them.
        return _unpickle, (type(self), self.args, self.__dict__)


def _unpickle(kind: type[PenstockError], args: tuple[object, ...], state: dict[str, Any]) -> PenstockError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class InvalidArgument(PenstockError):
    """A value the caller gave cannot be used."""

    code = 3


class NotFound(PenstockError):
    """A named thing does not exist."""

    code = 5


class AlreadyExists(PenstockError):
    """A name is taken."""

    code = 6


class ResourceExhausted(PenstockError):
    """A limit is reached; try later or raise the limit."""

    code = 8


class FailedPrecondition(PenstockError):
    """The thing exists but its state does not allow this."""

    code = 9


class Unavailable(PenstockError):
    """A part Penstock needs (disk, database, broker) did not answer."""

    code = 14
