"""The right to write to a schema: one session holds its advisory lock and numbers its commits.

The number is written in the transaction it counts. When a connection is lost during a commit, the lock is taken again
first, which waits for the end of the old session; then the number says whether the commit was saved.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from hashlib import blake2b
from threading import Event

import psycopg

from penstock.domain.errors import PenstockError
from penstock.engine.errors import StoreFailed, StoreLocked
from penstock.engine.store.postgres_address import Session
from penstock.engine.store.postgres_statements import migrate

# Long enough for the server to notice that a killed process, or our own lost connection, is gone.
_CLAIM_WAIT = "2s"
_RECLAIM_WAIT = "5s"
_RETRY_PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
_OWNERS_KEPT = 1000

_SET_LOCK_TIMEOUT = "SELECT set_config('lock_timeout', %s, false)"
_RESET_LOCK_TIMEOUT = "RESET lock_timeout"
_LOCK = "SELECT pg_advisory_lock(%s)"
_HOLDER = """
SELECT a.pid, coalesce(host(a.client_addr), 'a local socket') FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted AND l.database = a.datid
  AND (l.classid::bigint << 32 | l.objid::bigint) = %s AND a.datname = current_database()
"""
_BACKEND = "SELECT pid::bigint, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
_END_BACKEND = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s AND backend_start = %s"
_ADD_OWNER = "INSERT INTO owners (commits) VALUES (0) RETURNING epoch"
_FORGET_OWNERS = "DELETE FROM owners WHERE epoch <= %s"
_OWNERS_SINCE = "SELECT epoch, commits FROM owners WHERE epoch >= %s"
_COUNT_COMMIT = "UPDATE owners SET commits = %s WHERE epoch = %s"


class SchemaOwnership:
    """One store's ownership of a schema, kept across lost connections unless another process takes it."""

    def __init__(self, connect: Callable[[], Session], schema: str) -> None:
        self._connect = connect
        self._schema = schema
        self._lock_key = int.from_bytes(blake2b(schema.encode(), digest_size=8).digest(), "big", signed=True)
        self._session: Session | None = None
        self._backend: tuple[int, datetime] | None = None
        self._epoch = 0
        self._commits = 0
        self._unknown_commit: int | None = None
        self._reported_failed = False
        self._lost: PenstockError | None = None
        self._closing = Event()

    def claim(self) -> Session:
        """Take a schema and migrate it; raise StoreLocked if another process has it."""
        session = self._session = self._connect()
        if not self._lock(session, _CLAIM_WAIT):
            raise StoreLocked(self._holder(session))
        migrate(session, self._schema)
        ((self._epoch,),) = session.execute(_ADD_OWNER).fetchall()
        session.execute(_FORGET_OWNERS, (self._epoch - _OWNERS_KEPT,))
        self._remember_backend(session)
        return session

    def session(self) -> Session:
        """Return the session that holds the lock, a new one if it was lost; raise StoreLocked if another has it."""
        self.require()
        if self._session is None or self._closing.is_set():
            raise StoreFailed(f"schema {self._schema} is not open")
        if self._session.closed:
            self._session = self._reclaim()
        return self._session

    def require(self) -> None:
        """Raise an error if this store has lost its schema permanently."""
        if self._lost is not None:
            raise self._lost.with_traceback(None)

    def check(self, session: Session) -> None:
        """Check with any session whether another store has taken the schema."""
        self._refresh(session, settled=False)
        self.require()

    @property
    def next_commit(self) -> int:
        """The number of the next commit."""
        return self._commits + 1

    def count(self, session: Session, number: int) -> None:
        """Write the number of a commit into its transaction."""
        session.execute(_COUNT_COMMIT, (number, self._epoch))

    def confirm(self, number: int) -> None:
        """Record that the server confirmed a commit."""
        self._commits = number

    def settle(self, number: int) -> bool:
        """Return whether a commit whose connection was lost was saved; raise StoreFailed if the server stays away."""
        self._unknown_commit = number
        for pause_s in _RETRY_PAUSES_S:
            if self._is_settled() or self._closing.wait(pause_s):
                break
        if self._unknown_commit == number:
            self._reported_failed = True
            raise StoreFailed(
                f"the connection to schema {self._schema} was lost in a commit and was not restored; "
                "it is not known whether the commit was saved"
            )
        return self._commits >= number

    def report_failed(self, number: int) -> None:
        """Record that a commit is reported as failed; if it was saved after all, this store must not continue."""
        self._unknown_commit, self._reported_failed = number, True
        if self._session is not None:
            self._session.close()

    def stop_waiting(self) -> None:
        """Stop waiting for a lost connection, because the store is about to be closed."""
        self._closing.set()

    def close(self) -> None:
        """Release the schema."""
        if self._session is not None:
            self._session.close()

    def _is_settled(self) -> bool:
        with suppress(StoreFailed, StoreLocked):
            self.session()
        return self._unknown_commit is None

    def _reclaim(self) -> Session:
        session = self._connect()
        try:
            self.check(session)
            session.execute(_END_BACKEND, self._backend)
            locked = self._lock(session, _RECLAIM_WAIT)
            self._refresh(session, settled=locked)
            self.require()
            if not locked:
                raise StoreLocked(self._holder(session))
            self._remember_backend(session)
        except psycopg.Error as error:
            session.close()
            raise StoreFailed(f"schema {self._schema} cannot be taken again: {error}") from error
        except BaseException:
            session.close()
            raise
        return session

    def _lock(self, session: Session, wait: str) -> bool:
        session.execute(_SET_LOCK_TIMEOUT, (wait,))
        try:
            session.execute(_LOCK, (self._lock_key,))
        except psycopg.errors.LockNotAvailable:
            return False
        session.execute(_RESET_LOCK_TIMEOUT)
        return True

    def _refresh(self, session: Session, *, settled: bool) -> None:
        owners: dict[int, int] = dict(session.execute(_OWNERS_SINCE, (self._epoch,)).fetchall())
        if max(owners, default=0) > self._epoch:
            # A later owner had the lock, so the session of our last commit has ended.
            settled = True
            self._lost = StoreLocked(f"another process took over schema {self._schema}: restart this one")
        if not settled:
            return
        if self._epoch not in owners:
            self._lost = StoreFailed(f"schema {self._schema} was replaced: restart this process")
            return
        if self._reported_failed and owners[self._epoch] == self._unknown_commit:
            message = f"a commit to schema {self._schema} that was reported as failed was saved: restart this process"
            self._lost = StoreFailed(message)
        self._commits = owners[self._epoch]
        self._unknown_commit, self._reported_failed = None, False

    def _remember_backend(self, session: Session) -> None:
        ((pid, started),) = session.execute(_BACKEND).fetchall()
        self._backend = pid, started

    def _holder(self, session: Session) -> str:
        holder = session.execute(_HOLDER, (self._lock_key,)).fetchone()
        known = "" if holder is None else f" (server process {holder[0]}, connected from {holder[1]})"
        return f"schema {self._schema} is in use by another process{known}: stop it, or use another schema"
