"""An HTTP server that answers as a test says, for what real servers do seldom."""

import asyncio
import json
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple


class Asked(NamedTuple):
    """A request that came."""

    connection: int
    action: str
    headers: dict[str, str]
    body: Any


# A JSON answer; a status with its body; the very bytes to send before hanging up; or silence until the client does.
Reply = dict[str, Any] | tuple[int, dict[str, Any]] | bytes | None
Script = Callable[[Asked], Reply]


class ScriptedServer:
    """Answers each request by the script; `asked` has them all."""

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        self.script = script
        self.asked: list[Asked] = []
        self.connections = 0
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def __aenter__(self) -> "ScriptedServer":
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self.hang_up()

    def actions(self) -> list[str]:
        """What was asked for, in order."""
        return [asked.action for asked in self.asked]

    async def hang_up(self) -> None:
        """Close all connections, as a server does with those that are idle for long."""
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        self.connections += 1
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                await self._serve(self.connections, reader, writer)
        finally:
            self._writers.discard(writer)
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, connection: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
            body = json.loads(await reader.readexactly(int(headers["content-length"])))
            target = next(line for line in head.split("\r\n") if line.startswith("X-Amz-Target: "))
            asked = Asked(connection, target.rpartition(".")[2], headers, body)
            self.asked.append(asked)
            reply = self.script(asked)
            if reply is None:
                await reader.read()
                return
            if isinstance(reply, bytes):
                writer.write(reply)
                return
            status, answer = reply if isinstance(reply, tuple) else (200, reply)
            text = json.dumps(answer).encode()
            writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(text), text))
