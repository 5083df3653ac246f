"""How far a replay is, on one line that is written over; in a pipe a line now and then."""

import sys
import time
from collections import deque
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from penstock.events.replay import ReplayProgress

_CLEAR_LINE = "\r\x1b[K"
_OVER_S = 10.0
_IN_A_PIPE_S = 5.0


class ProgressLine:
    """Shows rows, rate and how long it will take."""

    def __init__(self, total: int, *, quiet: bool) -> None:
        self._total = total
        self._quiet = quiet
        self._on_terminal = sys.stderr.isatty()
        self._seen: deque[tuple[float, int]] = deque()
        self._told_s = 0.0

    def show(self, progress: "ReplayProgress") -> None:
        """Tell what is known now."""
        now_s = time.monotonic()
        self._seen.append((now_s, progress.looked_at))
        while len(self._seen) > 2 and self._seen[0][0] < now_s - _OVER_S:
            self._seen.popleft()
        if self._quiet or (not self._on_terminal and now_s < self._told_s + _IN_A_PIPE_S):
            return
        self._told_s = now_s
        line = progress_text(progress, self._total, self._rate())
        typer.echo(f"{_CLEAR_LINE}{line}" if self._on_terminal else line, err=True, nl=not self._on_terminal)

    def clear(self) -> None:
        """Leave the line empty for what comes next."""
        if self._on_terminal and not self._quiet:
            typer.echo(_CLEAR_LINE, err=True, nl=False)

    def _rate(self) -> float:
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else 0.0


def progress_text(progress: "ReplayProgress", total: int, per_s: float) -> str:
    """The line for a reader."""
    left = max(0, total - progress.looked_at)
    parts = [f"{progress.looked_at} of {total} jobs", f"{per_s:.0f}/s"]
    if per_s > 0 and left:
        parts.append(f"{left / per_s:.0f} s left")
    if progress.failed or progress.held_back:
        parts.append(f"{progress.failed} failed, {progress.held_back} held back")
    return ", ".join(parts)
