"""The inline engine's statistics: new attempts are counted every few seconds, by the pipeline's own rules."""

import logging
from typing import TYPE_CHECKING

from penstock.edge.clock import Clock
from penstock.edge.pause import Pause
from penstock.events.statistics.facts import AttemptRow, fact_of, flaw_of
from penstock.events.statistics.minutes import Counted, StatisticsPlace, count, count_leaders

if TYPE_CHECKING:
    from penstock.events.store import Statistics

EVERY_S = 5.0
AT_ONCE = 5_000

log = logging.getLogger(__name__)


class InlineCounter:
    """Counts what was delivered since it counted last. Several may run: each attempt is counted once."""

    def __init__(self, statistics: "Statistics", clock: Clock, pause: Pause) -> None:
        self._statistics = statistics
        self._clock = clock
        self._pause = pause

    async def run(self) -> None:
        """Count until cancelled; what goes wrong is logged, and does not end it."""
        while True:
            await self._pause(EVERY_S)
            try:
                while await self.count_some(AT_ONCE) == AT_ONCE:
                    await self._pause(0)
            except Exception:
                log.exception("attempts could not be counted; the next try is in %g s", EVERY_S)

    async def count_some(self, most: int) -> int:
        """Count the next attempts, at most so many; how many there were."""
        after = (await self._statistics.progress()).upto
        rows = await self._statistics.attempts_after(after, most)
        if not rows:
            return 0
        now_ms = self._clock.now_ms()
        sound = [row for row in rows if self._is_sound(row, now_ms)]
        jobs = await self._statistics.origins(sorted({row.job_id for row in sound if row.job_id is not None}))
        facts = [fact_of(row, jobs.get(row.job_id or "")) for row in sound]
        counted = Counted(
            upto=_place(rows[-1]),
            minutes=count(facts),
            leaders=count_leaders(facts),
            rows=len(facts),
            set_aside=len(rows) - len(sound),
            repaired=sum(fact.repaired for fact in facts),
        )
        await self._statistics.add(counted, after, now_ms)
        return len(rows)

    def _is_sound(self, row: AttemptRow, now_ms: int) -> bool:
        flaw = flaw_of(row, now_ms)
        if flaw is not None:
            log.warning("attempt %s is not counted: %s", row.number, flaw, extra={"job": row.job_id})
        return flaw is None


def _place(row: AttemptRow) -> StatisticsPlace:
    return StatisticsPlace(row.position, row.job_id or "", row.number or 0, row.at_ms or 0)
