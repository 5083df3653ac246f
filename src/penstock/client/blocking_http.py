"""The blocking HTTP client: kept connections to one server, one for each thread that is sending."""

import http.client
import select
import socket
import ssl
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple, Self

BROKEN = (OSError, http.client.HTTPException)
"""What `send` raises if no answer comes; the TimeoutError of a late answer is an OSError too."""

NOT_CONNECTED = (ConnectionRefusedError, socket.gaierror)
"""Those of BROKEN that show that nothing was sent."""


class HttpAnswer(NamedTuple):
    """A complete answer."""

    status: int
    body: bytes


class BlockingHttp:
    """Sends requests to one server; safe to share between threads."""

    def __init__(self, host: str, port: int | None, *, secure: bool, timeout_s: float) -> None:
        self._host = host
        self._port = port
        self._timeout_s = timeout_s
        self._tls = ssl.create_default_context() if secure else None
        self._idle: deque[http.client.HTTPConnection] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> HttpAnswer:
        """Send a request once and wait for its answer; raise one of BROKEN if none comes."""
        connection = self._take()
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        except BaseException:
            connection.close()
            raise
        if not answer.will_close:
            self._idle.append(connection)
        return HttpAnswer(answer.status, content)

    def close(self) -> None:
        """Close the connections; the next request connects again."""
        while self._idle:
            self._idle.pop().close()

    def _take(self) -> http.client.HTTPConnection:
        while self._idle:
            connection = self._idle.pop()
            if not _has_ended(connection):
                return connection
            connection.close()
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)


def _has_ended(connection: http.client.HTTPConnection) -> bool:
    # An idle connection expects nothing: if it is readable, it has ended.
    readable = select.poll()
    readable.register(connection.sock, select.POLLIN)
    return bool(readable.poll(0))
