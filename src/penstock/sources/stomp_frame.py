"""STOMP 1.2 frames and how they are written."""

from collections.abc import Mapping

import msgspec

# CONNECT and CONNECTED are written without escapes, so that STOMP 1.0 peers understand them.
UNESCAPED_COMMANDS = frozenset({"CONNECT", "CONNECTED"})
_ESCAPES = str.maketrans({"\\": "\\\\", "\r": "\\r", "\n": "\\n", ":": "\\c"})
HEART_BEAT = b"\n"


class Frame(msgspec.Struct, frozen=True):
    """A command with its headers and body; of a header written twice the first counts."""

    command: str
    headers: Mapping[str, str]
    body: bytes = b""


def encoded(command: str, headers: Mapping[str, str], body: bytes | None = None) -> bytes:
    """A frame as it goes over the wire. A body gets its content-length, so it may hold any byte."""
    if command in UNESCAPED_COMMANDS:
        lines = [f"{name}:{_on_one_line(value)}\n" for name, value in headers.items()]
    else:
        lines = [f"{name.translate(_ESCAPES)}:{value.translate(_ESCAPES)}\n" for name, value in headers.items()]
    if body is not None:
        lines.append(f"content-length:{len(body)}\n")
    head = f"{command}\n{''.join(lines)}\n".encode()
    return b"".join((head, body or b"", b"\0"))


def _on_one_line(value: str) -> str:
    if "\n" in value or "\r" in value or "\0" in value:
        raise ValueError("a header of a CONNECT frame must stand on one line")
    return value
