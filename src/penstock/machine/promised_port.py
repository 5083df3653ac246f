"""A port that others are told before the part that listens on it has started."""

import os
import socket


class PromisedPort:
    """A port that is known from now on; of 0, a free one, which nobody else gets until it is taken."""

    def __init__(self, wanted: int) -> None:
        self._held: int | None = None
        self.number = wanted
        if wanted == 0:
            with socket.socket() as holder:
                holder.bind(("127.0.0.1", 0))
                self.number = holder.getsockname()[1]
                # Kept bound, and not as a socket: nobody may ever come to take it.
                self._held = holder.detach()

    def taken(self) -> int:
        """The port, let go for the part that is about to listen on it."""
        if self._held is not None:
            os.close(self._held)
            self._held = None
        return self.number
