"""Taking GOAWAY frames out of what an HTTP/2 endpoint sends.

The h2 package ends the connection at the first GOAWAY, though an endpoint that restarts sends it to finish the streams
it has begun. So h2 never sees one, and the connection acts on it by itself.
"""

import msgspec

HEADER_BYTES = 9
MAX_FRAME_BYTES = 16_384  # the least that every endpoint must allow, and all that we do
_GOAWAY = 0x7
_STREAM_ID_MASK = 0x7FFF_FFFF


class Goaway(msgspec.Struct, frozen=True):
    """The endpoint takes no more streams; those after the last one were not processed."""

    last_stream_id: int
    error_code: int


class GoawayFilter:
    """Splits a stream of bytes at its frames."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> tuple[bytes, Goaway | None]:
        """The whole frames for h2, and the last GOAWAY among them, if any."""
        buffer = self._buffer + data if self._buffer else data
        passed: list[bytes] = []
        goaway: Goaway | None = None
        at = 0
        while len(buffer) - at >= HEADER_BYTES:
            length = int.from_bytes(buffer[at : at + 3], "big")
            end = at + HEADER_BYTES + length
            if length > MAX_FRAME_BYTES:
                end = len(buffer)  # h2 says what is wrong with it
            elif end > len(buffer):
                break
            if buffer[at + 3] == _GOAWAY and length >= 8:
                goaway = _goaway(buffer[at + HEADER_BYTES : end])
            else:
                passed.append(buffer[at:end])
            at = end
        self._buffer = buffer[at:]
        return b"".join(passed), goaway


def _goaway(payload: bytes) -> Goaway:
    last_stream_id = int.from_bytes(payload[:4], "big") & _STREAM_ID_MASK
    return Goaway(last_stream_id, int.from_bytes(payload[4:8], "big"))
