"""Errors of repartitioning.

InvalidArgument
└── CannotRepartition    this queue cannot be rebuilt so
FailedPrecondition
├── QueueInUse           somebody works with the source or the target meanwhile
└── QueuesDiffer         the target does not hold what the source holds
"""

from penstock.domain.errors import FailedPrecondition, InvalidArgument


class CannotRepartition(InvalidArgument):
    """This queue cannot be rebuilt so."""


class QueueInUse(FailedPrecondition):
    """Somebody works with the source or the target meanwhile."""


class QueuesDiffer(FailedPrecondition):
    """The target does not hold what the source holds."""
