"""Calls of the asyncio client, and their repetition when a connection breaks."""

from penstock.client.calls import A, ApiCall
from penstock.client.endpoint import REPEAT_AFTER_S, Endpoint
from penstock.delivery import (
    AnswerTimedOut,
    AnyAddress,
    ConnectTimedOut,
    DeliveryFailed,
    HttpClient,
    head_with,
    own_part_settings,
)
from penstock.domain.limits import MIB
from penstock.edge.pause import pause

MAX_ANSWER_BYTES = 512 * MIB


class AsyncConnections:
    """Makes calls; any number of tasks may share it."""

    def __init__(self, endpoint: Endpoint, timeout_s: float) -> None:
        self._endpoint = endpoint
        self._settings = own_part_settings(timeout_s, MAX_ANSWER_BYTES)
        # Made by the first call, as a client may be made before there is an event loop.
        self._http: HttpClient | None = None

    async def ask(self, call: ApiCall[A]) -> A:
        """The answer to a call; it is made again if the connection breaks and that does no harm."""
        for pause_s in REPEAT_AFTER_S if call.repeatable else ():
            try:
                return await self._exchange(call)
            except (AnswerTimedOut, ConnectTimedOut) as error:
                raise self._endpoint.no_answer(call, error.message) from error
            except DeliveryFailed:
                await pause(pause_s)
        try:
            return await self._exchange(call)
        except DeliveryFailed as error:
            raise self._endpoint.no_answer(call, error.message) from error

    async def close(self) -> None:
        """Hang up; the next call connects again."""
        if self._http is not None:
            self._http.close()
            self._http = None

    async def _exchange(self, call: ApiCall[A]) -> A:
        if self._http is None:
            self._http = HttpClient(AnyAddress(), self._settings)
        endpoint = self._endpoint
        headers = tuple((name.lower(), value) for name, value in endpoint.headers(call.body).items())
        head = head_with(endpoint.origin + endpoint.base_path + call.path, headers, call.method)
        answer = await self._http.send(head, call.body or b"", repeatable=call.repeatable)
        return endpoint.read(call, answer.status, answer.body)
