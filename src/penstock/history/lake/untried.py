"""Adds jobs that ended without any attempt to the lake's `jobs`: expired, or cancelled, before their first.

The stream of attempts never sees them. They are found by the time of their end, a minute later, so that what was
written at the same time is there. They are few, so the driver reads and writes them itself.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow

from penstock.domain.limits import MINUTE_MS
from penstock.edge.randomness import random_bytes
from penstock.events.statistics import endpoint_of
from penstock.events.store import Row
from penstock.history.lake.delta import LakeFiles, NewFile
from penstock.history.lake.facts import LOOKED_UP, origin_rows
from penstock.history.lake.lake import Lake
from penstock.history.lake.rows import HOST, LATEST_MS
from penstock.history.lake.schema import DATE, JOBS, POSITION
from penstock.spark.database import SparkDatabase
from penstock.spark.sources.database_reader import reader_for
from penstock.spark.sources.statements import literal

UNTRIED = "untried"
"""The application whose transactions say up to which time of their end these jobs are in the table."""

_SETTLED_MS = MINUTE_MS
# The archive of PostgreSQL has no index by time, so it is read only after a pause, and at the beginning.
_ARCHIVED_MS = 60 * MINUTE_MS
_AT_ONCE = 10_000
_AFTER_ALL = "\U0010ffff"
# The condition of the index jobs_finished: a job in ERROR that blocks its key has not ended.
_ENDED = """
SELECT id, finished_at_ms FROM {prefix}{table}
WHERE finished_at_ms IS NOT NULL AND (state <> 6 OR mode <> 2) AND delivery_count = 0
  AND (finished_at_ms, id) > ({after_ms}, {after_id}) AND finished_at_ms <= {upto_ms}
ORDER BY finished_at_ms, id LIMIT {most}
"""


class UntriedJobs:
    """Looks for them again and again, from the end of the last look on."""

    def __init__(self, database: SparkDatabase, lake: Lake) -> None:
        self._database = database
        self._lake = lake
        self._looked_ms = 0

    def add(self, now_ms: int) -> int:
        """Add the jobs that ended since the last look, or the last commit of a predecessor; return how many."""
        files = self._lake.tables[JOBS.name]
        before = files.state(UNTRIED)
        after_ms, upto_ms = max(before.upto or 0, self._looked_ms), now_ms - _SETTLED_MS
        if upto_ms <= after_ms:
            return 0
        tables = ("jobs", "archived_jobs") if upto_ms - after_ms > _ARCHIVED_MS else ("jobs",)
        written: list[NewFile] = []
        known = set[str]()
        for table in tables:
            for ids in _ended(self._database, table, after_ms, upto_ms):
                # A job may have moved to the archive since its table was read.
                written += self._written(files, [job_id for job_id in ids if job_id not in known])
                known.update(ids)
        if written:
            with self._lake.committing:
                files.commit(written, upto_ms, before, application=UNTRIED)
        self._looked_ms = upto_ms
        return sum(file.rows for file in written)

    def _written(self, files: LakeFiles, job_ids: Sequence[str]) -> list[NewFile]:
        rows = [row for row in map(_row, origin_rows(self._database, job_ids)) if row is not None]
        files.current()
        return files.write(pyarrow.Table.from_pylist(rows, files.table.arrow), f"part-{random_bytes(8).hex()}")


def _ended(database: SparkDatabase, table: str, after_ms: int, upto_ms: int) -> Iterator[Sequence[str]]:
    reader = reader_for(database)
    after_id = _AFTER_ALL
    try:
        while True:
            text = _ENDED.format(
                prefix=reader.prefix,
                table=table,
                after_ms=after_ms,
                after_id=literal(after_id, database.dialect),
                upto_ms=upto_ms,
                most=_AT_ONCE,
            )
            found: list[Row] = reader.rows(text)
            if found:
                yield [job_id for job_id, _ in found]
                after_id, after_ms = found[-1]
            if len(found) < _AT_ONCE:
                return
    finally:
        reader.close()


def _row(stored: Row) -> dict[str, Any] | None:
    job = dict(zip(LOOKED_UP.names, stored, strict=True))
    if job["job_finished_ms"] is None or job["job_position"] is not None:
        return None
    endpoint = endpoint_of(job["target"])
    host = re.match(HOST, endpoint)
    return {
        **{name: job[name] for name in ("tenant", "subscription_id", "subscription", "event_id", "key", "group_key")},
        "job_id": job["id"],
        "final_status": job["job_status"],
        "attempts": 0,
        "created_at": _moment(job["created_at_ms"]),
        "finished_at": _moment(job["job_finished_ms"]),
        "event_type": job["type"],
        "pool": job["pool"],
        "endpoint": endpoint,
        "endpoint_host": host[1] if host else "",
        "event_time": None if job["event_time_ms"] is None else _moment(job["event_time_ms"]),
        "event_bytes": job["event_bytes"],
        POSITION: -1,
        DATE: _moment(job["job_finished_ms"]).date(),
    }


def _moment(epoch_ms: int) -> datetime:
    return datetime.fromtimestamp(min(max(epoch_ms, 0), LATEST_MS) / 1000, UTC)
