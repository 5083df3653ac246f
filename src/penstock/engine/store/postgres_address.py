"""Where a PostgreSQL database is and how to connect to it; its password never appears in a message."""

from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.numeric import Int8BinaryDumper

from penstock.domain.errors import InvalidArgument
from penstock.engine.errors import StoreFailed

Session = psycopg.Connection[tuple[Any, ...]]
"""A connection whose rows are tuples."""

# Keepalives and the timeout detect in seconds, not hours, that the other side is gone.
_DEFAULTS: dict[str, Any] = {
    "application_name": "penstock",
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
_SEARCH_PATH = sql.SQL("SET search_path TO {}")
# The same for the server's side: without them, the session of a machine that is gone holds its locks for two hours.
_KEEPALIVES = """
SET tcp_keepalives_idle = 15; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3;
SET tcp_user_timeout = 30000
"""
# The planner overestimates the recursive read, and compiling it would cost a hundred times its duration. A statement
# that is prepared while its table is small would go on reading all of it until the next analyze.
_PLANNER = "SET jit = off; SET enable_seqscan = off"
_BACKEND = "SELECT pg_backend_pid()"
_LOOKS = 3


class PostgresAddress:
    """A parsed connection URL."""

    def __init__(self, url: str) -> None:
        try:
            given = conninfo_to_dict(url)
        except (psycopg.Error, ValueError):
            # Without the cause: it may quote the password.
            message = "the PostgreSQL URL is malformed: use postgresql://user:password@host:port/database"
            raise InvalidArgument(message) from None
        self._parameters = _DEFAULTS | given
        self._gives_sessions = False

    def __str__(self) -> str:
        parameters = self._parameters
        host, port = parameters.get("host", "localhost"), parameters.get("port", 5432)
        return f"database {parameters.get('dbname', '(default)')} at {host}:{port}"

    def connect(self, schema: str) -> Session:
        """Open a connection to one schema, in autocommit mode."""
        try:
            session = psycopg.connect(**self._parameters, autocommit=True)
            self._require_sessions(session)
            # One type for all integers, so that a statement is prepared once and not once per magnitude.
            session.adapters.register_dumper(int, Int8BinaryDumper)
            session.execute(_SEARCH_PATH.format(sql.Identifier(schema)))
            session.execute(_KEEPALIVES)
            session.execute(_PLANNER)
        except psycopg.Error as error:
            raise StoreFailed(f"cannot connect to {self}: {self.explain(error)}") from None
        return session

    def _require_sessions(self, session: Session) -> None:
        """Raise StoreFailed if a pooler gives one connection to several clients, by which locks and leases fail."""
        if self._gives_sessions:
            return
        for _ in range(_LOOKS):
            own = _backend(session)
            if own == session.info.backend_pid:
                break  # There is no pooler.
            with psycopg.connect(**self._parameters) as other:
                if _backend(other) == own:
                    session.close()
                    raise StoreFailed(
                        f"the pooler at {self} gives one connection to several clients, and Penstock needs sessions: "
                        "connect to PostgreSQL directly, or set pool_mode = session"
                    )
        self._gives_sessions = True

    def explain(self, error: Exception) -> str:
        """Return an error in one line, without the password."""
        text = " ".join(str(error).split())
        password = self._parameters.get("password")
        return text.replace(str(password), "***") if password else text


def _backend(session: Session) -> int:
    ((pid,),) = session.execute(_BACKEND).fetchall()
    return int(pid)
