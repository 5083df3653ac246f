"""The database of jobs as the pipeline's jobs carry it to executors: a value, opened where it is used.

Every process of Spark that is handed one imports this, so it imports a kind of database where that is needed.
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
    """Where jobs are kept: `sqlite:///absolute/path/jobs.db` or `postgresql://…`. Never printed with its password."""

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
        """Which of the two databases it is."""
        kind = self.url.partition(":")[0]
        if kind == "sqlite":
            return Dialect.SQLITE
        if kind in ("postgresql", "postgres"):
            return Dialect.POSTGRES
        # Without the URL, which may have a password.
        raise InvalidPipelineOption(f"a database of kind {kind[:20]!r} is not known: use sqlite:/// or postgresql://")

    @property
    def path(self) -> Path:
        """The file of an SQLite database."""
        return Path(unquote(urlsplit(self.url).path))

    @property
    def place(self) -> str:
        """Where it is, fit to be shown."""
        return f"database {self.path}" if self.dialect is Dialect.SQLITE else str(self._postgres_address())

    def repository(self) -> "JobRepository":
        """The jobs in it; open it before use. Executors have no use for being called when jobs arrive."""
        if self.dialect is Dialect.SQLITE:
            from penstock.events.store.sqlite import sqlite_repository

            return sqlite_repository(self.path)
        from penstock.events.store.postgres import postgres_repository

        return postgres_repository(self.url, schema=self.schema)

    def _postgres_address(self) -> "PostgresAddress":
        from penstock.engine.store.postgres_address import PostgresAddress

        return PostgresAddress(self.url)
