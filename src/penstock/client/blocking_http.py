"""The blocking HTTP client: connections to one server, kept open, one for each thread that asks at the time."""

import http.client
import select
import ssl
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple, Self

BROKEN = (OSError, http.client.HTTPException)
"""What `send` raises when no answer comes; a TimeoutError, if it did not come in time, is an OSError too."""


class HttpAnswer(NamedTuple):
    """An answer, whole."""

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
        """Send a request, once, and wait for its answer; one of BROKEN if none comes."""
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
        """Hang up; the next request connects again."""
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
    # Nothing is due on an idle connection: what can be read is its end.
    readable = select.poll()
    readable.register(connection.sock, select.POLLIN)
    return bool(readable.poll(0))
