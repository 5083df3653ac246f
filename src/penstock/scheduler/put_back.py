"""Jobs that could not be published go back to PENDING after a pause.

Until then their claims keep the later jobs of their groups back (ruling 18), and nobody tries them in a tight loop.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from penstock.domain.job import ClaimedJob
from penstock.edge.clock import pause
from penstock.scheduler.claims import Claims

log = logging.getLogger(__name__)

_CROWD = 1000


class PutBack:
    """Keeps failed jobs for a while, then gives them back."""

    def __init__(self, claims: Claims, pause_s: float, seconds: Callable[[], float]) -> None:
        self._claims = claims
        self._pause_s = pause_s
        self._seconds = seconds
        self._waiting: deque[tuple[float, Sequence[ClaimedJob]]] = deque()
        self._filled = asyncio.Event()
        self._jobs_held = 0

    @property
    def is_crowded(self) -> bool:
        """Whether more jobs are here than a few groups in trouble explain."""
        return self._jobs_held > _CROWD

    def add(self, jobs: Sequence[ClaimedJob]) -> None:
        """These could not be published."""
        self._waiting.append((self._seconds() + self._pause_s, jobs))
        self._jobs_held += len(jobs)
        self._filled.set()

    async def run(self) -> None:
        """Give jobs back when their pause is over, until cancelled."""
        while True:
            await self._filled.wait()
            due_s, _ = self._waiting[0]
            await pause(max(0.0, due_s - self._seconds()))
            await self._give_back_next()

    async def give_back_all(self) -> None:
        """Give everything back at once."""
        while self._waiting:
            await self._give_back_next()

    async def _give_back_next(self) -> None:
        _, jobs = self._waiting[0]
        try:
            await self._claims.give_back(jobs)
        except Exception as error:
            # Their claims end by themselves.
            log.warning("jobs could not be given back", extra={"jobs": len(jobs), "error": str(error)})
        self._waiting.popleft()
        self._jobs_held -= len(jobs)
        if not self._waiting:
            self._filled.clear()
