"""The receiver: what happens to a request, whichever framework took it."""

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from penstock.client.errors import BadSignature, DeliverLater
from penstock.client.receiver.delivery import ReceivedDelivery, read_delivery
from penstock.client.receiver.memory import InMemory, OnceStore, ReceiverMemory
from penstock.client.types import MAX_DATA_BYTES
from penstock.domain.errors import InvalidArgument

log = logging.getLogger(__name__)

MOST_BODY_BYTES = 4 * MAX_DATA_BYTES
"""No delivery is larger: an event's data in base64, and its attributes."""


class Answered(msgspec.Struct, frozen=True):
    """The answer to a request."""

    status: int
    body: bytes = b""


_DONE = Answered(204)
_TOO_LARGE = Answered(413, b'{"error":"the body is larger than any delivery"}')


class WebhookReceiver:
    """Verifies deliveries, passes each new one to a handler, and notices missing ones.

    A delivery that the handler did not finish comes again: the framework answers an exception with 500; `DeliverLater`
    says when. `once` keeps ids elsewhere than in `memory`, such as in the transaction of the handler's own database.
    """

    def __init__(
        self,
        handle: Callable[[ReceivedDelivery], object],
        secrets: str | Sequence[str],
        memory: ReceiverMemory | None = None,
        once: OnceStore | None = None,
    ) -> None:
        self._handle = handle
        self._secrets = [secrets] if isinstance(secrets, str) else list(secrets)
        if not self._secrets:
            raise InvalidArgument("a receiver needs the secret of its subscription: without it anyone could call it")
        self._memory: ReceiverMemory = InMemory() if memory is None else memory
        self._once: OnceStore = self._memory if once is None else once
        self.is_async = inspect.iscoroutinefunction(handle)

    def answer(self, headers: Mapping[str, str], body: bytes) -> Answered:
        """Process a request with a plain handler."""
        if self.is_async:
            raise InvalidArgument("an async handler needs `answer_async`, as `starlette_endpoint` uses it")
        with self._receiving(headers, body) as received:
            if received.new is not None:
                self._handle(received.new)
        return received.answer

    async def answer_async(self, headers: Mapping[str, str], body: bytes) -> Answered:
        """Process a request with an async handler."""
        with self._receiving(headers, body) as received:
            if received.new is not None:
                result = self._handle(received.new)
                if inspect.isawaitable(result):
                    await result
        return received.answer

    @contextmanager
    def _receiving(self, headers: Mapping[str, str], body: bytes) -> Iterator["_Received"]:
        received = self._read(headers, body)
        if received.new is None:
            yield received
            return
        delivery = received.new
        try:
            with self._once.once(delivery.id) as is_new:
                if not is_new:
                    received.new = None
                yield received
        except DeliverLater as later:
            received.answer = Answered(200, msgspec.json.encode({"ack": False, "delaySeconds": later.delay_s}))

    def _read(self, headers: Mapping[str, str], body: bytes) -> "_Received":
        if len(body) > MOST_BODY_BYTES:
            return _Received(_TOO_LARGE)
        try:
            delivery = read_delivery(headers, body, self._secrets)
        except BadSignature as error:
            log.warning("%s", error.message)
            return _Received(Answered(401, msgspec.json.encode({"error": error.message})))
        return _Received(_DONE, self._placed(delivery))

    def _placed(self, delivery: ReceivedDelivery) -> ReceivedDelivery:
        # A replay brings an old number again, on purpose.
        if delivery.sequence is None or delivery.replay is not None:
            return delivery
        step = self._memory.step(delivery.subscription or "", delivery.key or "", delivery.sequence)
        if step.missing:
            first, last = step.missing[0], step.missing[-1]
            log.warning("of the key %r the numbers %d to %d have not arrived", delivery.key, first, last)
        return msgspec.structs.replace(delivery, arrival=step.arrival, missing=step.missing)


class _Received(msgspec.Struct):
    """A request: its answer, and the delivery if it is to be handled."""

    answer: Answered
    new: ReceivedDelivery | None = None
