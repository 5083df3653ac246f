"""The statements of a stream: what there is to read after a place, and where to divide it among tasks."""

import msgspec

from penstock.events.store.statements import Dialect
from penstock.pipeline.sources.literal import literal
from penstock.pipeline.sources.positions import Place

_SNAPSHOT = """
SELECT base + pg_snapshot_xmin(now_running)::text::bigint AS horizon,
       base + pg_snapshot_xmax(now_running)::text::bigint AS reached
FROM {0}position_base, pg_current_snapshot() AS now_running
"""
_COUNTED = """
SELECT coalesce(max(seq), 0) + 1 AS horizon, coalesce(max(seq), 0) + 1 AS reached
FROM sqlite_sequence WHERE name = '{1}'
"""
_OUTLOOK = """
WITH counter AS MATERIALIZED ({counter}),
first AS (
    SELECT 1 FROM {table} WHERE {where} AND {after} AND position < (SELECT horizon FROM counter) LIMIT 1
),
last AS (
    SELECT position, {key} AS key FROM {table} WHERE {where} AND {after} AND position < (SELECT horizon FROM counter)
    ORDER BY {order} {nth}
)
SELECT horizon, reached, EXISTS (SELECT 1 FROM first), (SELECT position FROM last), (SELECT key FROM last) FROM counter
"""
_DIVISIONS = """
SELECT position, key FROM (
    SELECT position, {key} AS key, row_number() OVER (ORDER BY {order}) AS number
    FROM {table} WHERE {where} AND {between}
) AS numbered WHERE number % {rows} = 0 ORDER BY {plain_order}
"""


class StreamedTable(msgspec.Struct, frozen=True):
    """A table that a stream reads in the order of its positions, only the rows that meet `where`."""

    name: str
    key: str
    where: str

    def outlook(self, start: Place, most_rows: int | None, dialect: Dialect, prefix: str) -> str:
        """One row: horizon, how far the database has counted, whether there is anything, and where a limit ends."""
        counter = _SNAPSHOT if dialect is Dialect.POSTGRES else _COUNTED
        return _OUTLOOK.format(
            counter=counter.format(prefix, self.name),
            table=prefix + self.name,
            where=self.where,
            key=self.key,
            order=self._order(dialect),
            after=self._after(start, dialect),
            nth="LIMIT 0" if most_rows is None else f"LIMIT 1 OFFSET {most_rows - 1}",
        )

    def divisions(self, start: Place, end: Place, rows: int, dialect: Dialect, prefix: str) -> str:
        """The place of each so-manieth row between two places."""
        return _DIVISIONS.format(
            table=prefix + self.name,
            where=self.where,
            key=self.key,
            order=self._order(dialect),
            plain_order="position, key" if dialect is Dialect.POSTGRES else "position",
            between=self.between(start, end, dialect),
            rows=rows,
        )

    def between(self, start: Place, end: Place, dialect: Dialect) -> str:
        """The condition of rows after one place and up to another."""
        return f"{self._after(start, dialect)} AND {self._compared('<=', end, dialect)}"

    def _after(self, start: Place, dialect: Dialect) -> str:
        return self._compared(">", start, dialect)

    def _compared(self, sign: str, place: Place, dialect: Dialect) -> str:
        if dialect is Dialect.SQLITE:
            # One row has it; an empty key is before that row.
            return f"position {sign if place.key else {'>': '>=', '<=': '<'}[sign]} {place.position}"
        return f"(position, {self.key}) {sign} ({place.position}, {literal(place.key, dialect)})"

    def _order(self, dialect: Dialect) -> str:
        return "position" if dialect is Dialect.SQLITE else f"position, {self.key}"


STREAMED = {
    # Those that were fanned out already, by the inline engine or by the batch before a crash, need no more looking at.
    "events": StreamedTable("events", "id", "fanned_out = 0"),
    "attempts": StreamedTable("attempts", "job_id", "true"),
}
