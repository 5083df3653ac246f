"""What a broker says of an ack or a nack, once it has said it.

Leaner than a future, of which every message would need one: who listens is told in the moment the broker answers, not
in a later round of the event loop. What that saves is in decision 18.
"""

import asyncio
import logging
from collections.abc import Callable, Generator

# Hears None, or why the broker did not do it.
Listener = Callable[[Exception | None], None]

_log = logging.getLogger(__name__)


class Confirmation:
    """A settlement under way: one may listen to its end or await it, nobody has to."""

    __slots__ = ("_listener", "error", "told")

    def __init__(self) -> None:
        self.told = False
        self.error: Exception | None = None
        self._listener: Listener | None = None

    def tell(self, error: Exception | None) -> None:
        """The broker has done it, or it failed."""
        self.told = True
        self.error = error
        listener, self._listener = self._listener, None
        if listener is not None:
            try:
                listener(error)
            except Exception:
                # Told in a row with others, who must hear of theirs whatever this one does.
                _log.exception("the end of a settlement could not be handled")

    def listen(self, listener: Listener) -> None:
        """Call `listener` at the end, or now if that has been."""
        assert self._listener is None, "one listens at most"
        if self.told:
            listener(self.error)
        else:
            self._listener = listener

    def __await__(self) -> Generator[object, None, None]:
        """Wait for the end; raises why it failed."""
        if not self.told:
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.listen(lambda _: None if ended.done() else ended.set_result(None))
            yield from ended
        if self.error is not None:
            raise self.error


def confirmed(error: Exception | None = None) -> Confirmation:
    """A settlement that needs no broker, or that cannot be."""
    confirmation = Confirmation()
    confirmation.tell(error)
    return confirmation
