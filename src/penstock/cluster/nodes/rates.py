"""Permits of rate limits that several routers share, in tables of their database (ROUTER-RATE-6)."""

import asyncio

import psycopg

from penstock.domain.errors import PenstockError
from penstock.domain.limits import SECOND_MS
from penstock.domain.pace.rate import GRANT_HOLD_MS, WINDOW_MS, Grant
from penstock.engine import StoreFailed
from penstock.engine.store.postgres_address import PostgresAddress, Session

# Permits are used up to a second after they are counted, so the window is longer than a minute by as much.
_WINDOW_S = (WINDOW_MS + GRANT_HOLD_MS) / SECOND_MS + 0.1

_CREATE = """
SELECT pg_advisory_xact_lock(hashtext('penstock_cluster'));
CREATE SCHEMA IF NOT EXISTS penstock_cluster;
CREATE TABLE IF NOT EXISTS penstock_cluster.permits (
    pool text, at timestamptz, id bigint GENERATED ALWAYS AS IDENTITY, count integer NOT NULL,
    PRIMARY KEY (pool, at, id)
);
"""
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('penstock permits ' || %s, 0))"
_RETURN = "UPDATE permits SET count = count - %s WHERE pool = %s AND id = %s"
_FORGET = "DELETE FROM permits WHERE pool = %s AND (count <= 0 OR at <= clock_timestamp() - make_interval(secs => %s))"
_TAKE = """
INSERT INTO permits (pool, at, count)
SELECT %(pool)s, clock_timestamp(), least(%(wanted)s, %(limit)s - coalesce(sum(count), 0)) FROM permits
WHERE pool = %(pool)s HAVING coalesce(sum(count), 0) < %(limit)s RETURNING id, count
"""
_NEXT = """
SELECT extract(epoch FROM min(at) - clock_timestamp())::float8 + %s FROM permits WHERE pool = %s
"""


class RatePermits:
    """Counts the permits of all routers; one connection, opened again after an error."""

    def __init__(self, url: str) -> None:
        self._address = PostgresAddress(url)
        self._session: Session | None = None
        self._asking = asyncio.Lock()

    async def take(self, pool: str, wanted: int, limit: int, unused: Grant | None) -> Grant:
        """Take up to `wanted` permits of a pool, after returning those that were not used; StoreFailed."""
        async with self._asking:
            return await asyncio.to_thread(self._take, pool, wanted, limit, unused)

    async def aclose(self) -> None:
        """Disconnect."""
        async with self._asking:
            self._disconnect()

    def _take(self, pool: str, wanted: int, limit: int, unused: Grant | None) -> Grant:
        try:
            session = self._connected()
            with session.transaction():
                session.execute(_LOCK, (pool,))
                if unused is not None:
                    session.execute(_RETURN, (unused.count, pool, unused.id))
                session.execute(_FORGET, (pool, _WINDOW_S))
                row = session.execute(_TAKE, {"pool": pool, "wanted": wanted, "limit": limit}).fetchone()
                if row is not None:
                    return Grant(int(row[0]), int(row[1]))
                ((wait_s,),) = session.execute(_NEXT, (_WINDOW_S, pool)).fetchall()
                return Grant(0, 0, max(0.0, float(wait_s or 0.0)))
        except (psycopg.Error, PenstockError) as error:
            self._disconnect()
            raise StoreFailed(f"the permits of pool {pool} cannot be counted: {error}") from error

    def _connected(self) -> Session:
        if self._session is None or self._session.closed:
            session = self._address.connect("penstock_cluster")
            with session.transaction():
                session.execute(_CREATE)
            self._session = session
        return self._session

    def _disconnect(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
