"""Terms of leadership, one after the other: each runs while this node leads."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from penstock.jobs.errors import StaleLeader
from penstock.scheduler.counts import Counts
from penstock.scheduler.patient_publisher import Pause
from penstock.scheduler.standby import Leadership

log = logging.getLogger(__name__)

# After a term that ended in a way nobody expected.
_PAUSE_S = 1.0


class RunningTerm(Protocol):
    """What only the leader does, from the moment it leads until it does not."""

    async def run(self) -> None:
        """Do everything until cancelled; StaleLeader, in a group, when another leads."""

    async def close(self) -> None:
        """Let what is under way end, and give the rest back."""


class Terms:
    """Runs a new term whenever this node leads."""

    def __init__(
        self, leadership: Leadership, new_term: Callable[[], RunningTerm], counts: Counts, pause: Pause
    ) -> None:
        self._leadership = leadership
        self._new_term = new_term
        self._counts = counts
        self._pause = pause

    async def run(self) -> None:
        """Lead whenever it is this node's turn, until cancelled; nothing that goes wrong ends it."""
        while True:
            await self._leadership.becomes(True)
            await self._lead()

    async def _lead(self) -> None:
        """One term: ends when the lease is lost or another leads."""
        self._counts.terms += 1
        term = self._new_term()
        work = asyncio.create_task(term.run(), name="scheduler-term")
        lost = asyncio.create_task(self._leadership.becomes(False), name="leadership-lost")
        try:
            await asyncio.wait((work, lost), return_when=asyncio.FIRST_COMPLETED)
        finally:
            work.cancel()
            lost.cancel()
            await asyncio.gather(work, lost, return_exceptions=True)
            await term.close()
        if not work.cancelled():
            await self._explain(work.exception())

    async def _explain(self, error: BaseException | None) -> None:
        if isinstance(error, BaseExceptionGroup) and error.subgroup(StaleLeader):
            log.warning("another node leads: this one stands down", extra={"token": self._leadership.token})
            self._leadership.stand_down()
            return
        self._counts.errors += 1
        log.error("the scheduler stopped in a way nobody expected; it starts again", exc_info=error)
        await self._pause(_PAUSE_S)
