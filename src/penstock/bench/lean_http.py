"""A bare HTTP/1.1 client on asyncio, so lean that a benchmark measures the server and not the client."""

import asyncio
from typing import cast


class LeanConnection(asyncio.Protocol):
    """One keep-alive connection; one request at a time; answers must have a Content-Length."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._answer: asyncio.Future[bytes] | None = None

    @classmethod
    async def open(cls, host: str, port: int) -> "LeanConnection":
        """Connect."""
        _, connection = await asyncio.get_running_loop().create_connection(cls, host, port)
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        # uvloop's transports have the interface but not the base class.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Gather an answer; hand its body over when it is whole."""
        buffer = self._buffer + data if self._buffer else data
        head_end = buffer.find(b"\r\n\r\n")
        if head_end >= 0:
            at = buffer.lower().find(b"content-length:", 0, head_end)
            end = buffer.find(b"\r\n", at, head_end + 2)
            whole = head_end + 4 + int(buffer[at + 15 : end])
            if len(buffer) >= whole:
                answer, self._answer = self._answer, None
                self._buffer = b""
                if answer is not None and not answer.done():
                    if buffer.startswith(b"HTTP/1.1 200"):
                        answer.set_result(buffer[head_end + 4 : whole])
                    else:
                        answer.set_exception(RuntimeError(buffer[:2000].decode(errors="replace")))
                return
        self._buffer = buffer

    def connection_lost(self, exc: Exception | None) -> None:
        """The server hung up."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("the server hung up"))

    def request(self, raw: bytes) -> "asyncio.Future[bytes]":
        """Send a whole request; its answer's body comes."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(raw)
        return self._answer

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()


def post(host: str, path: str, headers: dict[str, str], body: bytes) -> bytes:
    """The bytes of a POST."""
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body
