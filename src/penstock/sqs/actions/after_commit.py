"""Answers that hold once what they tell is durable."""

from collections.abc import Awaitable, Callable, Sequence

from penstock.engine import AsyncShell, Pending
from penstock.sqs.model import Shape

Commit = tuple[AsyncShell, Pending]


class AfterCommit:
    """A response that may be given after its commits, or what went wrong with one of them instead."""

    __slots__ = ("_commits", "_left", "_response", "_then")

    def __init__(self, commits: Sequence[Commit], response: Shape) -> None:
        self._commits = commits
        self._left = len(commits)
        self._response = response
        self._then: Callable[[], None] | None = None

    def when_done(self, then: Callable[[], None]) -> None:
        """Call `then` when `result` may be asked for: after the commits, or at once when all are done."""
        self._then = then
        for shell, pending in self._commits:
            shell.when_done(pending, self._one_less)

    def result(self) -> Shape:
        """The response; raises what went wrong."""
        for shell, pending in self._commits:
            shell.check(pending)
        return self._response

    def _one_less(self) -> None:
        self._left -= 1
        if not self._left and self._then is not None:
            # Nothing may hold itself alive by what it calls: a request leaves no cycles behind.
            then, self._then = self._then, None
            then()


Answer = Shape | AfterCommit | Awaitable[Shape]
"""What an action gives: its response, at once, after a commit, or when it has waited for something else."""
