"""Errors of the sources.

FailedPrecondition
└── PositionsAhead    a checkpoint is further than the database has ever counted
"""

from penstock.domain.errors import FailedPrecondition


class PositionsAhead(FailedPrecondition):
    """A checkpoint is further than the database has ever counted: it belongs to another one, or to a later state."""

    def __init__(self, place: str, table: str, position: int, reached: int) -> None:
        super().__init__(
            f"the checkpoint of {table} is at position {position}, and the {place} has only come to {reached}: it was "
            "restored from a backup or is another one. Stop the pipeline, remove this job's checkpoint directory, and "
            "start again: what was done is found done"
        )
