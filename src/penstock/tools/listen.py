"""A receiver for trying things out: it prints deliveries, verifies their signatures, and checks order and numbers."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

import msgspec

from penstock.client import BadSignature, Event, verify_webhook
from penstock.client.event import decode_binary, decode_event
from penstock.client.receiver import InMemory, KeyArrival, Remembered, read_headers
from penstock.domain.errors import InvalidArgument
from penstock.domain.event import BINARY_HEADER, attributes_in
from penstock.domain.signing import ID_HEADER, SIGNATURE_HEADER
from penstock.edge.clock import wall_seconds
from penstock.http.server import HttpServer, Receive, Scope, Send, accept_lifespan, read_body, send_answer, stop_signal

_BAD_SIGNATURE = 401


class Signed(StrEnum):
    """What is known about a signature."""

    VALID = "valid"
    INVALID = "INVALID"
    UNCHECKED = "not checked"
    MISSING = "none"


class Place(StrEnum):
    """Where a delivery stands among those of its key."""

    IN_ORDER = "in order"
    REPEATED = "repeated"
    OUT_OF_ORDER = "OUT OF ORDER"
    NO_ORDER = "no key"


class HeardDelivery(msgspec.Struct, frozen=True, rename="camel"):
    """A received delivery."""

    received_s: float
    id: str
    type: str | None
    key: str | None
    data: object
    attempt: int
    signature: Signed
    order: Place
    answer: int
    sequence: int | None = None
    missing: Sequence[int] = ()
    """Numbers of its key that should have come before it and have not."""
    arrival: KeyArrival | None = None


class HeardCounts(msgspec.Struct):
    """How many deliveries were received, and what was wrong with them."""

    received: int = 0
    repeated: int = 0
    out_of_order: int = 0
    badly_signed: int = 0
    missing: int = 0
    """Numbers that were left out and have not come since."""

    def count(self, delivery: HeardDelivery) -> None:
        """Count a delivery."""
        self.received += 1
        self.repeated += delivery.order is Place.REPEATED
        self.out_of_order += delivery.order is Place.OUT_OF_ORDER
        self.badly_signed += delivery.signature is Signed.INVALID
        self.missing += len(delivery.missing) - (delivery.arrival is KeyArrival.LATE)

    @property
    def ok(self) -> bool:
        """Whether nothing was out of order or badly signed; repetitions are part of delivery at least once."""
        return not self.out_of_order and not self.badly_signed


class OrderCheck:
    """Checks the order of deliveries: within a key and a priority the ids of a subscription ascend (EVENT-FANOUT-3)."""

    def __init__(self) -> None:
        self._newest: Remembered[str] = Remembered()
        self._seen: Remembered[None] = Remembered()

    def place_of(self, webhook_id: str, subscription: str, event: Event | None) -> Place:
        """Return where an accepted delivery stands."""
        if webhook_id in self._seen:
            return Place.REPEATED
        self._seen.put(webhook_id, None)
        if event is None or event.key is None:
            return Place.NO_ORDER
        lane = msgspec.json.encode((subscription, event.key, event.high_priority)).decode()
        newest = self._newest.get(lane)
        if newest is not None and webhook_id < newest:
            return Place.OUT_OF_ORDER
        self._newest.put(lane, webhook_id)
        return Place.IN_ORDER


class Listener:
    """The app that receives: it answers `status`, or 401 to a delivery that none of the secrets signed."""

    def __init__(
        self, secrets: Sequence[str], status: int, report: Callable[[HeardDelivery], None], most: int | None = None
    ) -> None:
        self._secrets = secrets
        self._status = status
        self._report = report
        self._most = most
        self._order = OrderCheck()
        self._numbers = InMemory()
        self.tally = HeardCounts()
        self.enough = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await accept_lifespan(receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        delivery = self._read(headers, await read_body(receive))
        await send_answer(scope, send, delivery.answer, b"", {})
        self.tally.count(delivery)
        self._report(delivery)
        if self.tally.received == self._most:
            self.enough.set()

    def _read(self, headers: Mapping[str, str], body: bytes) -> HeardDelivery:
        signature = self._signature(headers, body)
        answer = _BAD_SIGNATURE if signature is Signed.INVALID else self._status
        event = _event_in(headers, body)
        webhook_id = headers.get(ID_HEADER, "")
        # A delivery that is not accepted comes again, and does not advance its key.
        accepted = answer // 100 == 2
        said = read_headers(headers)
        subscription = said.subscription or ""
        step = None
        if accepted and said.sequence is not None and said.replay is None:
            step = self._numbers.step(subscription, said.key or "", said.sequence)
        return HeardDelivery(
            received_s=wall_seconds(),
            id=webhook_id,
            type=None if event is None else event.type,
            key=None if event is None else event.key,
            data=body.decode(errors="replace") if event is None else event.data,
            attempt=said.attempt,
            signature=signature,
            order=self._order.place_of(webhook_id, subscription, event) if accepted else Place.NO_ORDER,
            answer=answer,
            sequence=said.sequence,
            missing=[] if step is None else list(step.missing),
            arrival=None if step is None else step.arrival,
        )

    def _signature(self, headers: Mapping[str, str], body: bytes) -> Signed:
        if not self._secrets:
            return Signed.UNCHECKED if SIGNATURE_HEADER in headers else Signed.MISSING
        try:
            verify_webhook(headers, body, self._secrets)
        except BadSignature:
            return Signed.INVALID
        return Signed.VALID


async def listen(listener: Listener, host: str, port: int) -> None:
    """Receive until a signal, or until enough was received."""
    server = HttpServer(listener, host, port, credentials_set=True)
    stop = stop_signal(server)
    async with server:
        server.announce(open_to_deliveries=True)
        waits = [asyncio.create_task(flag.wait()) for flag in (stop, listener.enough)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()


def _event_in(headers: Mapping[str, str], body: bytes) -> Event | None:
    try:
        if BINARY_HEADER in headers:
            return decode_binary(attributes_in(headers), headers.get("content-type", ""), body)
        return decode_event(body)
    except InvalidArgument:
        return None
