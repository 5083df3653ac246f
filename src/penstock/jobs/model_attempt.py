"""An attempt: one delivery of a job and what came of it."""

from enum import StrEnum

import msgspec

RESPONSE_KEPT_CHARACTERS = 2000

AttemptPlace = tuple[int, int]
"""The number of an attempt and its time: a job's attempts stand in this order."""

BEFORE_ALL_ATTEMPTS: AttemptPlace = (0, 0)


class AttemptOutcome(StrEnum):
    """How a delivery ended."""

    DELIVERED = "DELIVERED"
    FAILED = "FAILED"
    REFUSED = "REFUSED"
    DEFERRED = "DEFERRED"


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One delivery; `number` counts from 1. A deferred one (`ack: false`, 429) spends nothing of the schedule."""

    number: int
    outcome: AttemptOutcome
    at_ms: int
    duration_ms: int
    status_code: int | None = None
    response: str | None = None
    error: str | None = None

    @property
    def spends(self) -> bool:
        """Whether it counts against the retry schedule."""
        return self.outcome is not AttemptOutcome.DEFERRED


def kept_response(text: str) -> str:
    """The part of a response that is kept with the attempt."""
    # Neither database's text can hold a NUL.
    return text[:RESPONSE_KEPT_CHARACTERS].replace("\0", "\N{REPLACEMENT CHARACTER}")
