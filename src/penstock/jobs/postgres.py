"""The repository on PostgreSQL."""

from penstock.jobs.postgres_database import PostgresDatabase
from penstock.jobs.sql_repository import SqlRepository


def postgres_repository(url: str, *, schema: str = "penstock_jobs", listen: bool = False) -> SqlRepository:
    """Jobs in a schema that several nodes share; open it before use. A scheduler listens for jobs others make."""
    return SqlRepository(PostgresDatabase(url, schema=schema, listen=listen))
