"""The leased-queue engine that broker subscriptions, SQS queues and their partitions all use."""

from penstock.engine.async_shell import AsyncShell, while_owned
from penstock.engine.blocking_shell import BlockingShell
from penstock.engine.catalog import Catalog
from penstock.engine.dedup import DedupWindow
from penstock.engine.errors import LeaseNotFound, QueueClosed, StoreFailed
from penstock.engine.ledger import Ledger
from penstock.engine.pending import SETTLED, Pending, PendingSend, then
from penstock.engine.queue.entry import LEASED, Counters, Entry, EntryState, held_bytes, total_bytes
from penstock.engine.queue.policy import DeadLetterAt, Grouping, QueuePolicy, Window
from penstock.engine.store.memory import MemoryStore
from penstock.engine.store.port import QueueRecord, Store, StoredSegment, StreamRecord
from penstock.engine.store.segment_codec import Damage, decode_message, decode_segment, encode_message
from penstock.engine.stored_queue import StoredQueue
from penstock.engine.stream import Stream
from penstock.engine.waiters import Waiters

__all__ = [
    "LEASED",
    "SETTLED",
    "AsyncShell",
    "BlockingShell",
    "Catalog",
    "Counters",
    "Damage",
    "DeadLetterAt",
    "DedupWindow",
    "Entry",
    "EntryState",
    "Grouping",
    "LeaseNotFound",
    "Ledger",
    "MemoryStore",
    "Pending",
    "PendingSend",
    "QueueClosed",
    "QueuePolicy",
    "QueueRecord",
    "Store",
    "StoreFailed",
    "StoredQueue",
    "StoredSegment",
    "Stream",
    "StreamRecord",
    "Waiters",
    "Window",
    "decode_message",
    "decode_segment",
    "encode_message",
    "held_bytes",
    "then",
    "total_bytes",
    "while_owned",
]
