"""Spark's filters in SQL, so that a database sends only the rows that are asked for."""

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
)
from pyspark.sql.types import LongType, StringType, StructType

from penstock.events.store.statements import Dialect
from penstock.pipeline.sources.literal import literal
from penstock.pipeline.sources.stored_table import CODES

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
