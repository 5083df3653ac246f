"""A receiver for trying things out: it prints deliveries, verifies their signatures and checks their order."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

from penstock.client import BadSignature, Event, verify_webhook
from penstock.client.event import decode_event
from penstock.domain.errors import InvalidArgument
from penstock.domain.signing import ID_HEADER, SIGNATURE_HEADER
from penstock.edge.clock import wall_seconds
from penstock.http.server import HttpServer, Receive, Scope, Send, accept_lifespan, read_body, send_answer, stop_signal

MOST_REMEMBERED = 100_000
"""Keys and ids that are remembered; order and repetition are not checked beyond that."""

_BAD_SIGNATURE = 401

V = TypeVar("V")


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


class HeardCounts(msgspec.Struct):
    """How many deliveries were received, and what was wrong with them."""

    received: int = 0
    repeated: int = 0
    out_of_order: int = 0
    badly_signed: int = 0

    def count(self, delivery: HeardDelivery) -> None:
        """Count a delivery."""
        self.received += 1
        self.repeated += delivery.order is Place.REPEATED
        self.out_of_order += delivery.order is Place.OUT_OF_ORDER
        self.badly_signed += delivery.signature is Signed.INVALID

    @property
    def ok(self) -> bool:
        """Whether nothing was out of order or badly signed; repetitions are part of delivery at least once."""
        return not self.out_of_order and not self.badly_signed


class OrderCheck:
    """Checks the order of deliveries: within a key and a priority the ids of a subscription ascend (EVENT-FANOUT-3)."""

    def __init__(self) -> None:
        self._newest: _Remembered[str] = _Remembered()
        self._seen: _Remembered[None] = _Remembered()

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


class _Remembered(Generic[V]):
    """A mapping that forgets what was put longest ago."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, V] = OrderedDict()

    def __contains__(self, name: str) -> bool:
        return name in self._kept

    def get(self, name: str) -> V | None:
        return self._kept.get(name)

    def put(self, name: str, value: V) -> None:
        self._kept[name] = value
        self._kept.move_to_end(name)
        if len(self._kept) > MOST_REMEMBERED:
            self._kept.popitem(last=False)


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
        event = _event_in(body)
        webhook_id = headers.get(ID_HEADER, "")
        # A delivery that is not accepted comes again, and does not advance its key.
        accepted = answer // 100 == 2
        subscription = headers.get("penstock-subscription", "")
        attempt = headers.get("penstock-attempt", "")
        return HeardDelivery(
            received_s=wall_seconds(),
            id=webhook_id,
            type=None if event is None else event.type,
            key=None if event is None else event.key,
            data=body.decode(errors="replace") if event is None else event.data,
            attempt=int(attempt) if attempt.isdecimal() else 1,
            signature=signature,
            order=self._order.place_of(webhook_id, subscription, event) if accepted else Place.NO_ORDER,
            answer=answer,
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


def _event_in(body: bytes) -> Event | None:
    try:
        return decode_event(body)
    except InvalidArgument:
        return None
