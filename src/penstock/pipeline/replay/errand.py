"""What a task of a replay has to know, as it travels to an executor."""

import msgspec

from penstock.domain.addresses import Network
from penstock.edge.clock import Clock
from penstock.events.store.postgres import PostgresDatabase
from penstock.events.store.replays import Replays
from penstock.events.store.sqlite import SqliteDatabase
from penstock.events.store.statements import Dialect
from penstock.ops.config.router_options import HttpVersion
from penstock.pipeline.database import Database
from penstock.pipeline.replay.timetable import Timetable


class DirectSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How executors deliver."""

    egress_allow: tuple[Network, ...] = ()
    connect_timeout_s: float = 10.0
    http_version: HttpVersion = HttpVersion.HTTP_2


class Errand(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a replay; without `direct` its jobs go through the queue, without a timetable as fast as they can."""

    database: Database
    replay_id: str
    run: int
    direct: DirectSettings | None = None
    timetable: Timetable | None = None


def replays_in(database: Database, clock: Clock) -> Replays:
    """The replays that a database keeps."""
    if database.dialect is Dialect.SQLITE:
        return Replays(SqliteDatabase(database.path), clock)
    return Replays(PostgresDatabase(database.url, schema=database.schema), clock)
