"""The repository on an SQLite file."""

import os

from penstock.jobs.sql_repository import SqlRepository
from penstock.jobs.sqlite_database import SqliteDatabase


def sqlite_repository(path: str | os.PathLike[str], *, durability: str = "fsync") -> SqlRepository:
    """Jobs in one file of this machine; open it before use."""
    return SqlRepository(SqliteDatabase(path, durability=durability))
