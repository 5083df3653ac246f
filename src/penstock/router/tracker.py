"""The in-flight tracker: which messages are between hand-out and settlement, by broker id and by message id."""

from collections.abc import Iterator

from penstock.router.tracked import TrackedMessage


class InFlightTracker:
    """Two indexes that always agree. A broker id counts within its queue, a message id everywhere."""

    def __init__(self) -> None:
        self._of_queue: dict[str, dict[str, TrackedMessage]] = {}
        self._by_message_id: dict[str, TrackedMessage] = {}

    def __len__(self) -> int:
        return len(self._by_message_id)

    def __iter__(self) -> Iterator[TrackedMessage]:
        return iter(list(self._by_message_id.values()))

    def of_broker_id(self, queue: str, broker_id: str) -> TrackedMessage | None:
        """The message that this hand-out repeats, if it is still on its way."""
        messages = self._of_queue.get(queue)
        return messages.get(broker_id) if messages else None

    def of_message_id(self, message_id: str) -> TrackedMessage | None:
        """The message with the application's id."""
        return self._by_message_id.get(message_id)

    def in_queue(self, queue: str) -> int:
        """How many messages of a queue are on their way."""
        return len(self._of_queue.get(queue, ()))

    def track(self, message: TrackedMessage) -> None:
        """Add a message that neither index knows."""
        messages = self._of_queue.setdefault(message.origin.name, {})
        broker_id = message.received.broker_id
        message_id = message.pointer.id
        assert broker_id not in messages
        assert message_id not in self._by_message_id
        messages[broker_id] = message
        self._by_message_id[message_id] = message

    def remove(self, message: TrackedMessage) -> None:
        """Forget a message that was tracked."""
        queue = message.origin.name
        messages = self._of_queue[queue]
        del messages[message.received.broker_id]
        del self._by_message_id[message.pointer.id]
        if not messages:
            del self._of_queue[queue]
