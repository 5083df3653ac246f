"""Lanes read from SQLite: each is asked for by itself, which costs no round trip and stops where the share does."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from penstock.jobs.lane_claiming import AwakeRange
from penstock.jobs.queries import Dialect, queries, translated
from penstock.jobs.stored_state import MODE_OF, StoredMode
from penstock.pipeline.database import Database
from penstock.pipeline.dispatch.round_call import RoundCall

_LANES = """
SELECT group_key, ordered, turn, EXISTS (SELECT 1 FROM subscriptions AS s WHERE s.id = subscription_id AND s.paused)
FROM lanes WHERE turn BETWEEN :first AND :last AND (awake OR claimed_by = :owner) ORDER BY turn
"""
_RUN = translated(
    """
SELECT id, mode, sequence, created_at_ms, due_at_ms, expires_at_ms, pool, publish_round, updated_at_ms
FROM jobs {by jobs_ready}
WHERE state = {READY} AND group_key = :group_key AND mode = :mode AND (expires_at_ms IS NULL OR expires_at_ms > :now)
ORDER BY sequence, created_at_ms, id LIMIT :share
""",
    Dialect.SQLITE,
)
_BLOCKER = queries(Dialect.SQLITE)["first_blocker"]
_MODES = {True: (StoredMode.BLOCK_ON_ERROR, StoredMode.NEXT_ON_ERROR), False: (StoredMode.IMMEDIATE,)}
_NO_BLOCKER = (None, None, None)
_NO_JOB = (None,) * 9
_BUSY_TIMEOUT_S = 10.0

Row = tuple[Any, ...]


def lane_rows(database: Database, span: AwakeRange, call: RoundCall) -> Iterator[Row]:
    """What the first lanes of a range may give, in the columns of `lane_query`; the last may be one too many."""
    with closing(_connect(database)) as connection:
        bounds = {"first": span.first_turn, "last": span.last_turn, "owner": call.owner.name}
        # One transaction: a lane and its jobs are seen at the same moment.
        connection.execute("BEGIN")
        count = 0
        for group_key, ordered, turn, paused in connection.execute(_LANES, bounds).fetchall():
            lane = (group_key, bool(ordered), turn, bool(paused), False)
            rows = list(_rows_of_lane(connection, lane, call.share, call.now_ms))
            yield from rows
            count += len(rows)
            if count > call.rows:
                return


def _connect(database: Database) -> sqlite3.Connection:
    return sqlite3.connect(f"{database.path.as_uri()}?mode=ro", uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None)


def _rows_of_lane(connection: sqlite3.Connection, lane: Row, share: int, now_ms: int) -> Iterator[Row]:
    group_key, ordered, *_ = lane
    found = connection.execute(_BLOCKER, {"group_key": group_key}).fetchone() if ordered else None
    before = (*lane, *(found or _NO_BLOCKER))
    is_empty = True
    for mode in _MODES[ordered]:
        values = {"group_key": group_key, "mode": int(mode), "now": now_ms, "share": share}
        for job_id, code, *rest in connection.execute(_RUN, values):
            is_empty = False
            yield (*before, job_id, MODE_OF[code].value, *rest)
    if is_empty:
        yield (*before, *_NO_JOB)
