"""The store in a PostgreSQL schema: each batch is one transaction, sent in one round trip."""

from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any, NoReturn

import psycopg
from msgspec.structs import astuple

from penstock.engine.errors import StoreFailed, StoreLocked
from penstock.engine.store import postgres_statements as statement
from penstock.engine.store.port import (
    DamagedRow,
    DedupRow,
    DeliveryRow,
    QueueRecord,
    SegmentRow,
    Shares,
    StoredSegment,
    StoreTotals,
    StreamRecord,
    WriteBatch,
)
from penstock.engine.store.postgres_address import PostgresAddress, Session
from penstock.engine.store.postgres_lease import LEASE_S
from penstock.engine.store.postgres_ownership import SchemaOwnership

_BULK_SEGMENTS = 50
_BULK_BYTES = 1 << 20
# The second attempt is for a connection that was already lost before anything was committed.
_ATTEMPTS = 2
# Besides the server's own errors: an integer above 64 bits, text that is not valid Unicode.
_REFUSALS = (psycopg.Error, OverflowError, UnicodeError)


class PostgresStore:
    """Streams and queues in a schema that one process owns."""

    durable = True
    local = False
    flush = None
    disk_space = None

    def __init__(self, url: str, *, schema: str = "penstock_queue", lease_s: float = LEASE_S) -> None:
        self._address = PostgresAddress(url)
        self._schema = schema
        self._lease_s = lease_s
        self._write_lock = Lock()
        self._read_lock = Lock()
        self._ownership = SchemaOwnership(self._connect, schema, lease_s)
        self._reader: Session | None = None

    def open(self) -> tuple[list[StreamRecord], list[QueueRecord]]:
        """Lock, migrate and read the catalog; raise StoreLocked if another process has it."""
        self._ownership = SchemaOwnership(self._connect, self._schema, self._lease_s)
        try:
            session = self._ownership.claim()
            self._reader = self._connect()
            streams = [StreamRecord(*row) for row in session.execute(statement.STREAMS, binary=True)]
            queues = [QueueRecord(*row) for row in session.execute(statement.QUEUES, binary=True)]
        except psycopg.Error as error:
            self.close()
            explained = self._address.explain(error)
            raise StoreFailed(f"{self._address} cannot be used for queues: {explained}") from error
        except BaseException:
            self.close()
            raise
        return streams, queues

    def apply(self, batch: WriteBatch) -> Shares:
        """Commit a batch and return the shares of its `collect_streams`; raise StoreFailed if nothing was saved."""
        with self._write_lock:
            for _ in range(_ATTEMPTS):
                shares = self._attempt(batch)
                if shares is not None:
                    return shares
        raise StoreFailed(f"the connection to {self._address} was lost again: nothing of the batch was saved")

    def require_owned(self) -> None:
        """Raise Unavailable if another process may own the schema by now."""
        self._ownership.require_lease()

    @property
    def epoch(self) -> int:
        """The number of this ownership of the schema."""
        return self._ownership.epoch

    @property
    def lost(self) -> str | None:
        """Why this process must end; None while it may use the schema."""
        return self._ownership.lost

    def totals(self, queue_id: int) -> StoreTotals:
        """Return what a queue still has."""
        ((messages, size_bytes),) = self._ask(statement.TOTALS, (queue_id,))
        return StoreTotals(messages, size_bytes)

    def read(self, queue_id: int, from_seq: int, max_messages: int, max_bytes: int) -> list[StoredSegment]:
        """Return the next segments a queue is not done with, at least one if there is any."""
        wanted = {
            "queue_id": queue_id,
            "from_seq": from_seq,
            "max_messages": max_messages,
            "max_bytes": max_bytes,
        }
        return [StoredSegment(*row) for row in self._ask(statement.READ, wanted)]

    def deliveries(self, queue_id: int, first_seq: int, last_seq: int) -> list[DeliveryRow]:
        """Return the delivery counts of messages that came back."""
        rows = self._ask(statement.DELIVERIES, (queue_id, first_seq, last_seq))
        return [DeliveryRow(*row) for row in rows]

    def last_leases(self, now_ms: int) -> dict[int, int]:
        """Return the last sequence with a lease that still runs, by queue id."""
        return dict(self._ask(statement.LAST_LEASES, (now_ms,)))

    def dedups(self, now_ms: int) -> list[DedupRow]:
        """Return deduplication ids that have not expired, oldest first."""
        return [DedupRow(*row) for row in self._ask(statement.DEDUPS, (now_ms,))]

    def shares(self) -> Shares:
        """Return how many queues need each segment, for all streams."""
        streams = [stream_id for (stream_id,) in self._ask(statement.SHARED_STREAMS, ())]
        return {stream_id: dict(self._ask(statement.SHARES, {"stream_id": stream_id})) for stream_id in streams}

    def damaged(self) -> list[DamagedRow]:
        """Return the records that were set aside."""
        return [DamagedRow(*row) for row in self._ask(statement.DAMAGED, ())]

    def close(self) -> None:
        """Release connections and locks."""
        self._ownership.stop_waiting()
        with self._write_lock, self._read_lock:
            self._ownership.close()
            if self._reader is not None:
                self._reader.close()
                self._reader = None

    def _connect(self) -> Session:
        return self._address.connect(self._schema)

    def _attempt(self, batch: WriteBatch) -> Shares | None:
        """Do the same as `apply`, but return None if the connection was lost and nothing was saved."""
        session = self._ownership.session()
        number = self._ownership.next_commit
        try:
            shares = self._commit(session, batch, number)
        except _REFUSALS as error:
            _roll_back(session)
            if not session.closed:
                self._refuse(error)
            saved = self._ownership.settle(number)
            return self._shares_after(number, batch.collect_streams) if saved else None
        except BaseException:
            self._ownership.report_failed(number)
            raise
        self._ownership.confirm(number)
        return shares

    def _commit(self, session: Session, batch: WriteBatch, number: int) -> Shares:
        bulk = _is_bulk(batch.segments)
        if bulk:
            # COPY cannot run in a pipeline, so it precedes the rest of its transaction.
            session.execute("BEGIN")
            _copy(session, batch.segments)
        with session.pipeline():
            if not bulk:
                session.execute("BEGIN")
                _many(session, statement.ADD_SEGMENT, map(_segment_row, batch.segments))
            _write(session, batch)
            _remove(session, batch)
            shares = _ask_shares(session, batch.collect_streams)
            self._ownership.count(session, number)
            session.execute("COMMIT")
        return shares()

    def _shares_after(self, number: int, stream_ids: list[int]) -> Shares:
        if not stream_ids:
            return {}
        try:
            return _ask_shares(self._ownership.session(), stream_ids)()
        except psycopg.Error as error:
            self._ownership.report_failed(number)
            self._refuse(error)
        except (StoreFailed, StoreLocked):
            self._ownership.report_failed(number)
            raise

    def _ask(self, text: str, parameters: tuple[int, ...] | dict[str, int]) -> list[tuple[Any, ...]]:
        with self._read_lock:
            self._ownership.require_lease()
            for _ in range(_ATTEMPTS):
                reader = self._reading()
                try:
                    return reader.execute(text, parameters, binary=True).fetchall()
                except _REFUSALS as refusal:
                    error = refusal
                    if not reader.closed:
                        break
        raise StoreFailed(f"{self._address} cannot be read: {self._address.explain(error)}") from error

    def _reading(self) -> Session:
        if self._reader is None:
            raise StoreFailed(f"schema {self._schema} is not open")
        if self._reader.closed:
            self._reader = self._connect()
            try:
                self._ownership.check(self._reader)
            except psycopg.Error as error:
                self._reader.close()
                raise StoreFailed(f"the connection to {self._address} was lost again") from error
        return self._reader

    def _refuse(self, error: Exception) -> NoReturn:
        if isinstance(error, psycopg.errors.DiskFull):
            message = f"the disk of {self._address} is full: free up space; nothing of the batch was saved"
        else:
            explained = self._address.explain(error)
            message = f"{self._address} refused a batch, and nothing of it was saved: {explained}"
        raise StoreFailed(message) from error


def _is_bulk(segments: list[SegmentRow]) -> bool:
    return len(segments) >= _BULK_SEGMENTS or sum(segment.size_bytes for segment in segments) >= _BULK_BYTES


def _segment_row(segment: SegmentRow) -> tuple[int, int, int, int, bytes]:
    return segment.stream_id, segment.first_seq, segment.count, segment.size_bytes, b"".join(segment.frames)


def _copy(session: Session, segments: list[SegmentRow]) -> None:
    with session.cursor() as cursor, cursor.copy(statement.COPY_SEGMENTS) as copy:
        copy.set_types(statement.COPY_SEGMENTS_TYPES)
        for segment in segments:
            copy.write_row(_segment_row(segment))


def _write(session: Session, batch: WriteBatch) -> None:
    _many(session, statement.PUT_STREAM, map(astuple, batch.put_streams))
    _many(session, statement.PUT_QUEUE, map(astuple, batch.put_queues))
    _columns(session, statement.RAISE_SEQ_LIMITS, list(batch.seq_limits.items()))
    _many(session, statement.PUT_DEDUP, map(astuple, batch.dedups))
    # One statement may not touch a row twice: the last state of a row wins.
    deliveries = {(row.queue_id, row.seq): row for row in batch.deliveries}
    _columns(session, statement.PUT_DELIVERIES, [astuple(row) for row in deliveries.values()])
    acks = {(row.queue_id, row.first_seq): row for row in batch.acks}
    _columns(session, statement.PUT_ACKS, [astuple(row) for row in acks.values()])
    _many(session, statement.CLONE_ACKS, ((fresh, queue) for queue, fresh in batch.clone_acks))
    _columns(session, statement.FORGET_DELIVERIES, batch.forget_deliveries)
    _many(session, statement.ADD_DAMAGED, map(astuple, batch.damaged))


def _remove(session: Session, batch: WriteBatch) -> None:
    for text in statement.PURGE_QUEUE:
        _many(session, text, ((seq, queue_id) for queue_id, seq in batch.purge_queues))
    _many(session, statement.PURGE_DEDUPS, batch.forget_dedups)
    for text in statement.DROP_SEGMENTS:
        _columns(session, text, batch.drop_segments)
    for stream_id, segments in batch.shrink_streams:
        for text in statement.SHRINK_STREAM:
            session.execute(text, {"stream_id": stream_id, "segments": segments})
    for statements, ids in (
        (statement.DROP_QUEUE, batch.drop_queues),
        (statement.DROP_STREAM, batch.drop_streams),
        (statement.COLLECT_STREAM, batch.collect_streams),
    ):
        for text in statements:
            _many(session, text, ((number,) for number in ids))
    if batch.dedup_horizon_ms > 0:
        session.execute(statement.FORGET_DEDUPS, (batch.dedup_horizon_ms,))


def _many(session: Session, text: str, rows: Iterable[tuple[Any, ...]]) -> None:
    for row in rows:
        session.execute(text, row)


def _columns(session: Session, text: str, rows: list[Any]) -> None:
    if rows:
        session.execute(text, [list(column) for column in zip(*rows, strict=True)])


def _ask_shares(session: Session, stream_ids: list[int]) -> Callable[[], Shares]:
    """Send the query now and return a function that fetches the result: a pipeline delivers it at the end."""
    cursors = {stream_id: session.execute(statement.SHARES, {"stream_id": stream_id}) for stream_id in stream_ids}
    return lambda: {stream_id: dict(cursor.fetchall()) for stream_id, cursor in cursors.items()}


def _roll_back(session: Session) -> None:
    try:
        session.rollback()
    except psycopg.Error:
        session.close()
