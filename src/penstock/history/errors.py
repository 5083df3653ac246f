"""Errors of the audit.

Unavailable
└── AuditFailed    an audit could not be made

Errors of repartitioning.

InvalidArgument
└── CannotRepartition    this queue cannot be rebuilt so
FailedPrecondition
├── QueueInUse           somebody works with the source or the target meanwhile
└── QueuesDiffer         the target does not hold what the source holds

Errors of replays.

Unavailable
└── ReplayBroken    the tasks of a replay failed; what they delivered is kept

Errors of reports.

NotFound
└── LakeEmpty    there are no facts at all where the lake should be
"""

from penstock.domain.errors import FailedPrecondition, InvalidArgument, NotFound, Unavailable


class AuditFailed(Unavailable):
    """An audit could not be made."""


class CannotRepartition(InvalidArgument):
    """This queue cannot be rebuilt so."""


class QueueInUse(FailedPrecondition):
    """Somebody works with the source or the target meanwhile."""


class QueuesDiffer(FailedPrecondition):
    """The target does not hold what the source holds."""


class ReplayBroken(Unavailable):
    """The tasks of a replay failed; what they delivered is kept."""

    def __init__(self, replay_id: str, reason: str) -> None:
        super().__init__(f"{reason}; go on with `penstock pipeline replay --resume {replay_id}`")


class LakeEmpty(NotFound):
    """There are no facts at all where the lake should be."""

    def __init__(self) -> None:
        super().__init__(
            "the lake has no facts of any day: name another with --lake, fill it with `penstock pipeline facts`, "
            "or use --from-database"
        )
