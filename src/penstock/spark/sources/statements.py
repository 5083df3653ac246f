"""The SELECT of a range of a table.

The tables as sources read them: which of the database's tables, by which key, and what a column is in SQL.

Ranges of a key that together give every row exactly once, wherever their boundaries are.

Values written into SQL.

Spark's filters in SQL, so that a database sends only the rows that are asked for.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeVar

import msgspec
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
)
from pyspark.sql.types import LongType, StringType, StructType

from penstock.events.store import MODE_OF, STATUS_OF, Dialect
from penstock.spark.schemas import ATTEMPTS, EVENTS, JOBS

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
    )
}


def expression(column: str) -> str:
    """A column of the pipeline in SQL that both databases understand."""
    if column not in CODES:
        return column
    stored, names = CODES[column]
    cases = " ".join(f"WHEN {code} THEN '{name}'" for code, name in enumerate(names))
    return f"CASE {stored} {cases} END AS {column}"


Key = TypeVar("Key", int, str)


class KeyRange(msgspec.Struct, frozen=True):
    """From `lower` on and before `upper`; without one, from the first or to the last."""

    lower: int | str | None = None
    upper: int | str | None = None


EVERYTHING = KeyRange()


def ranges_between(boundaries: Iterable[int] | Iterable[str]) -> list[KeyRange]:
    """The ranges that ordered boundaries make; all keys in one when there are none."""
    return [KeyRange(lower, upper) for lower, upper in pairwise((None, *boundaries, None))]


def quantiles(sample: Sequence[Key], count: int) -> list[Key]:
    """Up to `count - 1` boundaries, in order, that divide a sample into parts of about one size."""
    ordered = sorted(sample)
    if not ordered:
        return []
    return sorted({ordered[len(ordered) * place // count] for place in range(1, count)})


def literal(value: object, dialect: Dialect) -> str:
    """A text or number as the database reads it; a text has no NUL."""
    if isinstance(value, int):
        return str(int(value))
    if dialect is Dialect.POSTGRES:
        from psycopg import sql

        return sql.Literal(value).as_string(None)
    return "'" + str(value).replace("'", "''") + "'"


class Query(msgspec.Struct, frozen=True):
    """What is asked of a table; `prefix` is its schema in the database, with the dot."""

    table: StoredTable
    columns: tuple[str, ...]
    dialect: Dialect
    prefix: str = ""
    conditions: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The column its ranges are made of."""
        return self.table.key_in(self.dialect)

    @property
    def where(self) -> str:
        """What a row has to meet."""
        return " AND ".join(self.conditions) or "true"

    @property
    def selected(self) -> tuple[str, ...]:
        """The columns in the order they come: those asked for, then what is missing to name a row."""
        return (*self.columns, *(name for name in self.table.identity if name not in self.columns))

    def narrowed(self, conditions: Sequence[str]) -> "Query":
        """The same with more conditions."""
        return msgspec.structs.replace(self, conditions=(*self.conditions, *conditions))

    def text(self, span: KeyRange) -> str:
        """The rows of a range, in SQL."""
        bounds = [
            f"{self.key} {sign} {literal(edge, self.dialect)}"
            for sign, edge in ((">=", span.lower), ("<", span.upper))
            if edge is not None
        ]
        wanted = ", ".join(expression(column) for column in self.selected)
        where = " AND ".join((*bounds, self.where))
        return " UNION ALL ".join(
            f"SELECT {wanted} FROM {self.prefix}{part} WHERE {where}" for part in self.table.parts
        )


_ORDERINGS: dict[type[Filter], str] = {
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}


def condition(wanted: Filter, schema: StructType, dialect: Dialect) -> str | None:
    """A filter in SQL that passes exactly the same rows; None when Spark has to do it."""
    if isinstance(wanted, Not):
        inner = condition(wanted.child, schema, dialect)
        return None if inner is None else f"NOT ({inner})"
    column, *nested = getattr(wanted, "attribute", (None,))
    if nested or column not in schema.names:
        return None
    match wanted:
        case IsNull() | IsNotNull() if column not in CODES:
            return f"{column} IS {'NOT ' if isinstance(wanted, IsNotNull) else ''}NULL"
        case EqualTo(value=value):
            return _among(column, (value,), schema, dialect)
        case In(value=values):
            return _among(column, values, schema, dialect)
        case StringContains(value=part) if column not in CODES and _comparable(column, part, schema):
            found = "strpos" if dialect is Dialect.POSTGRES else "instr"
            return f"{found}({column}, {literal(part, dialect)}) > 0"
        case GreaterThan() | GreaterThanOrEqual() | LessThan() | LessThanOrEqual() if column not in CODES:
            return _ordering(column, _ORDERINGS[type(wanted)], wanted.value, schema, dialect)
    return None


def _among(column: str, values: tuple[object, ...], schema: StructType, dialect: Dialect) -> str | None:
    if column in CODES:
        stored, names = CODES[column]
        codes = [str(code) for code, name in enumerate(names) if name in values]
        return f"{stored} IN ({', '.join(codes)})" if codes else "false"
    if not all(_comparable(column, value, schema) for value in values) or not values:
        return None
    return f"{column} IN ({', '.join(literal(value, dialect) for value in values)})"


def _ordering(column: str, sign: str, value: object, schema: StructType, dialect: Dialect) -> str | None:
    if not _comparable(column, value, schema):
        return None
    # Spark orders text byte by byte, PostgreSQL by the rules of a language unless it is told so.
    collated = f'{column} COLLATE "C"' if isinstance(value, str) and dialect is Dialect.POSTGRES else column
    return f"{collated} {sign} {literal(value, dialect)}"


def _comparable(column: str, value: object, schema: StructType) -> bool:
    """Whether the database compares them as Spark does; no row has a NUL, and no literal can."""
    kind = schema[column].dataType
    if isinstance(value, str):
        return isinstance(kind, StringType) and "\0" not in value
    return isinstance(value, int) and isinstance(kind, LongType)
