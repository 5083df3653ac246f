"""The repository on an SQLite file."""

import os

from penstock.edge.disk_room import FreeBytes, free_bytes
from penstock.jobs.sql_repository import SqlRepository
from penstock.jobs.sqlite_database import SqliteDatabase


def sqlite_repository(
    path: str | os.PathLike[str], *, durability: str = "fsync", free: FreeBytes = free_bytes
) -> SqlRepository:
    """Jobs in one file of this machine; open it before use."""
    return SqlRepository(SqliteDatabase(path, durability=durability, free=free))
