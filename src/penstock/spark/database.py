"""The database of jobs as Spark carries it to executors: a value, opened where it is used.

Every process of Spark imports this module, so it imports a database driver only where one is needed.
"""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.events.store import Dialect
from penstock.spark.errors import InvalidPipelineOption

if TYPE_CHECKING:
    from penstock.engine.store.postgres_address import PostgresAddress
    from penstock.events.store import JobRepository


class SparkDatabase(msgspec.Struct, frozen=True, dict=True):
    """A database of jobs: `sqlite:///absolute/path/jobs.db` or `postgresql://…`. Its password is never printed."""

    url: str
    schema: str = "penstock_jobs"

    def __post_init__(self) -> None:
        if self.dialect is Dialect.SQLITE and not self.path.is_absolute():
            raise InvalidPipelineOption(
                f"the database {self.url!r} has no absolute path: use sqlite:///path/to/jobs.db"
            )
        if self.dialect is Dialect.POSTGRES:
            self._postgres_address()

    def __repr__(self) -> str:
        return f"Database({self.place})"

    @cached_property
    def dialect(self) -> Dialect:
        """Return which of the two databases it is."""
        kind = self.url.partition(":")[0]
        if kind == "sqlite":
            return Dialect.SQLITE
        if kind in ("postgresql", "postgres"):
            return Dialect.POSTGRES
        # Without the URL, which may contain a password.
        raise InvalidPipelineOption(f"unknown kind of database {kind[:20]!r}: use sqlite:/// or postgresql://")

    @property
    def path(self) -> Path:
        """Return the file of an SQLite database."""
        return Path(unquote(urlsplit(self.url).path))

    @property
    def place(self) -> str:
        """Return where it is, without secrets."""
        return f"database {self.path}" if self.dialect is Dialect.SQLITE else str(self._postgres_address())

    def repository(self) -> "JobRepository":
        """Return its repository, not yet open. It is not notified of new jobs, which executors do not need."""
        if self.dialect is Dialect.SQLITE:
            from penstock.events.store.sqlite import sqlite_repository

            return sqlite_repository(self.path)
        from penstock.events.store.postgres import postgres_repository

        return postgres_repository(self.url, schema=self.schema)

    def _postgres_address(self) -> "PostgresAddress":
        from penstock.engine.store.postgres_address import PostgresAddress

        return PostgresAddress(self.url)
