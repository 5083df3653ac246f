"""The progress of a streaming job: written by the supervisor and Spark's listener, read by the API and Prometheus."""

from collections.abc import Callable
from enum import StrEnum
from threading import Lock

import msgspec


class QueryStatus(StrEnum):
    """The status of a streaming job."""

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"


class BatchProgress(msgspec.Struct, frozen=True):
    """One finished micro-batch."""

    id: int
    rows: int
    duration_ms: int
    rows_per_second: float


class QueryView(msgspec.Struct, frozen=True, rename="camel"):
    """A streaming job; `rows` and `batches` count from the start of this process.

    `rows` includes those that the driver handled itself, without a micro-batch.
    """

    name: str
    status: QueryStatus
    batch_id: int | None
    batches: int
    rows: int
    batch_rows: int
    rows_per_second: float
    batch_duration_ms: int
    lag: int | None
    failures: int
    restarts: int
    last_error: str | None
    retry_in_seconds: float | None


class QueryProgress:
    """The progress of one job; safe to use from several threads.

    `handled` returns how many rows the driver handled itself.
    """

    def __init__(self, name: str, handled: Callable[[], int] = lambda: 0) -> None:
        self.name = name
        self._handled = handled
        self._lock = Lock()
        self._status = QueryStatus.STARTING
        self._last = BatchProgress(-1, 0, 0, 0.0)
        self._batches = 0
        self._rows = 0
        self._lag: int | None = None
        self._starts = 0
        self._failures = 0
        self._last_error: str | None = None
        self._retry_in_s: float | None = None

    def started(self) -> None:
        """Record that the query runs."""
        with self._lock:
            self._status = QueryStatus.RUNNING
            self._starts += 1
            self._retry_in_s = None

    def advanced(self, batch: BatchProgress) -> None:
        """Record a finished micro-batch."""
        with self._lock:
            self._batches += 1
            self._rows += batch.rows
            self._last = batch

    def failed(self, reason: str, retry_in_s: float | None) -> None:
        """Record a failure; `retry_in_s` is None if the query is not restarted."""
        with self._lock:
            self._status = QueryStatus.FAILED if retry_in_s is None else QueryStatus.WAITING
            self._failures += 1
            self._last_error = reason
            self._retry_in_s = retry_in_s

    def ended(self, status: QueryStatus) -> None:
        """Record a regular end."""
        with self._lock:
            self._status = status
            self._retry_in_s = None

    def measured(self, lag: int | None) -> None:
        """Record how many rows wait."""
        with self._lock:
            self._lag = lag

    @property
    def batches(self) -> int:
        """Return the number of finished micro-batches."""
        return self._batches

    def view(self) -> QueryView:
        """Return a consistent snapshot."""
        with self._lock:
            return QueryView(
                name=self.name,
                status=self._status,
                batch_id=self._last.id if self._batches else None,
                batches=self._batches,
                rows=self._rows + self._handled(),
                batch_rows=self._last.rows,
                rows_per_second=self._last.rows_per_second,
                batch_duration_ms=self._last.duration_ms,
                lag=self._lag,
                failures=self._failures,
                restarts=max(0, self._starts - 1),
                last_error=self._last_error,
                retry_in_seconds=self._retry_in_s,
            )
