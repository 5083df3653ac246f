"""What a round reads of the lanes whose turn it is, from both databases."""

from collections.abc import AsyncIterator

import pytest

from penstock.domain.job import NewJob
from penstock.domain.pointer import DispatchMode
from penstock.edge.clock import SystemClock
from penstock.events.dispatch.settings import SchedulerSettings
from penstock.events.dispatch.spark.lanes import planned_lanes
from penstock.events.dispatch.spark.messages import DispatchSettings
from penstock.events.dispatch.spark.round import DispatchRounds
from penstock.events.store.repository import JobRepository
from penstock.events.store.repository.lanes import LaneOwner
from penstock.spark.database import SparkDatabase
from tests.pipeline.dispatch_engines import destination
from tests.rigs.jobs import unlimited

GROUPS, PER_GROUP = 9, 8
NOW_MS = SystemClock().now_ms()
OWNER = LaneOwner("a round")
MODES = (DispatchMode.BLOCK_ON_ERROR, DispatchMode.NEXT_ON_ERROR)


@pytest.fixture
async def jobs(database: SparkDatabase) -> AsyncIterator[JobRepository]:
    """A few groups, each with jobs of both ordered modes by turns."""
    repository = database.repository()
    await repository.open(NOW_MS)
    made = [
        NewJob(
            id=f"{number:013}",
            target="https://a.example",
            created_at_ms=NOW_MS,
            group=f"g{number % GROUPS}",
            mode=MODES[number // GROUPS % 2],
            sequence=number,
        )
        for number in range(GROUPS * PER_GROUP)
    ]
    await repository.create_jobs(made, NOW_MS)
    yield repository
    await repository.close()


async def read(database: SparkDatabase, jobs: JobRepository, most: int, per_lane: int) -> dict[str, list[int]]:
    """The numbers of the jobs that a round of `most` jobs would publish, by group."""
    settings = DispatchSettings(scheduler=SchedulerSettings(jobs_per_lane=per_lane))
    rounds = DispatchRounds(database=database, destination=destination("sqlite:///q"), settings=settings)
    ranges = await jobs.lanes.awake_ranges(OWNER.name, NOW_MS, most, unlimited())
    spec = rounds.spec(ranges, OWNER, now_ms=NOW_MS + 1, until_ms=NOW_MS + 1)
    found: dict[str, list[int]] = {}
    for batch in planned_lanes(database, spec.ranges, spec):
        for row in batch.to_pylist():
            found.setdefault(row["group_key"].rpartition(":")[2], []).append(int(row["id"]))
    return found


def first_of(group: str, count: int) -> list[int]:
    return [int(group[1:]) + GROUPS * place for place in range(count)]


async def test_a_lane_gives_several_jobs_when_it_is_its_turn_and_later_lanes_wait(
    database: SparkDatabase, jobs: JobRepository
) -> None:
    found = await read(database, jobs, most=20, per_lane=4)

    # By mode up to four rows are read of a lane, so two lanes fit into twenty rows.
    assert found == {group: first_of(group, 4) for group in ("g0", "g1")}


async def test_lanes_share_a_round_that_is_large_enough_for_all(database: SparkDatabase, jobs: JobRepository) -> None:
    found = await read(database, jobs, most=GROUPS * PER_GROUP, per_lane=PER_GROUP)

    assert found == {f"g{number}": first_of(f"g{number}", PER_GROUP) for number in range(GROUPS)}


async def test_the_smallest_round_has_a_whole_lane(database: SparkDatabase, jobs: JobRepository) -> None:
    found = await read(database, jobs, most=1, per_lane=4)

    assert found == {"g0": first_of("g0", 4)}
