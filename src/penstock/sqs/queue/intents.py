"""The intents of creating and deleting a queue, which every partition's record carries, and what a start makes of them.

A queue whose partitions are in several databases cannot be created or deleted in one commit. So each partition is
first stored as CREATING, and marked LIVE once all of them are; to delete the queue, each is marked DELETING, and
removed once all of them are. A crash between two commits leaves a mixture that says how far the operation came. Any
other mixture means that a database is missing, empty, restored from a backup or swapped with another.
"""

from collections.abc import Mapping
from enum import Enum


class QueueState(Enum):
    """How far the creation or deletion of a queue has come, as one of its partitions knows it."""

    CREATING = "creating"
    LIVE = "live"
    DELETING = "deleting"


class NextStep(Enum):
    """What to do with the partitions of a queue that were found."""

    SERVE = "serve"
    FINISH_CREATION = "finish creation"
    UNDO_CREATION = "undo creation"
    FINISH_DELETION = "finish deletion"
    REFUSE = "refuse"
    """No crash leaves this: something that should be there is missing."""


_COMPLETE = {
    frozenset({QueueState.LIVE}): NextStep.SERVE,
    frozenset({QueueState.LIVE, QueueState.CREATING}): NextStep.FINISH_CREATION,
    frozenset({QueueState.LIVE, QueueState.DELETING}): NextStep.FINISH_DELETION,
}
# Before the first partition is LIVE no message was taken; after the last is DELETING none is wanted.
_PARTIAL = {
    frozenset({QueueState.CREATING}): NextStep.UNDO_CREATION,
    frozenset({QueueState.DELETING}): NextStep.FINISH_DELETION,
}


def next_step(partitions: int, found: Mapping[int, QueueState]) -> NextStep:
    """Return what to do with a queue, from the states of those of its partitions that were found."""
    states = frozenset(found.values())
    step = _PARTIAL.get(states)
    if step is None and len(found) == partitions:
        step = _COMPLETE.get(states)
    return step or NextStep.REFUSE
