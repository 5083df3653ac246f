"""One micro-batch of attempts: into the lake, then into the statistics, each once however often the batch comes.

Lake and statistics each know the last attempt they hold, so that a batch which is repeated after a crash, by another
query, or after its checkpoint was lost, adds to each of them only what it lacks.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from penstock.domain.errors import Unavailable
from penstock.edge.clock import Clock
from penstock.events.statistics.minutes import Counted, Place
from penstock.events.statistics.store import KEPT_MS, Statistics
from penstock.pipeline.database import Database
from penstock.pipeline.facts.columns import is_after
from penstock.pipeline.facts.lake import Lake
from penstock.pipeline.facts.origins import with_origins
from penstock.pipeline.facts.shaping import FLAW, judged, shaped
from penstock.pipeline.facts.tally import Tally, tally
from penstock.pipeline.sources.set_aside import SetAside, set_aside

_TRIES = 3

Result = TypeVar("Result")
log = logging.getLogger(__name__)


class FactsBatch:
    """Takes in batches of attempts. A batch costs two small Spark jobs: one counts, one writes."""

    def __init__(self, database: Database, lake: Lake, clock: Clock) -> None:
        self._database = database
        self._lake = lake
        self._clock = clock

    def take_in(self, attempts: DataFrame) -> int:
        """Take in a batch; how many attempts were new to the lake or to the statistics."""
        now_ms = self._clock.now_ms()
        facts = shaped(with_origins(judged(attempts, now_ms), self._database)).persist()
        try:
            known = min(self._lake.upto(), self._counted_upto())
            new = self._tally(facts, known, now_ms)
            if new.upto > known:
                self._set_aside(new)
                self._keep(facts, new, known, now_ms)
                self._count(facts, new, known, now_ms)
            return new.facts + new.flawed
        finally:
            facts.unpersist()

    def _keep(self, facts: DataFrame, new: Tally, known: Place, now_ms: int) -> None:
        after = self._lake.upto()
        if new.upto <= after:
            return
        lacking = new if after == known else self._tally(facts, after, now_ms)
        sound = facts.where(f.col(FLAW).isNull())
        # Only after a crash: with a place in it a plan is new to Java, which takes seconds to compile it.
        if lacking.passed:
            sound = sound.where(is_after(after))
        self._lake.add(sound.drop(FLAW), lacking.days, new.upto)

    def _count(self, facts: DataFrame, new: Tally, known: Place, now_ms: int) -> None:
        for _ in range(_TRIES):
            after = self._counted_upto()
            if new.upto <= after:
                return
            lacking = new if after == known else self._tally(facts, after, now_ms)
            if self._add(lacking, after, now_ms):
                return
        raise Unavailable("attempts are being counted by somebody else too: run one engine only, Spark or inline")

    def _add(self, lacking: Tally, after: Place, now_ms: int) -> bool:
        counted = Counted(
            upto=lacking.upto,
            minutes=lacking.minutes,
            leaders=lacking.leaders,
            rows=lacking.facts,
            set_aside=lacking.flawed,
            repaired=lacking.repaired,
        )
        return self._asked(lambda statistics: statistics.add(counted, after, now_ms))

    def _tally(self, facts: DataFrame, after: Place, now_ms: int) -> Tally:
        # Minutes that are too old to be kept are not even counted.
        return tally(facts, after, now_ms - KEPT_MS)

    def _set_aside(self, new: Tally) -> None:
        if new.flawed:
            set_aside(self._database, [SetAside("attempts", key, flaw) for key, flaw in new.flaws])
            log.warning("%d of %d attempts cannot be true and were set aside", new.flawed, new.facts + new.flawed)

    def _counted_upto(self) -> Place:
        async def upto(statistics: Statistics) -> Place:
            return (await statistics.progress()).upto

        return self._asked(upto)

    def _asked(self, question: Callable[[Statistics], Awaitable[Result]]) -> Result:
        async def ask() -> Result:
            repository = self._database.repository()
            await repository.open(self._clock.now_ms())
            try:
                return await question(repository.statistics)
            finally:
                await repository.close()

        return asyncio.run(ask())
