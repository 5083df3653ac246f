"""Operations that wait for a commit, and what each does when it is kept or refused."""

from collections.abc import Callable, Sequence

import msgspec

from penstock.domain.errors import PenstockError
from penstock.domain.message import Message


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """What a send is answered with; a duplicate carries the first message's id and sequence."""

    message_id: str
    seq: int


class Pending:
    """One caller's operation: done when its commit succeeded (`error` is None) or failed."""

    __slots__ = ("_on_commit", "_on_failure", "done", "error", "on_done")

    def __init__(
        self, on_commit: Callable[[], None] | None = None, on_failure: Callable[[], None] | None = None
    ) -> None:
        self._on_commit = on_commit
        self._on_failure = on_failure
        self.done = False
        self.error: PenstockError | None = None
        self.on_done: Callable[[], None] | None = None

    def also(self, action: Callable[[], object]) -> None:
        """Do something more when the store has it."""
        before = self._on_commit

        def both() -> None:
            if before is not None:
                before()
            action()

        self._on_commit = both

    def otherwise(self, action: Callable[[], object]) -> None:
        """Do something more when the store refused it."""
        before = self._on_failure

        def both() -> None:
            if before is not None:
                before()
            action()

        self._on_failure = both

    def committed(self) -> None:
        """The store has it."""
        if self._on_commit is not None:
            self._on_commit()
        self._finish()

    def failed(self, error: PenstockError) -> None:
        """The store refused it; nothing of it is kept."""
        self.error = error
        if self._on_failure is not None:
            self._on_failure()
        self._finish()

    def result(self) -> None:
        """Raise what went wrong, if anything did."""
        if self.error is not None:
            raise self.error

    def _finish(self) -> None:
        self.done = True
        if self.on_done is not None:
            on_done, self.on_done = self.on_done, None
            on_done()


SETTLED = Pending()
"""An operation that needs no commit."""
SETTLED.committed()


def then(pending: Pending, action: Callable[[], object]) -> Pending:
    """Do something more once an operation is durable; at once when it is."""
    if pending.done:
        action()
    else:
        pending.also(action)
    return pending


class PendingSend(Pending):
    """A send: its receipts hold once it is done without an error."""

    __slots__ = ("_messages", "_receipts", "first_seq", "originals")

    def __init__(self) -> None:
        super().__init__()
        self._messages: Sequence[Message] = ()
        self.first_seq = 0
        """The place of the first message that is not a duplicate; each that follows has the next."""
        self._receipts: list[Receipt] | None = None
        self.originals: list[PendingSend] = []
        """Sends not yet durable that this one's duplicates rely on."""

    def expect(self, messages: Sequence[Message], first_seq: int) -> None:
        """These messages go in, the first one at this place; receipts are made of that if anybody asks."""
        self._messages = messages
        self.first_seq = first_seq

    def answer(self, receipts: list[Receipt], first_seq: int) -> None:
        """Some are duplicates, so each message has a receipt of its own."""
        self._receipts = receipts
        self.first_seq = first_seq

    @property
    def all_go_in(self) -> bool:
        """Whether none is a duplicate."""
        return self._receipts is None

    @property
    def receipts(self) -> list[Receipt]:
        """One for each message."""
        if self._receipts is None:
            return [Receipt(message.id, seq) for seq, message in enumerate(self._messages, self.first_seq)]
        return self._receipts

    @property
    def message_ids(self) -> list[str]:
        """The id of each message, for callers who need no more of their receipts."""
        if self._receipts is None:
            return [message.id for message in self._messages]
        return [receipt.message_id for receipt in self._receipts]

    def committed(self) -> None:
        """The store has it; a duplicate of a send that failed has failed too."""
        for original in self.originals:
            if original.error is not None:
                self.failed(original.error)
                return
        super().committed()
