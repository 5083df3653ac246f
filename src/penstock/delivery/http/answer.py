"""The answer of a server: status, Retry-After, and the body up to a limit."""

import msgspec

from penstock.delivery.http.settings import HttpClientSettings
from penstock.domain.limits import KIB

MAX_HEAD_BYTES = 64 * KIB


class Answer(msgspec.Struct, frozen=True, gc=False):
    """The final answer to a request."""

    status: int
    retry_after: str | None
    body: bytes


class AnswerBody:
    """Collects a body up to the limits."""

    __slots__ = ("_kept", "_kept_bytes", "_max_kept_bytes", "_max_read_bytes", "read_bytes")

    def __init__(self, settings: HttpClientSettings) -> None:
        self._max_kept_bytes = settings.kept_body_bytes
        self._max_read_bytes = settings.read_body_bytes
        self._kept: list[bytes] = []
        self._kept_bytes = 0
        self.read_bytes = 0

    def add(self, piece: bytes) -> None:
        """Add a piece."""
        self.read_bytes += len(piece)
        if self._kept_bytes < self._max_kept_bytes:
            self._kept.append(piece[: self._max_kept_bytes - self._kept_bytes])
            self._kept_bytes += len(self._kept[-1])

    @property
    def is_too_long(self) -> bool:
        """Whether reading should stop."""
        return self.read_bytes > self._max_read_bytes

    def take(self) -> bytes:
        """Return the kept part, and start the next body."""
        kept = self._kept[0] if len(self._kept) == 1 else b"".join(self._kept)
        self._kept.clear()
        self._kept_bytes = self.read_bytes = 0
        return kept
