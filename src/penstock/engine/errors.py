"""Errors of the queue engine and its stores.

InvalidArgument
└── LeaseNotFound          the lease was settled, expired, or never existed
NotFound
├── StreamNotFound
└── QueueNotFound
AlreadyExists
├── StreamExists
└── QueueExists
Unavailable
├── StoreFailed            the disk or database refused a commit; nothing of it is saved
├── StoreLocked            another process uses this data directory or database
├── LeaseUncertain         another process may use this database by now
└── QueueClosed            the engine is shutting down
"""

from penstock.domain.errors import AlreadyExists, InvalidArgument, NotFound, Unavailable


class LeaseNotFound(InvalidArgument):
    """The lease was settled, expired, or never existed."""


class StreamNotFound(NotFound):
    """No stream has this name."""


class QueueNotFound(NotFound):
    """No queue has this name."""


class StreamExists(AlreadyExists):
    """A stream has this name."""


class QueueExists(AlreadyExists):
    """A queue has this name."""


class StoreFailed(Unavailable):
    """The disk or database refused a commit; nothing of it is saved."""


class StoreLocked(Unavailable):
    """Another process uses this data directory or database."""


class LeaseUncertain(Unavailable):
    """Another process may use this database by now: the lease on it could not be renewed in time."""


class QueueClosed(Unavailable):
    """The engine is shutting down."""
