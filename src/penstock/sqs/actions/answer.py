"""An action's answer, which may have to wait until what it reports is durable."""

from collections.abc import Awaitable, Callable, Sequence

from penstock.engine import AsyncShell, Pending
from penstock.sqs.model import Shape

Commit = tuple[AsyncShell, Pending]


class AfterCommit:
    """A response that may be sent after its commits, or the error if one of them fails."""

    __slots__ = ("_check", "_commits", "_left", "_response", "_then")

    def __init__(self, commits: Sequence[Commit], response: Shape, check: Callable[[], None] | None = None) -> None:
        """`check` raises an error if the response must not be sent any more."""
        self._check = check
        self._commits = commits
        self._left = len(commits)
        self._response = response
        self._then: Callable[[], None] | None = None

    def when_done(self, then: Callable[[], None]) -> None:
        """Call `then` when `result` is ready: after the commits, or immediately if all are done."""
        self._then = then
        for shell, pending in self._commits:
            shell.when_done(pending, self._commit_done)

    async def wait(self) -> Shape:
        """Return the response after its commits; raise the error if one of them fails."""
        for shell, pending in self._commits:
            await shell.commit(pending)
        return self._checked()

    def result(self) -> Shape:
        """Return the response; raise the error if a commit failed."""
        for shell, pending in self._commits:
            shell.check(pending)
        return self._checked()

    def _checked(self) -> Shape:
        if self._check is not None:
            self._check()
        return self._response

    def _commit_done(self) -> None:
        self._left -= 1
        if not self._left and self._then is not None:
            # Drop the callback first: it refers back to this object, and a request must leave no cycles behind.
            then, self._then = self._then, None
            then()


Answer = Shape | AfterCommit | Awaitable[Shape]
"""What an action returns: its response, one that waits for a commit, or one that waits for something else."""
