"""Operations that wait for a commit, and what each does when it succeeds or fails."""

from collections.abc import Callable, Sequence

import msgspec

from penstock.domain.errors import PenstockError
from penstock.domain.message import Message


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """The answer to a send; for a duplicate, the first message's id and sequence."""

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

    def on_commit(self, action: Callable[[], object]) -> None:
        """Add an action for when the operation is durable."""
        before = self._on_commit

        def both() -> None:
            if before is not None:
                before()
            action()

        self._on_commit = both

    def on_failure(self, action: Callable[[], object]) -> None:
        """Add an action for when the store refuses the operation."""
        before = self._on_failure

        def both() -> None:
            if before is not None:
                before()
            action()

        self._on_failure = both

    def committed(self) -> None:
        """Finish the operation after its commit."""
        if self._on_commit is not None:
            self._on_commit()
        self._finish()

    def failed(self, error: PenstockError) -> None:
        """Finish the operation after the store refused its commit."""
        self.error = error
        if self._on_failure is not None:
            self._on_failure()
        self._finish()

    def result(self) -> None:
        """Raise the error, if there is one."""
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
    """Run an action once an operation is durable, immediately if it already is."""
    if pending.done:
        action()
    else:
        pending.on_commit(action)
    return pending


class PendingSend(Pending):
    """A send: its receipts are valid once it is done without an error."""

    __slots__ = ("_messages", "_receipts", "first_seq", "originals")

    def __init__(self) -> None:
        super().__init__()
        self._messages: Sequence[Message] = ()
        self.first_seq = 0
        """The sequence of the first message that is not a duplicate; the others follow it."""
        self._receipts: list[Receipt] | None = None
        self.originals: list[PendingSend] = []
        """Sends that are not yet durable and that contain the originals of this one's duplicates."""

    def expect(self, messages: Sequence[Message], first_seq: int) -> None:
        """Set the messages, none a duplicate, and the sequence of the first; receipts are created on request."""
        self._messages = messages
        self.first_seq = first_seq

    def answer(self, receipts: list[Receipt], first_seq: int) -> None:
        """Set a receipt for each message, because some are duplicates."""
        self._receipts = receipts
        self.first_seq = first_seq

    @property
    def is_all_new(self) -> bool:
        """Whether no message is a duplicate."""
        return self._receipts is None

    @property
    def receipts(self) -> list[Receipt]:
        """One for each message."""
        if self._receipts is None:
            return [Receipt(message.id, seq) for seq, message in enumerate(self._messages, self.first_seq)]
        return self._receipts

    @property
    def message_ids(self) -> list[str]:
        """The id of each message, for callers that need nothing else."""
        if self._receipts is None:
            return [message.id for message in self._messages]
        return [receipt.message_id for receipt in self._receipts]

    def committed(self) -> None:
        """Finish the send after its commit; a duplicate of a failed send fails too."""
        for original in self.originals:
            if original.error is not None:
                self.failed(original.error)
                return
        super().committed()
