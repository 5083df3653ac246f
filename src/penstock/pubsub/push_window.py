"""How many pushes of one subscription may be outstanding: a slow start that grows while the endpoint keeps up."""

from penstock.domain.limits import MIB

FIRST_SIZE = 3
LARGEST_SIZE = 1000
LARGEST_BYTES = 64 * MIB


class PushWindow:
    """Grows by one with each success, so that it doubles in a round trip; halves when what was sent since fails."""

    def __init__(self) -> None:
        self.size = FIRST_SIZE
        self.outstanding = 0
        self._outstanding_bytes = 0
        self._generation = 0

    @property
    def room(self) -> int:
        """How many more messages may be sent."""
        return self.size - self.outstanding if self.room_bytes > 0 else 0

    @property
    def room_bytes(self) -> int:
        """How many more bytes may be sent."""
        return LARGEST_BYTES - self._outstanding_bytes

    def begin(self, size_bytes: int) -> int:
        """A message is sent; gives the generation to end it with."""
        self.outstanding += 1
        self._outstanding_bytes += size_bytes
        return self._generation

    def end(self, generation: int, size_bytes: int, *, succeeded: bool) -> None:
        """A message was answered. One failure counts for all that were sent with the same size of the window."""
        used = self.outstanding * 2 >= self.size
        self.outstanding -= 1
        self._outstanding_bytes -= size_bytes
        if succeeded:
            # A window that nobody fills says nothing about what the endpoint can take.
            self.size = min(self.size + used, LARGEST_SIZE)
        elif generation == self._generation:
            self.size = max(1, self.size // 2)
            self._generation += 1
