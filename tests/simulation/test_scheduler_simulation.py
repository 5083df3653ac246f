"""Two schedulers with a flapping lease, crashes and pauses at any moment, a queue that fails, a consumer that fails and
loses pointers: nothing is lost, groups stay in order, nothing comes after the end.

The real SQL, scheduler and standby run on virtual time. A finding names its seed: run that seed again.
"""

import logging
from collections.abc import Iterator

import pytest

from penstock.events.dispatch.recovery import StaleQueuedJobPoller
from penstock.testing.virtual_loop import LoopClock, run_virtual
from tests.rigs.scheduler_world import World
from tests.rigs.search import first_seed

# Other ones for each day and commit; the later are long tests.
PLACES = [*range(2), *(pytest.param(place, marks=pytest.mark.long) for place in range(2, 30))]
FOUND_WITHIN = 6
STEPS = 40


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What goes wrong on purpose is not worth thousands of lines."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("place", PLACES)
def test_whatever_happens_to_schedulers_queue_and_lease_jobs_arrive_once_and_in_order(place: int) -> None:
    world: list[World] = []
    seed = first_seed() + place

    async def main(clock: LoopClock) -> list[str]:
        world.append(World(clock, seed))
        return await world[0].run(STEPS)

    assert (seed, run_virtual(main)) == (seed, [])
    assert len(world[0].made) > STEPS
    assert {entry.pointer.id for entry in world[0].rig.queue.entries} <= set(world[0].made)


def test_a_scheduler_that_recovers_jobs_by_their_age_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def everything_is_settled(self: StaleQueuedJobPoller, pool: str) -> int:
        return self._clock.now_ms()

    monkeypatch.setattr(StaleQueuedJobPoller, "_settled_before_ms", everything_is_settled)

    def findings(seed: int) -> list[str]:
        async def main(clock: LoopClock) -> list[str]:
            return await World(clock, seed).run(STEPS)

        return run_virtual(main)

    assert any(
        "was recovered while its pointer was in the queue" in finding
        for seed in range(FOUND_WITHIN)
        for finding in findings(seed)
    )
