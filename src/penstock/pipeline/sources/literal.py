"""Values written into SQL."""

from penstock.events.store.statements import Dialect


def literal(value: object, dialect: Dialect) -> str:
    """A text or number as the database reads it; a text has no NUL."""
    if isinstance(value, int):
        return str(int(value))
    if dialect is Dialect.POSTGRES:
        from psycopg import sql

        return sql.Literal(value).as_string(None)
    return "'" + str(value).replace("'", "''") + "'"
