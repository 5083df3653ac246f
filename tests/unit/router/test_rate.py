"""The rate limit of a pool at work: who waits, for how long, and what a change does."""

import asyncio

import pytest

from penstock.domain.pace.rate import WINDOW_MS
from tests.rigs.router import (
    SERVER_ERROR,
    on_virtual_time,
    pointer,
    pool_p,
    pools,
    quiet,
    running,
)

NEXT_MS = WINDOW_MS + 1
"""When a permit that was taken at 0 is there again."""


@on_virtual_time
async def test_a_burst_goes_at_once_and_the_rest_exactly_when_the_window_has_moved_on() -> None:
    async with running(pool_p(10, rate_limit_per_minute=3), takes_s=0) as rig:
        rig.source.give(*(pointer(f"m{number}", f"g{number}") for number in range(8)))
        await rig.idle()

        starts_ms = [delivery.started_ms for delivery in rig.mediator.deliveries]
        assert starts_ms == [0] * 3 + [NEXT_MS] * 3 + [2 * NEXT_MS] * 2


@on_virtual_time
async def test_who_waits_for_the_rate_limit_is_served_first_come_first_served() -> None:
    async with running(pool_p(10, rate_limit_per_minute=2), takes_s=0) as rig:
        for number in range(6):
            rig.source.give(pointer(f"m{number}", f"g{number}"))
            await asyncio.sleep(1)
        await rig.idle()

        assert rig.mediator.order == [f"m{number}" for number in range(6)]
        starts_ms = [delivery.started_ms for delivery in rig.mediator.deliveries]
        assert starts_ms == [0, 1000, NEXT_MS, NEXT_MS + 1000, 2 * NEXT_MS, 2 * NEXT_MS + 1000]


@on_virtual_time
async def test_rate_limited_messages_stay_here_and_keep_no_worker() -> None:
    async with running(pool_p(10, rate_limit_per_minute=1), takes_s=0) as rig:
        await asyncio.sleep(100)
        rig.source.give(pointer("a", "1"), pointer("b", "2"))
        await asyncio.sleep(30)

        view = rig.pool()
        assert (view.rate_limited, view.queued, view.active) == (True, 1, 0)
        assert view.oldest_waiting_s == pytest.approx(30, abs=0.01)
        assert rig.source.nacked == {}
        await rig.idle()
        assert rig.metrics.pool("P").rate_limit_waits == 1


@on_virtual_time
async def test_every_attempt_takes_a_permit_of_its_own() -> None:
    async with running(pool_p(10, rate_limit_per_minute=2), takes_s=0, script={"a": [SERVER_ERROR] * 3}) as rig:
        rig.source.give(pointer("a"))
        await rig.idle()

        assert rig.mediator.starts_ms("a") == [0, 1000, NEXT_MS]


@pytest.mark.parametrize("limit", [None, 4])
@on_virtual_time
async def test_a_higher_limit_and_none_hold_at_once_for_those_who_wait(limit: int | None) -> None:
    async with running(pool_p(10, rate_limit_per_minute=1), takes_s=0) as rig:
        rig.source.give(*(pointer(f"m{number}", f"g{number}") for number in range(4)))
        await asyncio.sleep(20)
        assert len(rig.mediator.deliveries) == 1
        await rig.router.apply(pools(pool_p(10, limit)))
        await quiet()

        assert [delivery.started_ms for delivery in rig.mediator.deliveries] == [0, 20_000, 20_000, 20_000]
        assert rig.pool().rate_limited is False


@on_virtual_time
async def test_a_lower_limit_counts_what_was_started_before() -> None:
    async with running(pool_p(10, rate_limit_per_minute=5), takes_s=0) as rig:
        for number in range(3):
            rig.source.give(pointer(f"m{number}", f"g{number}"))
            await asyncio.sleep(10)
        await rig.router.apply(pools(pool_p(10, 2)))
        rig.source.give(pointer("late", "late"))
        await rig.idle()

        # Started at 0, 10 and 20 s: the third last must be out of the window, and that is the one at 10 s.
        assert rig.mediator.starts_ms("late") == [10_000 + NEXT_MS]


@on_virtual_time
async def test_a_limit_lowered_and_raised_again_has_forgotten_nothing() -> None:
    async with running(pool_p(10, rate_limit_per_minute=3), takes_s=0) as rig:
        rig.source.give(*(pointer(f"m{number}", f"g{number}") for number in range(3)))
        await asyncio.sleep(1)
        await rig.router.apply(pools(pool_p(10, 1)))
        await rig.router.apply(pools(pool_p(10, 3)))
        rig.source.give(pointer("late", "late"))
        await rig.idle()

        assert rig.mediator.starts_ms("late") == [NEXT_MS]


@on_virtual_time
async def test_a_pool_that_is_dropped_and_comes_back_has_not_forgotten_its_last_minute() -> None:
    async with running(pool_p(10, rate_limit_per_minute=1), takes_s=0) as rig:
        rig.source.give(pointer("a"))
        await quiet()
        await rig.router.apply(pools())
        await asyncio.sleep(15)
        await rig.router.clean_up_drained()
        await rig.router.apply(pools(pool_p(10, 1)))
        rig.source.give(pointer("b"))
        await rig.idle()

        assert rig.mediator.starts_ms("b") == [NEXT_MS]
