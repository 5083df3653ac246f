"""The lease heartbeat: while a message waits or is being delivered, its lease is extended (ruling 7).

Messages stand in rounds. A round comes every sixth of the visibility timeout; a message is extended two rounds after
the one it came in, so after a third of the timeout at most, and stands in a later round then. Adding, removing and a
beat cost nothing per message that is not due.
"""

from collections import deque

from penstock.router.tracked import Round, TrackedMessage

ROUNDS_PER_VISIBILITY = 6
_ROUNDS_BETWEEN = 2


class HeartbeatRounds:
    """Which leases are extended when."""

    def __init__(self) -> None:
        # Dictionaries and not sets, so that leases are extended in the order they began.
        self._rounds: deque[Round] = deque({} for _ in range(_ROUNDS_BETWEEN))

    def __bool__(self) -> bool:
        """Whether any lease is kept."""
        return any(self._rounds)

    def add(self, message: TrackedMessage) -> None:
        """The message's lease has just begun, or has just been extended."""
        if message.beat is not None:
            del message.beat[message]
        message.beat = self._rounds[-1]
        message.beat[message] = None

    def remove(self, message: TrackedMessage) -> None:
        """The message needs its lease no longer."""
        if message.beat is not None:
            del message.beat[message]
            message.beat = None

    def due(self) -> list[TrackedMessage]:
        """A round has come: the messages to extend now; they are due again in later rounds."""
        messages = list(self._rounds.popleft())
        self._rounds.append({})
        for message in messages:
            message.beat = None
            self.add(message)
        return messages
