"""Runs a ledger in the calling thread: each operation commits before it returns."""

import logging

from penstock.domain.errors import PenstockError
from penstock.edge.clock import Clock
from penstock.engine.errors import StoreFailed
from penstock.engine.ledger import Ledger
from penstock.engine.pending import Pending
from penstock.engine.queue.entry import Entry
from penstock.engine.stored_queue import StoredQueue

log = logging.getLogger(__name__)


class BlockingShell:
    """Not thread-safe: the caller holds a lock around each call."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self.ledger = ledger
        self._clock = clock

    def commit(self, pending: Pending | None = None) -> None:
        """Make everything done so far durable; raise the error of `pending` if it failed."""
        while (commit := self.ledger.take_commit()) is not None:
            try:
                shares = self.ledger.store.apply(commit.batch)
                if (flush := self.ledger.store.flush) is not None:
                    flush.wait()
            except Exception as problem:
                error = problem if isinstance(problem, PenstockError) else StoreFailed(f"the store failed: {problem}")
                self.ledger.failed(commit, error, self._clock.now_ms())
                if pending is None:
                    log.error("a commit failed and its changes were undone: %s", error)
                    return
                break
            self.ledger.committed(commit, shares, self._clock.now_ms())
        if pending is not None:
            pending.result()

    def receive(self, queue: StoredQueue, max_messages: int) -> list[Entry]:
        """Lease messages, reading them from the store if the window has none."""
        ledger = self.ledger
        ledger.store.require_owned()
        entries = ledger.receive(queue, self._clock.now_ms(), max_messages)
        while len(entries) < max_messages and queue.wants_page() and self._page(queue):
            entries += ledger.receive(queue, self._clock.now_ms(), max_messages - len(entries))
        self.commit()
        return entries

    def run_due(self) -> None:
        """End expired leases and delays."""
        self.ledger.run_due(self._clock.now_ms())
        self.commit()

    def _page(self, queue: StoredQueue) -> bool:
        before = queue.next_stored_seq
        page = self.ledger.read_page(queue)
        if page is not None:
            self.ledger.install_page(queue, page, self._clock.now_ms())
        return queue.next_stored_seq != before
