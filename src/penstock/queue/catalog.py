"""The catalog: the streams and queues of one store by name, and how they come and go."""

from collections.abc import Callable

from penstock.core.ids import TsidFactory
from penstock.queue.errors import QueueExists, QueueNotFound, StreamExists, StreamNotFound
from penstock.queue.journal import Journal
from penstock.queue.pending import Pending
from penstock.queue.policy import QueuePolicy, Window
from penstock.queue.store.port import QueueRecord, Store, StreamRecord
from penstock.queue.store.segment_codec import decode_dedup_keys
from penstock.queue.stored_queue import StoredQueue
from penstock.queue.stream import Remembered, Stream


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
        """Open the store and bring its streams and queues back; their messages come in by pages when asked for."""
        streams, queues = self._store.open()
        shares = self._store.shares()
        for stream_record in streams:
            window_ms = dedup_window_of(stream_record)
            stream = Stream(
                stream_record.id, stream_record.name, stream_record.config, stream_record.seq_limit, window_ms
            )
            stream.shares = shares.get(stream.id, {})
            self._attach_stream(stream)
        for record in queues:
            self._reopen_queue(record, policy_of(record))
        for row in self._store.dedups(now_ms):
            owner = self.by_id.get(row.stream_id)
            if owner is None or owner.dedup is None:
                continue
            for key in decode_dedup_keys(row.keys):
                remembered = Remembered(key.message_id, key.seq)
                owner.dedup.remember(key.key, remembered, row.expires_ms - owner.dedup_window_ms)

    def stream(self, name: str) -> Stream:
        """The stream of a name."""
        stream = self.streams.get(name)
        if stream is None or stream.closing:
            raise StreamNotFound(f"Stream not found: {name}")
        return stream

    def queue(self, name: str) -> StoredQueue:
        """The queue of a name."""
        queue = self.queues.get(name)
        if queue is None or queue.closing:
            raise QueueNotFound(f"Queue not found: {name}")
        return queue

    def create_stream(self, name: str, now_ms: int, *, config: bytes = b"", dedup_window_ms: int = 0) -> Pending:
        """Make a stream; it exists once the operation is done."""
        stream = self._new_stream(name, now_ms, config, dedup_window_ms)
        return self._journal.change(self._attaching([f"stream {name}"], lambda: self._attach_stream(stream)))

    def create_queue(
        self, stream: Stream, name: str, policy: QueuePolicy, now_ms: int, *, config: bytes = b""
    ) -> Pending:
        """Make a queue of a stream; it gets what is sent from now on, and exists once the operation is done."""
        queue = self._new_queue(stream, name, policy, now_ms, config)
        return self._journal.change(self._attaching([f"queue {name}"], lambda: self._attach_queue(stream, queue)))

    def create_stream_with_queue(
        self, name: str, policy: QueuePolicy, now_ms: int, *, config: bytes = b"", dedup_window_ms: int = 0
    ) -> Pending:
        """Make a stream and its only queue under one name, both or neither."""
        if name in self.queues or f"queue {name}" in self._reserved:
            raise QueueExists(f"Queue already exists: {name}")
        stream = self._new_stream(name, now_ms, config, dedup_window_ms)
        queue = self._new_queue(stream, name, policy, now_ms, config)

        def attach() -> None:
            self._attach_stream(stream)
            self._attach_queue(stream, queue)

        return self._journal.change(self._attaching([f"stream {name}", f"queue {name}"], attach))

    def configure_stream(self, stream: Stream, config: bytes, *, name: str | None = None) -> Pending:
        """Keep another configuration, and perhaps another name, with a stream."""
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
        """Put other settings of a queue in force once they are durable."""

        def put() -> None:
            queue.config = config
            queue.engine.change_policy(policy)

        record = QueueRecord(queue.id, queue.stream_id, queue.name, config, queue.start_seq)
        self._journal.batch.put_queues.append(record)
        return self._journal.change(Pending(put))

    def drop_queue(self, queue: StoredQueue) -> Pending:
        """Remove a queue with all its messages and leases."""
        queue.closing = True
        batch = self._journal.batch
        batch.drop_queues.append(queue.id)
        batch.collect_streams.append(queue.stream_id)

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

    def purge(self, queue: StoredQueue) -> Pending:
        """Drop all messages of a queue, leased or not, that were sent before now."""
        stream = self.by_id[queue.stream_id]
        stream.builder = None  # what is sent from now on is in a segment of its own
        boundary = stream.next_seq
        batch = self._journal.batch
        batch.purge_queues.append((queue.id, boundary))
        batch.collect_streams.append(stream.id)

        def empty() -> None:
            queue.start_seq = max(queue.start_seq, boundary)
            queue.engine.purge()
            queue.acks = {seq: acks for seq, acks in queue.acks.items() if seq >= boundary}
            queue.next_stored_seq = None
            queue.stored = queue.stored_bytes = 0

        return self._journal.change(Pending(empty))

    def _new_stream(self, name: str, now_ms: int, config: bytes, dedup_window_ms: int) -> Stream:
        if name in self.streams or f"stream {name}" in self._reserved:
            raise StreamExists(f"Stream already exists: {name}")
        stream = Stream(self._ids.next_value(now_ms), name, config, 0, dedup_window_ms)
        self._journal.batch.put_streams.append(stream.record())
        return stream

    def _new_queue(self, stream: Stream, name: str, policy: QueuePolicy, now_ms: int, config: bytes) -> StoredQueue:
        if name in self.queues or f"queue {name}" in self._reserved:
            raise QueueExists(f"Queue already exists: {name}")
        stream.builder = None  # a queue starts where a segment starts
        queue = StoredQueue(
            self._ids.next_value(now_ms),
            stream.id,
            name,
            config,
            stream.next_seq,
            policy,
            self._window,
            durable=self._store.durable,
        )
        self._journal.batch.put_queues.append(QueueRecord(queue.id, stream.id, name, config, queue.start_seq))
        return queue

    def _attaching(self, names: list[str], attach: Callable[[], None]) -> Pending:
        """An operation that makes things exist; their names are taken until it is known whether they do."""
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

    def _reopen_queue(self, record: QueueRecord, policy: QueuePolicy) -> None:
        stream = self.by_id[record.stream_id]
        # A queue made or purged after a refused send starts past numbers that were never reserved.
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
        )
        totals = self._store.totals(queue.id)
        if totals.messages:
            queue.next_stored_seq = record.start_seq
            queue.stored, queue.stored_bytes = totals.messages, totals.size_bytes
        self._attach_queue(stream, queue)
