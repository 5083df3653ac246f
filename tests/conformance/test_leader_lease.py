"""One suite for every keeper of the leader's lease: SQLite, PostgreSQL, Redis, and Redis fenced by a database."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from penstock.cluster.errors import LeaseUnavailable
from penstock.cluster.lease import FencedLease, Lease, SqlLease
from penstock.cluster.redis_lease import RedisLease
from penstock.cluster.standby import Standby
from penstock.domain.errors import Unavailable
from penstock.events.store.postgres import postgres_repository
from penstock.events.store.repository import JobRepository
from penstock.events.store.sqlite import sqlite_repository
from penstock.testing.clock import VirtualClock
from tests.services.redis import RedisServer
from tests.services.server_process import free_port

WITHIN_S = 20
TTL_S = 30.0
SHORT_S = 0.2


class LeaseRig:
    """Makes the same lease for several holders, and lets its time pass."""

    def __init__(self, of: Callable[[str], Lease], short_s: float, let_pass: Callable[[], Awaitable[None]]) -> None:
        self.of = of
        self.short_s = short_s
        self.let_pass = let_pass


@pytest.fixture(params=["sqlite", "postgres", "redis", "fenced-redis"])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LeaseRig]:
    """A lease that no one has held yet, at each keeper."""
    async with AsyncExitStack() as opened:
        if request.param == "redis":
            yield _in_redis(opened, request)
        elif request.param == "fenced-redis":
            yield await _fenced(opened, request, tmp_path)
        else:
            clock = VirtualClock()
            jobs = await _opened(opened, request, request.param, tmp_path)

            async def pass_by() -> None:
                clock.advance(TTL_S)

            yield LeaseRig(lambda holder: SqlLease(jobs, clock, "scheduler", holder), TTL_S, pass_by)


def _in_redis(opened: AsyncExitStack, request: pytest.FixtureRequest) -> LeaseRig:
    server: RedisServer = request.getfixturevalue("redis_server")
    name = uuid4().hex

    def of(holder: str) -> Lease:
        lease = RedisLease(server.url, name, holder)
        opened.push_async_callback(lease.close)
        return lease

    return LeaseRig(of, SHORT_S, _real_time)


async def _fenced(opened: AsyncExitStack, request: pytest.FixtureRequest, tmp_path: Path) -> LeaseRig:
    plain = _in_redis(opened, request)
    jobs = await _opened(opened, request, "sqlite", tmp_path)
    clock = VirtualClock()
    return LeaseRig(
        lambda holder: FencedLease(plain.of(holder), SqlLease(jobs, clock, "scheduler", holder)), SHORT_S, _real_time
    )


async def _real_time() -> None:
    await asyncio.sleep(SHORT_S * 1.5)


async def _opened(
    opened: AsyncExitStack, request: pytest.FixtureRequest, database: str, tmp_path: Path
) -> JobRepository:
    if database == "sqlite":
        jobs = sqlite_repository(tmp_path / "jobs.db")
    else:
        jobs = postgres_repository(request.getfixturevalue("postgres_database"))
    opened.push_async_callback(jobs.close)
    await jobs.open(VirtualClock().now_ms())
    return jobs


async def test_only_one_holds_the_lease(rig: LeaseRig) -> None:
    first, second = rig.of("first"), rig.of("second")
    assert await first.acquire(TTL_S) is not None
    assert await second.acquire(TTL_S) is None
    assert await first.acquire(TTL_S) is None


async def test_of_many_that_ask_at_once_one_gets_it(rig: LeaseRig) -> None:
    contenders = [rig.of(f"node{number}") for number in range(8)]
    tokens = await asyncio.gather(*(each.acquire(TTL_S) for each in contenders))
    assert len([token for token in tokens if token is not None]) == 1


async def test_a_lease_that_is_given_back_is_free_at_once_with_a_larger_token(rig: LeaseRig) -> None:
    first, second = rig.of("first"), rig.of("second")
    one = await first.acquire(TTL_S)
    assert one is not None
    await first.release(one)
    two = await second.acquire(TTL_S)
    assert two is not None
    assert two > one


async def test_a_lease_that_runs_out_is_free_and_its_holder_cannot_renew_it(rig: LeaseRig) -> None:
    first, second = rig.of("first"), rig.of("second")
    one = await first.acquire(rig.short_s)
    assert one is not None
    await rig.let_pass()
    assert not await first.renew(one, TTL_S)
    two = await second.acquire(TTL_S)
    assert two is not None
    assert two > one
    assert not await first.renew(one, TTL_S)


async def test_a_lease_that_is_renewed_lasts(rig: LeaseRig) -> None:
    first, second = rig.of("first"), rig.of("second")
    one = await first.acquire(rig.short_s)
    assert one is not None
    assert await first.renew(one, 10 * TTL_S)
    await rig.let_pass()
    assert await second.acquire(TTL_S) is None
    assert await first.renew(one, TTL_S)


async def test_who_lost_the_lease_takes_nothing_from_the_next_holder(rig: LeaseRig) -> None:
    first, second = rig.of("first"), rig.of("second")
    one = await first.acquire(rig.short_s)
    assert one is not None
    await rig.let_pass()
    two = await second.acquire(TTL_S)
    assert two is not None
    await first.release(one)
    assert await first.acquire(TTL_S) is None
    assert await second.renew(two, TTL_S)


async def test_the_same_holder_gets_a_new_token_when_it_comes_back(rig: LeaseRig) -> None:
    lease = rig.of("first")
    one = await lease.acquire(TTL_S)
    assert one is not None
    await lease.release(one)
    two = await lease.acquire(TTL_S)
    assert two is not None
    assert two > one
    assert not await lease.renew(one, TTL_S)


async def test_a_standby_takes_over_when_the_leader_stops(rig: LeaseRig) -> None:
    async with asyncio.timeout(WITHIN_S):
        nodes = [Standby(rig.of(name)) for name in ("first", "second")]
        leading = asyncio.create_task(nodes[0].run())
        await nodes[0].becomes(True)
        waiting = asyncio.create_task(nodes[1].run())
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)
        assert not nodes[0].is_primary()
        await nodes[1].becomes(True)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_redis_that_does_not_answer_is_unavailable() -> None:
    lease = RedisLease(f"redis://:secret@127.0.0.1:{free_port()}/0", "scheduler", "first")
    try:
        with pytest.raises(LeaseUnavailable) as raised:
            await lease.acquire(TTL_S)
        assert isinstance(raised.value, Unavailable)
        assert "secret" not in str(raised.value)
    finally:
        await lease.close()
