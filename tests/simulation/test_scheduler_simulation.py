"""Two schedulers with a flapping lease, crashes and pauses at any moment, a queue that fails, a consumer that fails and
loses pointers: nothing is lost, groups stay in order, nothing comes after the end.

The real SQL, scheduler and standby run on virtual time. A finding names its seed: run that seed again.
"""

import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from penstock.edge.clock import Clock
from penstock.events.dispatch import pending_job_poller
from penstock.events.dispatch.recovery import StaleQueuedJobPoller
from penstock.events.store import JobRepository
from tests.rigs.search import first_seed
from tests.simulation.scheduler import STEPS, simulate_scheduler

# The later seeds are long tests; SIMULATED_SEEDS says how many of them.
LONG_SEEDS = int(os.environ.get("SIMULATED_SEEDS", "30"))
SEEDS = [*range(2), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, LONG_SEEDS))]
FOUND_WITHIN = 6


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What goes wrong on purpose is not worth thousands of lines."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_to_schedulers_queue_and_lease_jobs_arrive_once_and_in_order(seed: int) -> None:
    findings, world = simulate_scheduler(first_seed() + seed)
    again = f"to run it again: python -m tests.simulation.scheduler --first {first_seed() + seed} --seeds 1"
    assert findings == [], again
    assert len(world.made) > STEPS
    assert {entry.pointer.id for entry in world.rig.queue.entries} <= set(world.made)


def found(part: str) -> bool:
    """Return whether one of the first seeds finds something."""
    return any(part in finding for seed in range(FOUND_WITHIN) for finding in simulate_scheduler(seed)[0])


def test_a_scheduler_whose_retries_wait_for_the_next_poll_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleep(jobs: JobRepository, clock: Clock, most_s: float, look_ms: int | None = None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                await jobs.signal.wait()

    monkeypatch.setattr(pending_job_poller, "wait_for_work", sleep)
    assert found("after its retry was due")


def test_a_scheduler_that_recovers_jobs_by_their_age_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def everything_is_settled(self: StaleQueuedJobPoller, pool: str) -> int:
        return self._clock.now_ms()

    monkeypatch.setattr(StaleQueuedJobPoller, "_settled_before_ms", everything_is_settled)
    assert found("was recovered while its pointer was in the queue")
