"""The catalog: the streams and queues of one store by name; creating, changing and dropping them."""

from collections.abc import Callable

from penstock.domain.ids import TsidFactory
from penstock.domain.message import Message
from penstock.engine.dedup import DedupWindow
from penstock.engine.errors import QueueExists, QueueNotFound, StreamExists, StreamNotFound
from penstock.engine.journal import Journal
from penstock.engine.pending import Pending
from penstock.engine.queue.entry import Entry
from penstock.engine.queue.policy import QueuePolicy, Window
from penstock.engine.store.port import QueueRecord, Store, StreamRecord
from penstock.engine.store.segment_codec import decode_dedup_keys
from penstock.engine.stored_queue import StoredQueue
from penstock.engine.stream import Stream


class Catalog:
    """Streams and queues; a change takes effect in memory once it is durable."""

    def __init__(self, store: Store, ids: TsidFactory, journal: Journal, window: Window) -> None:
        self.streams: dict[str, Stream] = {}
        self.queues: dict[str, StoredQueue] = {}
        self.by_id: dict[int, Stream] = {}
        self._store = store
        self._ids = ids
        self._journal = journal
        self._window = window
        self._reserved: set[str] = set()

    def open(
        self,
        now_ms: int,
        policy_of: Callable[[QueueRecord], QueuePolicy],
        dedup_window_of: Callable[[StreamRecord], int] = lambda _: 0,
    ) -> None:
        """Open the store and restore its streams and queues; their messages are read in pages when needed."""
        streams, queues = self._store.open()
        # Leases are numbered from here. Ids of a clock that stands still or was set back are one apart: too near to the
        # leases of an earlier owner in this process, since a lease with the id of another would replace it.
        last_lease_id = self._ids.next_start(now_ms)
        shares = self._store.shares()
        for stream_record in streams:
            window_ms = dedup_window_of(stream_record)
            stream = Stream(
                stream_record.id, stream_record.name, stream_record.config, stream_record.seq_limit, window_ms
            )
            stream.shares = shares.get(stream.id, {})
            self._attach_stream(stream)
        for record in queues:
            self._reopen_queue(record, policy_of(record), last_lease_id)
        for row in self._store.dedups(now_ms):
            owner = self.by_id.get(row.stream_id)
            if owner is None or owner.dedup is None:
                continue
            for key in decode_dedup_keys(row.keys):
                owner.dedup.remember(key.key, key, row.expires_ms - owner.dedup_window_ms)

    def stream(self, name: str) -> Stream:
        """Return the stream with a name."""
        stream = self.streams.get(name)
        if stream is None or stream.closing:
            raise StreamNotFound(f"Stream not found: {name}")
        return stream

    def queue(self, name: str) -> StoredQueue:
        """Return the queue with a name."""
        queue = self.queues.get(name)
        if queue is None or queue.closing:
            raise QueueNotFound(f"Queue not found: {name}")
        return queue

    def create_stream(
        self,
        name: str,
        now_ms: int,
        *,
        config: bytes = b"",
        dedup_window_ms: int = 0,
        add_queues: Callable[[Stream], None] | None = None,
    ) -> Pending:
        """Create a stream, and in the same commit what `add_queues` creates; they exist once the operation is done."""
        stream = self._new_stream(name, now_ms, config, dedup_window_ms)
        pending = self._journal.change(self._attaching([f"stream {name}"], lambda: self._attach_stream(stream)))
        if add_queues is not None:
            add_queues(stream)
        return pending

    def create_queue(
        self, stream: Stream, name: str, policy: QueuePolicy, now_ms: int, *, config: bytes = b""
    ) -> Pending:
        """Create a queue of a stream; it gets messages sent from now on, and exists once the operation is done."""
        queue = self._new_queue(stream, name, policy, now_ms, config)
        return self._journal.change(self._attaching([f"queue {name}"], lambda: self._attach_queue(stream, queue)))

    def create_stream_with_queue(
        self, name: str, policy: QueuePolicy, now_ms: int, *, config: bytes = b"", dedup_window_ms: int = 0
    ) -> Pending:
        """Create a stream and its only queue under one name, both or neither."""
        self._check_queue_name(name)
        stream = self._new_stream(name, now_ms, config, dedup_window_ms)
        queue = self._new_queue(stream, name, policy, now_ms, config)

        def attach() -> None:
            self._attach_stream(stream)
            self._attach_queue(stream, queue)

        return self._journal.change(self._attaching([f"stream {name}", f"queue {name}"], attach))

    def configure_stream(self, stream: Stream, config: bytes, *, name: str | None = None) -> Pending:
        """Change the configuration, and optionally the name, of a stream."""
        name = name or stream.name
        if name != stream.name and name in self.streams:
            raise StreamExists(f"Stream already exists: {name}")

        def put() -> None:
            self.streams.pop(stream.name, None)
            stream.config, stream.name = config, name
            self.streams[name] = stream

        self._journal.batch.put_streams.append(StreamRecord(stream.id, name, config, stream.seq_limit))
        return self._journal.change(Pending(put))

    def configure_queue(self, queue: StoredQueue, policy: QueuePolicy, config: bytes) -> Pending:
        """Change the settings of a queue; they take effect once they are durable."""

        def put() -> None:
            queue.config = config
            queue.engine.change_policy(policy)

        record = QueueRecord(queue.id, queue.stream_id, queue.name, config, queue.start_seq)
        self._journal.batch.put_queues.append(record)
        return self._journal.change(Pending(put))

    def clone_queue(
        self, source: StoredQueue, name: str, policy: QueuePolicy, now_ms: int, *, config: bytes, window: Window
    ) -> Pending:
        """Create another queue of the same stream, with the messages that wait or are leased in `source`."""
        self._check_queue_name(name)
        clone = self._copy_of(source, name, policy, now_ms, config)
        clone.window = window

        def attach() -> None:
            self._attach_queue(self.by_id[source.stream_id], clone)
            self._copy_memory(source, clone, now_ms)

        return self._journal.change(self._attaching([f"queue {name}"], attach))

    def replace_queue(
        self,
        old: StoredQueue,
        source: StoredQueue,
        now_ms: int,
        *,
        config: bytes,
        unwanted: Callable[[Message], bool] | None = None,
    ) -> Pending:
        """Replace `old` by a queue with the messages that wait or are leased in `source`, except the unwanted ones."""
        replacement = self._copy_of(source, old.name, old.engine.policy, now_ms, config)
        replacement.unwanted = unwanted
        self._drop_with_commit(old)

        def swap() -> None:
            self._copy_memory(source, replacement, now_ms)  # first, because `old` may be the source and is emptied
            self._detach_queue(old)
            self._attach_queue(self.by_id[source.stream_id], replacement)

        return self._journal.change(Pending(swap))

    def isolate_queue(
        self, queue: StoredQueue, name: str, now_ms: int, *, stream_config: bytes, config: bytes
    ) -> Pending:
        """Replace a queue by an empty one, in a stream of its own called `name`."""
        stream = self._new_stream(name, now_ms, stream_config, 0)
        empty = self._queue_of(stream, queue.name, queue.engine.policy, now_ms, config, stream.next_seq)
        self._drop_with_commit(queue)

        def swap() -> None:
            self._detach_queue(queue)
            self._attach_stream(stream)
            self._attach_queue(stream, empty)

        return self._journal.change(Pending(swap))

    def trim(self, queue: StoredQueue, boundary_seq: int, messages: int, size_bytes: int) -> Pending:
        """Drop all messages of a queue before the start of a segment; none of them is in memory."""
        batch = self._journal.batch
        batch.purge_queues.append((queue.id, boundary_seq))
        batch.collect_streams.append(queue.stream_id)

        def move_start() -> None:
            queue.start_seq = max(queue.start_seq, boundary_seq)
            if queue.next_stored_seq is not None:
                queue.next_stored_seq = max(queue.next_stored_seq, boundary_seq)
            queue.stored = max(0, queue.stored - messages)
            queue.stored_bytes = max(0, queue.stored_bytes - size_bytes)

        return self._journal.change(Pending(move_start))

    def drop_queue(self, queue: StoredQueue) -> Pending:
        """Remove a queue with all its messages and leases."""
        queue.closing = True
        self._drop_with_commit(queue)

        def restore() -> None:
            queue.closing = False

        return self._journal.change(Pending(lambda: self._detach_queue(queue), restore))

    def drop_stream(self, stream: Stream) -> Pending:
        """Remove a stream with its queues."""
        stream.closing = True
        self._journal.batch.drop_streams.append(stream.id)

        def detach() -> None:
            for queue in list(stream.queues.values()):
                self._detach_queue(queue)
            self.streams.pop(stream.name, None)
            self.by_id.pop(stream.id, None)

        def restore() -> None:
            stream.closing = False

        return self._journal.change(Pending(detach, restore))

    def retire_stream(self, stream: Stream, name: str, config: bytes) -> Pending:
        """Stop serving a stream and its only queue, and rename them; their rows stay until the stream is dropped."""
        (queue,) = stream.queues.values()
        batch = self._journal.batch
        batch.put_streams.append(StreamRecord(stream.id, name, config, stream.seq_limit))
        batch.put_queues.append(QueueRecord(queue.id, stream.id, name, config, queue.start_seq))

        def retire() -> None:
            self._detach_queue(queue)
            self.streams.pop(stream.name, None)
            stream.name = queue.name = name
            stream.config = queue.config = config
            self._attach_stream(stream)
            self._attach_queue(stream, queue)

        return self._journal.change(Pending(retire))

    def shrink_stream(self, stream: Stream, segments: int) -> Pending:
        """Remove up to this many of the oldest segments of a retired stream."""
        self._journal.batch.shrink_streams.append((stream.id, segments))
        return self._journal.change(Pending())

    def purge(self, queue: StoredQueue, *, forget_ids: bool = False) -> Pending:
        """Drop all messages of a queue, leased or not, that were sent before now; optionally also the stream's ids."""
        stream = self.by_id[queue.stream_id]
        stream.builder = None  # later messages go into a new segment
        boundary = stream.next_seq
        batch = self._journal.batch
        batch.purge_queues.append((queue.id, boundary))
        batch.collect_streams.append(stream.id)
        forgotten = stream.dedup if forget_ids else None
        if forgotten is not None:
            # Now, not after the commit: a later send must not be a duplicate of a message that is being purged.
            stream.dedup = DedupWindow(stream.dedup_window_ms)
            batch.forget_dedups.append((stream.id, boundary))

        def remember() -> None:
            if forgotten is not None and stream.dedup is not None:
                forgotten.absorb(stream.dedup)
                stream.dedup = forgotten

        def empty() -> None:
            queue.start_seq = max(queue.start_seq, boundary)
            queue.engine.purge()
            queue.acks = {seq: acks for seq, acks in queue.acks.items() if seq >= boundary}
            queue.next_stored_seq = None
            queue.stored = queue.stored_bytes = 0

        return self._journal.change(Pending(empty, remember))

    def _new_stream(self, name: str, now_ms: int, config: bytes, dedup_window_ms: int) -> Stream:
        if name in self.streams or f"stream {name}" in self._reserved:
            raise StreamExists(f"Stream already exists: {name}")
        stream = Stream(self._ids.next_value(now_ms), name, config, 0, dedup_window_ms)
        self._journal.batch.put_streams.append(stream.record())
        return stream

    def _new_queue(self, stream: Stream, name: str, policy: QueuePolicy, now_ms: int, config: bytes) -> StoredQueue:
        self._check_queue_name(name)
        stream.builder = None  # a queue starts where a segment starts
        return self._queue_of(stream, name, policy, now_ms, config, stream.next_seq)

    def _check_queue_name(self, name: str) -> None:
        if name in self.queues or f"queue {name}" in self._reserved:
            raise QueueExists(f"Queue already exists: {name}")

    def _queue_of(
        self, stream: Stream, name: str, policy: QueuePolicy, now_ms: int, config: bytes, start_seq: int
    ) -> StoredQueue:
        queue_id = self._ids.next_value(now_ms)
        queue = StoredQueue(
            queue_id,
            stream.id,
            name,
            config,
            start_seq,
            policy,
            self._window,
            durable=self._store.durable,
            last_lease_id=queue_id,
        )
        self._journal.batch.put_queues.append(QueueRecord(queue.id, stream.id, name, config, queue.start_seq))
        return queue

    def _copy_of(self, source: StoredQueue, name: str, policy: QueuePolicy, now_ms: int, config: bytes) -> StoredQueue:
        stream = self.by_id[source.stream_id]
        copy = self._queue_of(stream, name, policy, now_ms, config, source.start_seq)
        self._journal.batch.clone_acks.append((source.id, copy.id))
        self._journal.batch.collect_streams.append(stream.id)
        if self._store.durable:
            copy.next_stored_seq = source.start_seq
            copy.stored, copy.stored_bytes = source.total, source.total_bytes
        return copy

    def _copy_memory(self, source: StoredQueue, copy: StoredQueue, now_ms: int) -> None:
        """Copy the messages of a store that is not durable; otherwise the copy reads them from the store."""
        if not self._store.durable:
            entries = source.engine.peek(-1, source.engine.held)
            wanted = [entry for entry in entries if copy.unwanted is None or not copy.unwanted(entry.message)]
            copy.engine.add([Entry(entry.seq, entry.message) for entry in wanted], now_ms)

    def _drop_with_commit(self, queue: StoredQueue) -> None:
        """Drop a queue with the next commit, after its acks are copied; it works until then."""
        batch = self._journal.batch
        batch.drop_queues.append(queue.id)
        batch.collect_streams.append(queue.stream_id)

    def _attaching(self, names: list[str], attach: Callable[[], None]) -> Pending:
        """Return an operation that creates things; their names are reserved until it succeeds or fails."""
        self._reserved.update(names)

        def free_names() -> None:
            self._reserved.difference_update(names)

        def attach_all() -> None:
            free_names()
            attach()

        return Pending(attach_all, free_names)

    def _attach_stream(self, stream: Stream) -> None:
        self.streams[stream.name] = stream
        self.by_id[stream.id] = stream

    def _attach_queue(self, stream: Stream, queue: StoredQueue) -> None:
        self.queues[queue.name] = queue
        stream.queues[queue.id] = queue

    def _detach_queue(self, queue: StoredQueue) -> None:
        self.queues.pop(queue.name, None)
        stream = self.by_id.get(queue.stream_id)
        if stream is not None:
            stream.queues.pop(queue.id, None)
        queue.closing = True
        queue.engine.purge()
        queue.acks.clear()
        queue.next_stored_seq = None
        if queue.on_dropped is not None:
            queue.on_dropped()

    def _reopen_queue(self, record: QueueRecord, policy: QueuePolicy, last_lease_id: int) -> None:
        stream = self.by_id[record.stream_id]
        # A queue created or purged after a refused send starts past numbers that were never reserved.
        stream.next_seq = stream.committed_seq = max(stream.next_seq, record.start_seq)
        queue = StoredQueue(
            record.id,
            stream.id,
            record.name,
            record.config,
            record.start_seq,
            policy,
            self._window,
            durable=True,
            last_lease_id=last_lease_id,
            reopened_seq=stream.committed_seq,
        )
        totals = self._store.totals(queue.id)
        if totals.messages:
            queue.next_stored_seq = record.start_seq
            queue.stored, queue.stored_bytes = totals.messages, totals.size_bytes
        self._attach_queue(stream, queue)
