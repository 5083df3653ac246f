"""A lease on a schema, in the row of its owner: who serves it, until when, and who may follow.

The owner renews it from a thread and a connection of its own, so that a slow commit does not cost it. It counts its
time from before it asks, on its own clock; a follower waits for the time of the database to pass. So the owner stops
serving before another process can start, whatever happened to its connections (NODE-OWNER-3).
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from typing import NamedTuple

import psycopg

from penstock.edge.clock import steady_seconds
from penstock.engine.errors import LeaseUncertain, StoreFailed
from penstock.engine.store.postgres_address import Session

log = logging.getLogger(__name__)

LEASE_S = 5.0
"""How long an owner may serve after its last renewal, and how long a follower of a lost owner waits; the default."""
_RENEWALS_PER_LEASE = 3

# An owner of the first release never renewed: its time is the beginning of time, and its lock alone counts.
_LATEST = """
SELECT epoch, extract(epoch FROM expires)::float8,
    extract(epoch FROM expires)::float8 - extract(epoch FROM clock_timestamp())::float8
FROM owners ORDER BY epoch DESC LIMIT 1
"""
# A renewal that waits for this row finds it deposed, and one that was first is found here.
_DEPOSE = "UPDATE owners SET deposed = true WHERE epoch = %s AND expires <= clock_timestamp() RETURNING epoch"
_ADD_OWNER = """
INSERT INTO owners (commits, expires) VALUES (0, clock_timestamp() + make_interval(secs => %s)) RETURNING epoch
"""
_RENEW = """
UPDATE owners SET expires = clock_timestamp() + make_interval(secs => %s) WHERE epoch = %s AND NOT deposed
RETURNING epoch
"""
_RELEASE = "UPDATE owners SET expires = '-infinity' WHERE epoch = %s AND NOT deposed"


class LeaseStanding(NamedTuple):
    """The latest owner's lease, by the clock of the database."""

    epoch: int
    expires_s: float
    left_s: float


def follow(session: Session, lease_s: float) -> tuple[int | None, float]:
    """Become the owner and return the epoch; else return None and how many seconds the current lease still has."""
    with session.transaction():
        latest = standing(session)
        if latest is not None and session.execute(_DEPOSE, (latest.epoch,)).fetchone() is None:
            return None, latest.left_s
        ((epoch,),) = session.execute(_ADD_OWNER, (lease_s,)).fetchall()
    return epoch, 0.0


def standing(session: Session) -> LeaseStanding | None:
    """Return the lease of the latest owner; None if the schema never had one with a lease."""
    try:
        latest = session.execute(_LATEST).fetchone()
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
        return None
    return None if latest is None else LeaseStanding(*latest)


class SchemaLease:
    """The lease of one owner, renewed until it is released, lost or the process ends."""

    def __init__(
        self,
        connect: Callable[[], Session],
        schema: str,
        epoch: int,
        since_s: float,
        lease_s: float,
        on_lost: Callable[[], None],
    ) -> None:
        self._connect = connect
        self._schema = schema
        self._epoch = epoch
        self._on_lost = on_lost
        self._lease_s = lease_s
        self._until_s = since_s + lease_s
        self._ended = Event()
        self._session: Session | None = None
        self._thread = Thread(target=self._keep, name="penstock-lease", daemon=True)
        self._thread.start()

    def require(self) -> None:
        """Raise LeaseUncertain if another process may be the owner by now."""
        if steady_seconds() >= self._until_s:
            raise LeaseUncertain(
                f"the lease on schema {self._schema} could not be renewed for {self._lease_s:g} s: nothing of it is "
                "served until it can be"
            )

    def release(self, session: Session) -> None:
        """Stop renewing, and let the next owner follow at once."""
        self._ended.set()
        self._thread.join(self._lease_s)
        with suppress(psycopg.Error):
            session.execute(_RELEASE, (self._epoch,))

    def _keep(self) -> None:
        while not self._ended.wait(self._lease_s / _RENEWALS_PER_LEASE):
            try:
                if not self._renew():
                    self._on_lost()
                    break
            except (psycopg.Error, StoreFailed) as error:
                log.warning("the lease on schema %s was not renewed: %s", self._schema, error)
                self._disconnect()
        self._disconnect()

    def _renew(self) -> bool:
        """Renew the lease; return False if another process has it."""
        if self._session is None:
            self._session = self._connect()
        asked_s = steady_seconds()
        renewed = self._session.execute(_RENEW, (self._lease_s, self._epoch)).fetchone() is not None
        if renewed:
            self._until_s = asked_s + self._lease_s
        return renewed

    def _disconnect(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
