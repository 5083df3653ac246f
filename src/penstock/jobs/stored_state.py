"""How statuses and modes are kept in a column: small numbers, the same in both databases, never renumbered."""

from enum import IntEnum

from penstock.domain.job_state import JobStatus
from penstock.domain.pointer import DispatchMode


class StoredState(IntEnum):
    """A status as it is kept. PENDING is three of them, so that each can be found without looking at the others."""

    WAITING = 0  # PENDING, not due yet
    READY = 1  # PENDING and due
    CLAIMED = 2  # PENDING and being published
    QUEUED = 3
    PROCESSING = 4
    COMPLETED = 5
    ERROR = 6
    CANCELLED = 7
    EXPIRED = 8


class StoredMode(IntEnum):
    """A dispatch mode as it is kept; the ordered ones are the positive ones."""

    IMMEDIATE = 0
    NEXT_ON_ERROR = 1
    BLOCK_ON_ERROR = 2


_PENDING = (StoredState.WAITING, StoredState.READY, StoredState.CLAIMED)

STATUS_OF: tuple[JobStatus, ...] = tuple(
    JobStatus.PENDING if state in _PENDING else JobStatus[state.name] for state in StoredState
)
MODE_OF: tuple[DispatchMode, ...] = tuple(DispatchMode[mode.name] for mode in StoredMode)
CODE_OF_MODE: dict[DispatchMode, int] = {mode: code for code, mode in enumerate(MODE_OF)}


def codes_of(status: JobStatus) -> list[int]:
    """The numbers that a status is kept as."""
    return [code for code, known in enumerate(STATUS_OF) if known is status]
