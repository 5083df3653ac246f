"""The nodes of a cluster and the owners of its shards, in tables of the database that they share.

All times are the database's. A row of a node counts until it expires; the owner of a shard in these tables is what the
other nodes go by to find it. The right to serve a shard is the lease on its own schema, which these tables do not give.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import psycopg

from penstock.client.types import ClusterShard
from penstock.cluster.errors import NodeNameTaken
from penstock.cluster.nodes.spread import Node, Shard, View
from penstock.edge.randomness import random_bytes
from penstock.engine.store.postgres_address import PostgresAddress, Session

SCHEMA = "penstock_cluster"
_CHANNEL = "penstock_cluster"
_SECRET_BYTES = 32

_CREATE = """
SELECT pg_advisory_xact_lock(hashtext('penstock_cluster'));
CREATE SCHEMA IF NOT EXISTS penstock_cluster;
CREATE TABLE IF NOT EXISTS penstock_cluster.nodes (
    part text, name text, instance text NOT NULL, address text NOT NULL, capabilities text[] NOT NULL,
    draining boolean NOT NULL, expires timestamptz NOT NULL, PRIMARY KEY (part, name)
);
CREATE TABLE IF NOT EXISTS penstock_cluster.shards (
    part text, name text, owner text, epoch bigint NOT NULL DEFAULT 0, needs text[] NOT NULL DEFAULT '{}',
    moves bigint NOT NULL DEFAULT 0, PRIMARY KEY (part, name)
);
CREATE TABLE IF NOT EXISTS penstock_cluster.secrets (part text PRIMARY KEY, value bytea NOT NULL);
CREATE TABLE IF NOT EXISTS penstock_cluster.numbers (
    name text PRIMARY KEY, number integer NOT NULL UNIQUE, used timestamptz NOT NULL
);
"""
_ADD_SECRET = "INSERT INTO secrets VALUES (%s, %s) ON CONFLICT DO NOTHING"
_SECRET = "SELECT value FROM secrets WHERE part = %s"
_ADD_SHARD = "INSERT INTO shards (part, name) VALUES (%s, %s)"
_ANY_SHARD = "SELECT name FROM shards WHERE part = %s LIMIT 1"
_HAS_SCHEMA = "SELECT nspname FROM pg_namespace WHERE nspname = %s"
# At the same address only one process can listen: the row is that of an earlier life of this node.
_RENEW = """
INSERT INTO nodes AS n (part, name, instance, address, capabilities, draining, expires)
VALUES (%s, %s, %s, %s, %s, %s, clock_timestamp() + make_interval(secs => %s))
ON CONFLICT (part, name) DO UPDATE
SET instance = excluded.instance, address = excluded.address, capabilities = excluded.capabilities,
    draining = excluded.draining, expires = excluded.expires
WHERE n.instance = excluded.instance OR n.address = excluded.address OR n.expires <= clock_timestamp()
RETURNING n.name
"""
_NODES = """
SELECT name, instance, address, capabilities, extract(epoch FROM expires - clock_timestamp())::float8, draining
FROM nodes WHERE part = %s AND expires > clock_timestamp() ORDER BY name
"""
_SHARDS = "SELECT name, owner, epoch, needs, moves FROM shards WHERE part = %s ORDER BY name"
_ALL_SHARDS = """
SELECT s.part, s.name, n.name, s.epoch, s.needs, s.moves FROM shards AS s
LEFT JOIN nodes AS n ON n.part = s.part AND n.instance = s.owner AND n.expires > clock_timestamp()
ORDER BY s.part, s.name
"""
_LEAVE = "DELETE FROM nodes WHERE part = %s AND instance = %s"
_TAKE = """
UPDATE shards SET owner = %s, epoch = %s, moves = moves + 1 WHERE part = %s AND name = %s AND epoch < %s
"""
_HAND_OVER = "UPDATE shards SET owner = NULL WHERE part = %s AND name = %s AND owner = %s"
_NEED = """
UPDATE shards SET needs = array(SELECT DISTINCT unnest(needs || %s::text[]) ORDER BY 1) WHERE part = %s AND name = %s
"""
_NOTIFY = f"NOTIFY {_CHANNEL}"
_NOW_US = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
# The number it had, else the smallest free one, else that of the node that started longest ago.
_NUMBER = """
WITH chosen AS (
    SELECT number FROM numbers WHERE name = %(name)s
    UNION ALL (SELECT n FROM generate_series(0, %(last)s) AS n WHERE n NOT IN (SELECT number FROM numbers) ORDER BY n)
    UNION ALL (SELECT number FROM numbers ORDER BY used)
    LIMIT 1
), freed AS (DELETE FROM numbers WHERE number = (SELECT number FROM chosen))
SELECT number FROM chosen
"""
_USE_NUMBER = "INSERT INTO numbers VALUES (%s, %s, clock_timestamp())"


class Before(NamedTuple):
    """What an installation has that existed before it had nodes: a schema, which becomes its only shard."""

    schema: str
    shard: str


class Registry:
    """One connection to the tables, opened again after an error; used by one thread at a time."""

    def __init__(self, url: str, part: str) -> None:
        self._address = PostgresAddress(url)
        self._part = part
        self._session: Session | None = None

    def create(self, shards: Iterable[str], before: Before | None = None) -> bytes:
        """Create what is missing, and return the secret that the nodes share; shards that exist stay as they are."""
        session = self._connected()
        with session.transaction():
            session.execute(_CREATE)
            session.execute(_ADD_SECRET, (self._part, random_bytes(_SECRET_BYTES)))
            if before is not None and session.execute(_HAS_SCHEMA, (before.schema,)).fetchone() is not None:
                shards = (before.shard,)
            # In this transaction only one node looks at a time, so that all have the same shards.
            if session.execute(_ANY_SHARD, (self._part,)).fetchone() is None:
                for shard in shards:
                    session.execute(_ADD_SHARD, (self._part, shard))
        ((secret,),) = session.execute(_SECRET, (self._part,)).fetchall()
        return bytes(secret)

    def now_us(self) -> int:
        """Return the time of the database, in microseconds since the Unix epoch."""
        ((now_us,),) = self._connected().execute(_NOW_US).fetchall()
        return int(now_us)

    def shards(self) -> list[str]:
        """Return the names of the part's shards; none if the database never had a node."""
        try:
            return [name for name, *_ in self._connected().execute(_SHARDS, (self._part,))]
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            return []

    def number(self, name: str, below: int) -> int:
        """Return a number that no other node of the database has, the same one each time."""
        session = self._connected()
        with session.transaction():
            session.execute(_CREATE)
            ((number,),) = session.execute(_NUMBER, {"name": name, "last": below - 1}).fetchall()
            session.execute(_USE_NUMBER, (name, number))
        return int(number)

    def renew(self, me: Node, ttl_s: float) -> View:
        """Count as live for `ttl_s` from now, and return the cluster; NodeNameTaken if another process has the name."""
        session = self._connected()
        row = (self._part, me.name, me.instance, me.address, list(me.capabilities), me.draining, ttl_s)
        if session.execute(_RENEW, row).fetchone() is None:
            raise NodeNameTaken(me.name)
        return self.view()

    def view(self) -> View:
        """Return the live nodes and all shards."""
        session = self._connected()
        nodes = [_node(row) for row in session.execute(_NODES, (self._part,))]
        shards = [_shard(row) for row in session.execute(_SHARDS, (self._part,))]
        return View(tuple(nodes), tuple(shards))

    def all_shards(self) -> list[ClusterShard]:
        """Return the shards of all parts, with the names of their owners."""
        rows = self._connected().execute(_ALL_SHARDS)
        return [
            ClusterShard(part, name, owner, epoch, tuple(needs), moves)
            for part, name, owner, epoch, needs, moves in rows
        ]

    def listen(self) -> None:
        """Begin to notice the changes of other nodes; `wait` returns at the next one."""
        self._connected().execute(f"LISTEN {_CHANNEL}")

    def wait(self, seconds: float) -> None:
        """Wait until something changes or the time has passed."""
        for _ in self._connected().notifies(timeout=seconds, stop_after=1):
            pass

    def take(self, shard: str, instance: str, epoch: int) -> None:
        """Make known that a node owns a shard by a lease of this epoch."""
        self._tell(_TAKE, (instance, epoch, self._part, shard, epoch))

    def hand_over(self, shard: str, instance: str) -> None:
        """Make known that a node has given a shard up."""
        self._tell(_HAND_OVER, (self._part, shard, instance))

    def need(self, shard: str, capability: str) -> None:
        """Let only nodes with this capability own a shard from now on."""
        self._tell(_NEED, ([capability], self._part, shard))

    def leave(self, instance: str) -> None:
        """Stop counting as live."""
        self._tell(_LEAVE, (self._part, instance))

    def announce(self) -> None:
        """Let the other nodes look again."""
        self._connected().execute(_NOTIFY)

    def close(self) -> None:
        """Disconnect; the next call connects again."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _tell(self, statement: str, values: tuple[Any, ...]) -> None:
        try:
            session = self._connected()
            with session.transaction():
                session.execute(statement, values)
                session.execute(_NOTIFY)
        except psycopg.Error:
            self.close()
            raise

    def _connected(self) -> Session:
        if self._session is None or self._session.closed:
            self._session = self._address.connect(SCHEMA)
        return self._session


def _node(row: tuple[Any, ...]) -> Node:
    name, instance, address, capabilities, left_s, draining = row
    return Node(name, instance, address, tuple(capabilities), left_s, draining)


def _shard(row: tuple[Any, ...]) -> Shard:
    name, owner, epoch, needs, moves = row
    return Shard(name, owner, epoch, tuple(needs), moves)
