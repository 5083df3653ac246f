"""What an endpoint answered, as far as deliveries care."""

import msgspec

from penstock.domain.limits import KIB, MIB

# More of a body than this is read, but not kept; past the second limit it is not read either.
KEPT_BODY_BYTES = 64 * KIB
READ_BODY_BYTES = MIB
MAX_HEAD_BYTES = 64 * KIB


class Answer(msgspec.Struct, frozen=True, gc=False):
    """The final answer to a request."""

    status: int
    retry_after: str | None
    body: bytes


class AnswerBody:
    """Gathers a body up to the limits."""

    __slots__ = ("_kept", "_kept_bytes", "read_bytes")

    def __init__(self) -> None:
        self._kept: list[bytes] = []
        self._kept_bytes = 0
        self.read_bytes = 0

    def add(self, piece: bytes) -> None:
        """Take a piece in."""
        self.read_bytes += len(piece)
        if self._kept_bytes < KEPT_BODY_BYTES:
            self._kept.append(piece[: KEPT_BODY_BYTES - self._kept_bytes])
            self._kept_bytes += len(self._kept[-1])

    @property
    def is_too_long(self) -> bool:
        """Whether it is not worth reading on."""
        return self.read_bytes > READ_BODY_BYTES

    def take(self) -> bytes:
        """What was kept; the next body begins."""
        kept = self._kept[0] if len(self._kept) == 1 else b"".join(self._kept)
        self._kept.clear()
        self._kept_bytes = self.read_bytes = 0
        return kept
