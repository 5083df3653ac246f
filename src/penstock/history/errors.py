"""Errors of audits, replays, reports and repartitioning.

InvalidArgument
├── CannotRepartition    the queue cannot be repartitioned in this way
└── InvalidQuery         a query over the lake cannot be run
NotFound
└── LakeEmpty            the lake has no facts
FailedPrecondition
├── LakeNotMigrated      the lake has the format of an older version
├── LanesBusy            jobs of the same keys are on their way, beside which a direct replay would lose their order
├── RowsForgotten        rows to be added may be some that were forgotten since they were read
├── QueueInUse           the source or the target is used meanwhile
└── QueuesDiffer         the target does not hold what the source holds
Unavailable
├── AuditFailed          an audit failed
├── LakeBroken           the lake cannot be read or written
└── ReplayBroken         the tasks of a replay failed; what they delivered is recorded
"""

from penstock.domain.errors import FailedPrecondition, InvalidArgument, NotFound, Unavailable


class AuditFailed(Unavailable):
    """An audit failed."""


class LakeBroken(Unavailable):
    """The lake cannot be read or written."""


class LakeNotMigrated(FailedPrecondition):
    """The lake has the format of an older version."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"the lake {path} has the format of an older version: run `penstock pipeline migrate-lake` once, "
            "or name another directory with --lake"
        )


class LanesBusy(FailedPrecondition):
    """Jobs of the same keys are on their way, beside which a direct replay would lose their order."""

    def __init__(self, groups: int) -> None:
        super().__init__(
            f"{groups} of the keys have jobs on their way, and a direct replay would not keep their order with these: "
            "wait until they are delivered, or replay through the queue, without --direct"
        )


class RowsForgotten(FailedPrecondition):
    """Rows to be added may be some that were forgotten since they were read."""

    def __init__(self, uri: str) -> None:
        super().__init__(f"rows of {uri} were forgotten meanwhile, so the batch has to be read again")


class CannotRepartition(InvalidArgument):
    """The queue cannot be repartitioned in this way."""


class InvalidQuery(InvalidArgument):
    """A query over the lake cannot be run."""


class QueueInUse(FailedPrecondition):
    """The source or the target is used meanwhile."""


class QueuesDiffer(FailedPrecondition):
    """The target does not hold what the source holds."""


class ReplayBroken(Unavailable):
    """The tasks of a replay failed; what they delivered is recorded."""

    def __init__(self, replay_id: str, reason: str) -> None:
        super().__init__(f"{reason}; continue with `penstock pipeline replay --resume {replay_id}`")


class LakeEmpty(NotFound):
    """The lake has no facts."""

    def __init__(self) -> None:
        super().__init__(
            "the lake has no facts: name another with --lake, fill it with `penstock pipeline facts`, "
            "or use --from-database"
        )
