"""Deferred deletes: messages that are done but could not be deleted, because their receipt handles had expired.

Each is deleted when SQS hands it out the next time. What never comes again is forgotten when SQS itself has.
"""

from collections import OrderedDict

from penstock.domain.limits import SECOND_MS

MAX_RETENTION_S = 4 * 24 * 3600
MAX_REMEMBERED = 100_000


class DeferredDeletes:
    """Ids of messages to delete at sight."""

    def __init__(self, retention_s: int = MAX_RETENTION_S, most: int = MAX_REMEMBERED) -> None:
        self._retention_ms = min(retention_s, MAX_RETENTION_S) * SECOND_MS
        self._most = most
        # Oldest first, since all are kept for the same time.
        self._forget_at_ms: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._forget_at_ms)

    def remember(self, broker_id: str, now_ms: int) -> None:
        """This message is done."""
        self._forget(now_ms)
        self._forget_at_ms[broker_id] = now_ms + self._retention_ms
        self._forget_at_ms.move_to_end(broker_id)
        if len(self._forget_at_ms) > self._most:
            self._forget_at_ms.popitem(last=False)

    def is_due(self, broker_id: str, now_ms: int) -> bool:
        """Whether this message, which was handed out, is to be deleted instead."""
        until_ms = self._forget_at_ms.get(broker_id)
        return until_ms is not None and until_ms > now_ms

    def deleted(self, broker_id: str) -> None:
        """SQS has deleted it."""
        self._forget_at_ms.pop(broker_id, None)

    def _forget(self, now_ms: int) -> None:
        while self._forget_at_ms and next(iter(self._forget_at_ms.values())) <= now_ms:
            self._forget_at_ms.popitem(last=False)
