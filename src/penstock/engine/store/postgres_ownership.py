"""The right to use a schema: one session holds its advisory lock and numbers its commits, and a lease covers reads.

The number is written in the transaction it counts. When a connection is lost during a commit, the lock is taken again
first, which waits for the end of the old session; then the number says whether the commit was saved.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from hashlib import blake2b
from math import isfinite
from threading import Event

import psycopg

from penstock.domain.errors import PenstockError
from penstock.edge.clock import steady_seconds
from penstock.engine.errors import StoreFailed, StoreLocked
from penstock.engine.store.postgres_address import Session
from penstock.engine.store.postgres_lease import LeaseStanding, SchemaLease, follow, standing
from penstock.engine.store.postgres_statements import migrate

# Long enough for the server to notice that a killed process, or our own lost connection, is gone.
_CLAIM_WAIT = "2s"
_RECLAIM_WAIT = "5s"
_RETRY_PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
_OWNERS_KEPT = 1000
_FOLLOW_ATTEMPTS = 3
_MARGIN_S = 0.05

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
_END_HOLDER = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND (classid::bigint << 32 | objid::bigint) = %s
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
_UNLOCK = "SELECT pg_advisory_unlock(%s)"
_FORGET_OWNERS = "DELETE FROM owners WHERE epoch <= %s"
_OWNERS_SINCE = "SELECT epoch, commits FROM owners WHERE epoch >= %s"
_COUNT_COMMIT = "UPDATE owners SET commits = %s WHERE epoch = %s"


class SchemaOwnership:
    """One store's ownership of a schema, kept across lost connections unless another process takes it."""

    def __init__(self, connect: Callable[[], Session], schema: str, lease_s: float) -> None:
        self._connect = connect
        self._schema = schema
        self._lease_s = lease_s
        self._lock_key = int.from_bytes(blake2b(schema.encode(), digest_size=8).digest(), "big", signed=True)
        self._session: Session | None = None
        self._backend: tuple[int, datetime] | None = None
        self.epoch = 0
        """The number of this ownership, larger than all before; written with every commit."""
        self._commits = 0
        self._unknown_commit: int | None = None
        self._reported_failed = False
        self._lost: PenstockError | None = None
        self._closing = Event()
        self._lease: SchemaLease | None = None

    def claim(self) -> Session:
        """Take a schema and migrate it; raise StoreLocked if another process has it."""
        session = self._session = self._connect()
        self._lock_or_refuse(session)
        migrate(session, self._schema)
        asked_s, epoch = self._follow(session)
        self.epoch = epoch
        session.execute(_FORGET_OWNERS, (epoch - _OWNERS_KEPT,))
        self._remember_backend(session)
        self._lease = SchemaLease(self._connect, self._schema, epoch, asked_s, self._lease_s, self._lose)
        return session

    def _lock_or_refuse(self, session: Session) -> None:
        before = standing(session)
        if self._lock(session, _CLAIM_WAIT):
            return
        # The session of a machine that is gone keeps its lock until the server notices; its lease expires before.
        if before is not None and self._expires(session, before):
            session.execute(_END_HOLDER, (self._lock_key,))
            if self._lock(session, _CLAIM_WAIT):
                return
        raise StoreLocked(self._holder(session))

    def _expires(self, session: Session, before: LeaseStanding) -> bool:
        """Wait until a lease expires; return False immediately if it was renewed, or if its owner never had one."""
        now = standing(session)
        if now is not None and now.expires_s == before.expires_s and now.left_s > 0:
            self._closing.wait(now.left_s + _MARGIN_S)
            now = standing(session)
        return now is not None and now.expires_s == before.expires_s and isfinite(now.expires_s)

    def _follow(self, session: Session) -> tuple[float, int]:
        """Return when the lease was asked for and its epoch, after the lease of a lost owner has expired."""
        for _ in range(_FOLLOW_ATTEMPTS):
            asked_s = steady_seconds()
            epoch, left_s = follow(session, self._lease_s)
            if epoch is not None:
                return asked_s, epoch
            # Without the lock meanwhile: the owner may have lost its connection only, and takes the lock again.
            session.execute(_UNLOCK, (self._lock_key,))
            if self._closing.wait(left_s + _MARGIN_S):
                break
            self._lock_or_refuse(session)
        raise StoreLocked(f"schema {self._schema} is in use by another process, which renews its lease: stop it")

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

    def require_lease(self) -> None:
        """Raise an error if another process may own the schema by now."""
        self.require()
        if self._lease is not None:
            self._lease.require()

    @property
    def lost(self) -> str | None:
        """Why this store must be opened again by a new process; None while it may be used."""
        return None if self._lost is None else self._lost.message

    def _lose(self) -> None:
        self._lost = self._lost or StoreLocked(f"another process took over schema {self._schema}: restart this one")

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
        session.execute(_COUNT_COMMIT, (number, self.epoch))

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
            if self._lease is not None:
                self._lease.release(self._session)
                self._lease = None
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
        owners: dict[int, int] = dict(session.execute(_OWNERS_SINCE, (self.epoch,)).fetchall())
        if max(owners, default=0) > self.epoch:
            # A later owner had the lock, so the session of our last commit has ended.
            settled = True
            self._lost = StoreLocked(f"another process took over schema {self._schema}: restart this one")
        if not settled:
            return
        if self.epoch not in owners:
            self._lost = StoreFailed(f"schema {self._schema} was replaced: restart this process")
            return
        if self._reported_failed and owners[self.epoch] == self._unknown_commit:
            message = f"a commit to schema {self._schema} that was reported as failed was saved: restart this process"
            self._lost = StoreFailed(message)
        self._commits = owners[self.epoch]
        self._unknown_commit, self._reported_failed = None, False

    def _remember_backend(self, session: Session) -> None:
        ((pid, started),) = session.execute(_BACKEND).fetchall()
        self._backend = pid, started

    def _holder(self, session: Session) -> str:
        holder = session.execute(_HOLDER, (self._lock_key,)).fetchone()
        known = "" if holder is None else f" (server process {holder[0]}, connected from {holder[1]})"
        return f"schema {self._schema} is in use by another process{known}: stop it, or use another schema"
