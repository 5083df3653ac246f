"""STOMP 1.2 frames: an encoder, and a parser of a byte stream."""

import re
from collections.abc import Mapping

import msgspec

from penstock.queues.errors import MalformedFrame

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024
HEART_BEAT = b"\n"
# These have no escapes, so that STOMP 1.0 peers understand them.
_UNESCAPED_COMMANDS = frozenset({"CONNECT", "CONNECTED"})
_ESCAPES = str.maketrans({"\\": "\\\\", "\r": "\\r", "\n": "\\n", ":": "\\c"})
_ESCAPE = re.compile(r"\\.?", re.DOTALL)
_REPLACEMENTS = {"\\\\": "\\", "\\r": "\r", "\\n": "\n", "\\c": ":"}
_NUL = 0


class Frame(msgspec.Struct, frozen=True):
    """A command with its headers and body; of a repeated header the first value counts."""

    command: str
    headers: Mapping[str, str]
    body: bytes = b""


def encoded(command: str, headers: Mapping[str, str], body: bytes | None = None) -> bytes:
    """Encode a frame. A body gets a content-length, so it may contain any byte."""
    if command in _UNESCAPED_COMMANDS:
        lines = [f"{name}:{_single_line(value)}\n" for name, value in headers.items()]
    else:
        lines = [f"{name.translate(_ESCAPES)}:{value.translate(_ESCAPES)}\n" for name, value in headers.items()]
    if body is not None:
        lines.append(f"content-length:{len(body)}\n")
    head = f"{command}\n{''.join(lines)}\n".encode()
    return b"".join((head, body or b"", b"\0"))


def _single_line(value: str) -> str:
    if "\n" in value or "\r" in value or "\0" in value:
        raise ValueError("a header of a CONNECT frame must be a single line")
    return value


class FrameParser:
    """Parses frames from chunks of bytes; the two limits bound its memory."""

    def __init__(self, max_head_bytes: int = MAX_HEAD_BYTES, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self._max_head_bytes = max_head_bytes
        self._max_body_bytes = max_body_bytes
        self._buffer = bytearray()
        # The head of the incomplete frame, and where to continue searching the buffer.
        self._head: tuple[str, dict[str, str]] | None = None
        self._length: int | None = None
        self._searched = 0

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that the bytes complete; raise MalformedFrame if they are not STOMP."""
        self._buffer += data
        frames: list[Frame] = []
        while (frame := self._next()) is not None:
            frames.append(frame)
        return frames

    def _next(self) -> Frame | None:
        if self._head is None and not self._read_head():
            return None
        assert self._head is not None
        body = self._read_body()
        if body is None:
            return None
        command, headers = self._head
        self._head, self._length = None, None
        return Frame(command, headers, body)

    def _read_head(self) -> bool:
        buffer = self._buffer
        if self._searched == 0:
            _skip_line_ends(buffer)
        end, after = _blank_line(buffer, self._searched)
        if end > self._max_head_bytes or (end < 0 and len(buffer) > self._max_head_bytes):
            raise MalformedFrame(f"its head is longer than {self._max_head_bytes} bytes")
        if end < 0:
            # A blank line may start in the last three bytes.
            self._searched = max(0, len(buffer) - 3)
            return False
        self._head = _parsed_head(bytes(buffer[:end]))
        self._length = _content_length(self._head[1], self._max_body_bytes)
        del buffer[:after]
        self._searched = 0
        return True

    def _read_body(self) -> bytes | None:
        buffer = self._buffer
        end = self._length if self._length is not None else buffer.find(_NUL, self._searched)
        if end > self._max_body_bytes or (end < 0 and len(buffer) > self._max_body_bytes):
            raise MalformedFrame(f"its body is longer than {self._max_body_bytes} bytes")
        if end < 0 or len(buffer) <= end:
            self._searched = len(buffer)
            return None
        if buffer[end] != _NUL:
            raise MalformedFrame(f"no NUL follows its body of {end} bytes")
        body = bytes(buffer[:end])
        del buffer[: end + 1]
        self._searched = 0
        return body


def _skip_line_ends(buffer: bytearray) -> None:
    # Line ends between frames are heart-beats.
    stripped = len(buffer) - len(buffer.lstrip(b"\r\n"))
    del buffer[:stripped]


def _blank_line(buffer: bytearray, start: int) -> tuple[int, int]:
    """Return where the head ends and where the body starts; -1 if there is no blank line yet."""
    plain = buffer.find(b"\n\n", start)
    with_return = buffer.find(b"\n\r\n", start)
    if plain >= 0 and (with_return < 0 or plain < with_return):
        return plain, plain + 2
    return (with_return, with_return + 3) if with_return >= 0 else (-1, -1)


def _parsed_head(head: bytes) -> tuple[str, dict[str, str]]:
    try:
        command, *lines = head.decode().split("\n")
    except UnicodeDecodeError:
        raise MalformedFrame("its head is not UTF-8") from None
    command = command.removesuffix("\r")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.removesuffix("\r").partition(":")
        if not colon:
            raise MalformedFrame(f"its header {line[:80]!r} has no colon")
        if command not in _UNESCAPED_COMMANDS:
            name, value = _unescaped(name), _unescaped(value)
        headers.setdefault(name, value)
    return command, headers


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_replacement, text) if "\\" in text else text


def _replacement(escape: re.Match[str]) -> str:
    try:
        return _REPLACEMENTS[escape[0]]
    except KeyError:
        raise MalformedFrame(f"its header has the unknown escape {escape[0]}") from None


def _content_length(headers: dict[str, str], most: int) -> int | None:
    text = headers.get("content-length")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()):
        raise MalformedFrame(f"its content-length {text[:80]!r} is not a number")
    if len(text) > 18 or int(text) > most:
        raise MalformedFrame(f"its body of {text[:20]} bytes is longer than {most} bytes")
    return int(text)
