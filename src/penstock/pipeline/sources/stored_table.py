"""The tables as sources read them: which of the database's tables, by which key, and what a column is in SQL."""

import msgspec
from pyspark.sql.types import StructType

from penstock.events.store.statements import MODE_OF, STATUS_OF, Dialect, StoredState
from penstock.pipeline.schemas import ATTEMPTS, EVENTS, JOBS, READY_JOBS

CODES: dict[str, tuple[str, tuple[str, ...]]] = {
    "status": ("state", tuple(status.value for status in STATUS_OF)),
    "mode": ("mode", tuple(mode.value for mode in MODE_OF)),
}
"""Columns that are kept as small numbers: the column, and the name of each number."""


class StoredTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table of the pipeline.

    `key` never changes in a row, so that ranges of it give each row exactly once; `identity` names a row to people.
    """

    name: str
    schema: StructType
    parts: tuple[str, ...]
    key: str
    identity: tuple[str, ...] = ("id",)
    where: str = "true"

    def key_in(self, dialect: Dialect) -> str:
        """What ranges are made of: SQLite's events and attempts lie in the order of their positions."""
        return "position" if dialect is Dialect.SQLITE and "position" in self.schema.names else self.key


STORED = {
    table.name: table
    for table in (
        StoredTable(name="events", schema=EVENTS, parts=("events",), key="id"),
        # Both in one statement: a job that moves to the archive meanwhile is in one of them.
        StoredTable(name="jobs", schema=JOBS, parts=("jobs", "archived_jobs"), key="id"),
        StoredTable(name="attempts", schema=ATTEMPTS, parts=("attempts",), key="job_id", identity=("job_id", "number")),
        StoredTable(
            name="ready_jobs",
            schema=READY_JOBS,
            parts=("jobs",),
            key="group_key",
            where=f"state = {int(StoredState.READY)}",
        ),
    )
}


def expression(column: str) -> str:
    """A column of the pipeline in SQL that both databases understand."""
    if column not in CODES:
        return column
    stored, names = CODES[column]
    cases = " ".join(f"WHEN {code} THEN '{name}'" for code, name in enumerate(names))
    return f"CASE {stored} {cases} END AS {column}"
