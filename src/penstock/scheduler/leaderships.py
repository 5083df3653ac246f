"""From the word for a hot standby to the leadership it means."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from penstock.edge.clock import Clock
from penstock.scheduler.errors import InvalidStandby
from penstock.scheduler.fenced_lease import FencedLease
from penstock.scheduler.lease import Lease
from penstock.scheduler.sql_lease import LeaseTable, SqlLease

if TYPE_CHECKING:
    from penstock.scheduler.redis_lease import RedisLease

OFF = "off"
SQL = "sql"
_REDIS = ("redis://", "rediss://", "unix://")


@asynccontextmanager
async def lease_for(
    standby: str, table: LeaseTable, clock: Clock, name: str, holder: str
) -> AsyncIterator[Lease | None]:
    """The lease that nodes contend for; None when the word is `off`. `table` is the database that is fenced by it."""
    in_sql = SqlLease(table, clock, name, holder)
    async with AsyncExitStack() as opened:
        if standby == OFF:
            yield None
        elif standby == SQL:
            yield in_sql
        elif standby.startswith(_REDIS):
            in_redis = _redis_lease(standby, name, holder)
            opened.push_async_callback(in_redis.close)
            yield FencedLease(in_redis, in_sql)
        else:
            raise InvalidStandby("the standby is none of: off, sql, redis://host:port/0")


def _redis_lease(url: str, name: str, holder: str) -> "RedisLease":
    try:
        from penstock.scheduler.redis_lease import RedisLease
    except ModuleNotFoundError as error:
        raise InvalidStandby(f"a lease in Redis needs its client ({error}): pip install 'penstock[redis]'") from error
    return RedisLease(url, name, holder)
