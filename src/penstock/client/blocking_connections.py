"""Connections of the blocking client: kept open between calls, one for each thread that calls at the time."""

import http.client
import select
import ssl
from collections import deque
from threading import Event as Flag

from penstock.client.calls import A, Call
from penstock.client.endpoint import REPEAT_AFTER_S, Endpoint

_BROKEN = (OSError, http.client.HTTPException)


class BlockingConnections:
    """Makes calls; safe to share between threads."""

    def __init__(self, endpoint: Endpoint, timeout_s: float) -> None:
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._tls = ssl.create_default_context() if endpoint.secure else None
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._closed = Flag()

    def ask(self, call: Call[A]) -> A:
        """The answer to a call; it is made again if the connection breaks and that does no harm."""
        for pause_s in REPEAT_AFTER_S if call.repeatable else ():
            try:
                return self._exchange(call)
            except TimeoutError as error:
                raise self._endpoint.no_answer(call, error) from error
            except _BROKEN:
                # Ends early if another thread closes the client.
                self._closed.wait(pause_s)
        try:
            return self._exchange(call)
        except _BROKEN as error:
            raise self._endpoint.no_answer(call, error) from error

    def close(self) -> None:
        """Hang up; the next call connects anew."""
        self._closed.set()
        while self._idle:
            self._idle.pop().close()

    def _exchange(self, call: Call[A]) -> A:
        connection = self._take()
        try:
            path = self._endpoint.base_path + call.path
            connection.request(call.method, path, call.body, self._endpoint.headers(call))
            answer = connection.getresponse()
            content = answer.read()
        except BaseException:
            connection.close()
            raise
        if not answer.will_close:
            self._idle.append(connection)
        return self._endpoint.read(call, answer.status, content)

    def _take(self) -> http.client.HTTPConnection:
        while self._idle:
            connection = self._idle.pop()
            if not _has_ended(connection):
                return connection
            connection.close()
        endpoint = self._endpoint
        if self._tls is not None:
            return http.client.HTTPSConnection(endpoint.host, endpoint.port, timeout=self._timeout_s, context=self._tls)
        return http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=self._timeout_s)


def _has_ended(connection: http.client.HTTPConnection) -> bool:
    # Nothing is due on an idle connection: what can be read is its end.
    readable = select.poll()
    readable.register(connection.sock, select.POLLIN)
    return bool(readable.poll(0))
