"""The lanes of a database, claimed as a whole by whoever publishes from them; each call is one transaction."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from penstock.domain.job import ClaimedJob
from penstock.domain.order import LaneKey
from penstock.jobs import lane_claiming
from penstock.jobs.lane_claiming import AwakeRange, LaneOwner
from penstock.jobs.transaction import Transaction

Result = TypeVar("Result")


class Database(Protocol):
    """What lanes need of a database."""

    async def write(self, work: Callable[[Transaction], Result]) -> Result:
        """Do work as a whole or not at all."""
        ...

    async def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Do work that changes nothing."""
        ...


class Lanes:
    """Lanes that have jobs to publish; StaleLeader when the owner's token is not the newest any more."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def any_awake(self) -> bool:
        """Whether a claim might find something."""
        return await self._database.read(lane_claiming.any_awake)

    async def awake_ranges(self, owner: str, most: int, parts: int) -> list[AwakeRange]:
        """The lanes whose turn it is, at most so many, in up to `parts` ranges; and those the owner has claimed."""
        return await self._database.read(lambda tx: lane_claiming.awake_ranges(tx, owner, most, parts))

    async def claim(self, lanes: Mapping[LaneKey, int], owner: LaneOwner, now_ms: int, lease_ms: int) -> list[LaneKey]:
        """Take lanes that are nobody's or this owner's already, and were not served since they had the turn given with
        each; those that are its own now."""
        return await self._database.write(lambda tx: lane_claiming.claim_lanes(tx, lanes, owner, now_ms, lease_ms))

    async def let_sleep(self, lanes: Sequence[LaneKey], owner: LaneOwner, now_ms: int) -> None:
        """These were found with nothing to give; unless that has changed they sleep until somebody wakes them."""
        await self._database.write(lambda tx: lane_claiming.let_sleep(tx, lanes, owner, now_ms))

    async def mark_published(
        self, jobs: Sequence[ClaimedJob], done: Sequence[LaneKey], owner: LaneOwner, now_ms: int, lease_until_ms: int
    ) -> None:
        """These jobs are in the queue, and the lanes that are done are nobody's again."""
        await self._database.write(
            lambda tx: lane_claiming.mark_published(tx, jobs, done, owner, now_ms, lease_until_ms)
        )

    async def hold(self, lanes: Sequence[tuple[LaneKey, int]], owner: LaneOwner) -> None:
        """Nobody publishes from these claimed lanes before a moment, given with each."""
        await self._database.write(lambda tx: lane_claiming.hold_lanes(tx, lanes, owner))

    async def count_ready(self, most: int) -> int:
        """How many jobs wait to be published, counted up to `most`."""
        return await self._database.read(lambda tx: lane_claiming.count_ready(tx, most))
