"""Calls of the blocking client, and their repetition when a connection breaks."""

from threading import Event as Flag

from penstock.client.blocking_http import BROKEN, BlockingHttp
from penstock.client.calls import A, ApiCall
from penstock.client.endpoint import REPEAT_AFTER_S, Endpoint


class BlockingConnections:
    """Makes calls; safe to share between threads."""

    def __init__(self, endpoint: Endpoint, timeout_s: float) -> None:
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._http = BlockingHttp(endpoint.host, endpoint.port, secure=endpoint.secure, timeout_s=timeout_s)
        self._closed = Flag()

    def ask(self, call: ApiCall[A]) -> A:
        """The answer to a call; it is made again if the connection breaks and that does no harm."""
        for pause_s in REPEAT_AFTER_S if call.repeatable else ():
            try:
                return self._exchange(call)
            except TimeoutError as error:
                raise self._no_answer(call, error) from error
            except BROKEN:
                # Ends early if another thread closes the client.
                self._closed.wait(pause_s)
        try:
            return self._exchange(call)
        except BROKEN as error:
            raise self._no_answer(call, error) from error

    def close(self) -> None:
        """Hang up; the next call connects again."""
        self._closed.set()
        self._http.close()

    def _exchange(self, call: ApiCall[A]) -> A:
        endpoint = self._endpoint
        answer = self._http.send(call.method, endpoint.base_path + call.path, call.body, endpoint.headers(call.body))
        return endpoint.read(call, answer.status, answer.body)

    def _no_answer(self, call: ApiCall[A], error: Exception) -> Exception:
        late = isinstance(error, TimeoutError)
        return self._endpoint.no_answer(call, f"no answer within {self._timeout_s:g} s" if late else str(error))
