"""A rate limit that several routers share, whatever their answers' delays are and whoever crashes."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.errors import Unavailable
from penstock.domain.pace.rate import GRANT_HOLD_MS, WINDOW_MS, Grant
from penstock.router.pools.shared_rate import SharedRate

Step = tuple[int, int, bool]
steps = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20_000), st.booleans()), min_size=1, max_size=80)


class Table:
    """The permits of all routers, counted when they are asked for."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._counted: dict[int, tuple[int, int]] = {}

    async def take(self, pool: str, wanted: int, limit: int, unused: Grant | None) -> Grant:
        if unused is not None and unused.id in self._counted:
            at_ms, count = self._counted[unused.id]
            self._counted[unused.id] = at_ms, count - unused.count
        recent = [count for at_ms, count in self._counted.values() if at_ms + WINDOW_MS + GRANT_HOLD_MS >= self.now_ms]
        count = min(wanted, limit - sum(recent))
        if count <= 0:
            return Grant(0, 0, 0.5)
        number = len(self._counted) + 1
        self._counted[number] = self.now_ms, count
        return Grant(number, count)

    async def aclose(self) -> None:
        pass


@given(limit=st.integers(1, 12), steps=steps)
def test_routers_together_never_exceed_the_limit_in_any_minute(limit: int, steps: list[Step]) -> None:
    async def run() -> list[int]:
        table = Table()
        routers = [SharedRate(table, "pool", limit) for _ in range(3)]
        used: list[int] = []
        for which, pause_ms, crashes in steps:
            table.now_ms += pause_ms
            if crashes:
                routers[which] = SharedRate(table, "pool", limit)
            for _ in range(limit + 1):
                if routers[which].take(table.now_ms):
                    used.append(table.now_ms)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        return used

    used = asyncio.run(run())
    for place, at_ms in enumerate(used):
        assert sum(at_ms <= other <= at_ms + WINDOW_MS for other in used[place:]) <= limit


def test_a_single_router_gets_the_whole_limit() -> None:
    async def run() -> int:
        table = Table()
        router = SharedRate(table, "pool", 100)
        taken = 0
        for _ in range(300):
            taken += router.take(table.now_ms)
            await asyncio.sleep(0)
            table.now_ms = max(table.now_ms, router.ready_at_ms(table.now_ms)) if taken < 100 else table.now_ms
        return taken

    assert asyncio.run(run()) == 100


def test_a_pool_is_unused_only_if_no_permit_was_taken_within_the_window() -> None:
    async def run() -> None:
        table = Table()
        rate = SharedRate(table, "pool", 5)
        assert rate.is_unused(0)
        assert not rate.take(table.now_ms)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert rate.take(table.now_ms)
        assert [rate.is_unused(at_ms) for at_ms in (0, WINDOW_MS, WINDOW_MS + 1)] == [False, False, True]

    asyncio.run(run())


def test_a_table_that_fails_is_asked_again_after_a_pause() -> None:
    class Away(Table):
        asked = 0

        async def take(self, pool: str, wanted: int, limit: int, unused: Grant | None) -> Grant:
            self.asked += 1
            raise Unavailable("the database is away")

    async def asked_at(rate: SharedRate, now_ms: int) -> None:
        assert rate.take(now_ms) is False
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def run() -> None:
        table = Away()
        rate = SharedRate(table, "pool", 5)
        await asked_at(rate, 10_000)
        again_ms = rate.ready_at_ms(10_000)
        assert again_ms > 10_000
        await asked_at(rate, again_ms - 1)
        assert table.asked == 1
        await asked_at(rate, again_ms)
        assert table.asked == 2

    asyncio.run(run())
