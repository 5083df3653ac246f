"""The SELECT statements of the batch source: tables, key ranges, literals, and Spark's filters in SQL."""

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
from penstock.spark.schemas import ATTEMPTS, DATA_BYTES, EVENTS, JOBS

CODES: dict[str, tuple[str, tuple[str, ...]]] = {
    "status": ("state", tuple(status.value for status in STATUS_OF)),
    "mode": ("mode", tuple(mode.value for mode in MODE_OF)),
}
"""Columns that are stored as small numbers: the stored column, and the name of each number."""

DERIVED = {DATA_BYTES.name: (DATA_BYTES, "length(data)")}
"""Columns that the database computes: their type, and their SQL."""

Key = TypeVar("Key", int, str)

_ORDERINGS: dict[type[Filter], str] = {
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}


class StoredTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table that the sources read.

    `key` never changes in a row, so that ranges of it return each row exactly once; `identity` names a row to people.
    """

    name: str
    schema: StructType
    parts: tuple[str, ...]
    key: str
    identity: tuple[str, ...] = ("id",)

    def key_in(self, dialect: Dialect) -> str:
        """Return the column of ranges: in SQLite, events and attempts lie in the order of their positions."""
        return "position" if dialect is Dialect.SQLITE and "position" in self.schema.names else self.key


STORED = {
    table.name: table
    for table in (
        StoredTable(name="events", schema=EVENTS, parts=("events",), key="id"),
        # Both in one statement, so that a job that is archived meanwhile is found in one of them.
        StoredTable(name="jobs", schema=JOBS, parts=("jobs", "archived_jobs"), key="id"),
        StoredTable(name="attempts", schema=ATTEMPTS, parts=("attempts",), key="job_id", identity=("job_id", "number")),
    )
}


def expression(column: str) -> str:
    """Return a column in SQL that both databases understand."""
    if column in DERIVED:
        return f"{DERIVED[column][1]} AS {column}"
    if column not in CODES:
        return column
    stored, names = CODES[column]
    cases = " ".join(f"WHEN {code} THEN '{name}'" for code, name in enumerate(names))
    return f"CASE {stored} {cases} END AS {column}"


class KeyRange(msgspec.Struct, frozen=True):
    """The keys from `lower` up to but not including `upper`; None means no bound."""

    lower: int | str | None = None
    upper: int | str | None = None


EVERYTHING = KeyRange()


def ranges_between(boundaries: Iterable[int] | Iterable[str]) -> list[KeyRange]:
    """Return the ranges between ordered boundaries; one range of all keys if there are none."""
    return [KeyRange(lower, upper) for lower, upper in pairwise((None, *boundaries, None))]


def quantiles(sample: Sequence[Key], count: int) -> list[Key]:
    """Return up to `count - 1` ordered boundaries that divide a sample into parts of similar size."""
    ordered = sorted(sample)
    if not ordered:
        return []
    return sorted({ordered[len(ordered) * place // count] for place in range(1, count)})


def literal(value: object, dialect: Dialect) -> str:
    """Return a text without NUL, or a number, as an SQL literal."""
    if isinstance(value, int):
        return str(int(value))
    if dialect is Dialect.POSTGRES:
        from psycopg import sql

        return sql.Literal(value).as_string(None)
    return "'" + str(value).replace("'", "''") + "'"


class Query(msgspec.Struct, frozen=True):
    """A SELECT on a table; `prefix` is its schema in the database, with the dot."""

    table: StoredTable
    columns: tuple[str, ...]
    dialect: Dialect
    prefix: str = ""
    conditions: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Return the column of its ranges."""
        return self.table.key_in(self.dialect)

    @property
    def where(self) -> str:
        """Return the condition of its rows."""
        return " AND ".join(self.conditions) or "true"

    @property
    def selected(self) -> tuple[str, ...]:
        """Return the columns in order: those asked for, then those missing to name a row."""
        return (*self.columns, *(name for name in self.table.identity if name not in self.columns))

    def narrowed(self, conditions: Sequence[str]) -> "Query":
        """Return the query with more conditions."""
        return msgspec.structs.replace(self, conditions=(*self.conditions, *conditions))

    def text(self, span: KeyRange) -> str:
        """Return the SQL for the rows of a range."""
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


def condition(wanted: Filter, schema: StructType, dialect: Dialect) -> str | None:
    """Return a filter in SQL that passes exactly the same rows; None if Spark has to apply it."""
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
    # Spark orders text by bytes, PostgreSQL by its collation unless one is given.
    collated = f'{column} COLLATE "C"' if isinstance(value, str) and dialect is Dialect.POSTGRES else column
    return f"{collated} {sign} {literal(value, dialect)}"


def _comparable(column: str, value: object, schema: StructType) -> bool:
    """Return whether the database compares them as Spark does; no row or literal can contain NUL."""
    kind = schema[column].dataType
    if isinstance(value, str):
        return isinstance(kind, StringType) and "\0" not in value
    return isinstance(value, int) and isinstance(kind, LongType)
