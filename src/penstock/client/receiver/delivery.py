"""A delivery as a handler gets it."""

from collections.abc import Mapping, Sequence

import msgspec

from penstock.client.event import Event
from penstock.client.receiver.gaps import KeyArrival
from penstock.client.webhook import Webhook, verify_webhook
from penstock.domain.event import percent_decoded
from penstock.domain.replay import REPLAY_HEADER

_MOST_DIGITS = 18


class DeliveryHeaders(msgspec.Struct, frozen=True, kw_only=True):
    """What the headers of a delivery say; the signature covers the body and the id, and not these.

    `sequence` numbers the events of a key from 1; `replay` is the id of the replay that delivers it again.
    """

    subscription: str | None = None
    key: str | None = None
    sequence: int | None = None
    attempt: int = 1
    replay: str | None = None


class ReceivedDelivery(DeliveryHeaders, frozen=True, kw_only=True):
    """A verified delivery.

    `missing` are the numbers right before it that have not arrived so far: they may come later, or were cancelled,
    ignored by a person, or expired.
    """

    webhook: Webhook
    arrival: KeyArrival | None = None
    missing: range = range(0)

    @property
    def id(self) -> str:
        """The same for each attempt and replay."""
        return self.webhook.id

    @property
    def event(self) -> Event:
        """Return the event in the body; InvalidArgument if it is the payload of a job without an event."""
        return self.webhook.event


def read_headers(headers: Mapping[str, str]) -> DeliveryHeaders:
    """Return what headers say about a delivery."""
    given = {name.lower(): value for name, value in headers.items()}
    key = given.get("penstock-key")
    return DeliveryHeaders(
        subscription=given.get("penstock-subscription"),
        key=None if key is None else percent_decoded(key),
        sequence=_number(given.get("penstock-sequence")),
        attempt=_number(given.get("penstock-attempt")) or 1,
        replay=given.get(REPLAY_HEADER),
    )


def read_delivery(
    headers: Mapping[str, str], body: bytes, secrets: str | Sequence[str], now_ms: int | None = None
) -> ReceivedDelivery:
    """Return the delivery if one of the secrets signed it (`verify_webhook`); else raise BadSignature."""
    webhook = verify_webhook(headers, body, secrets, now_ms)
    return ReceivedDelivery(webhook=webhook, **msgspec.structs.asdict(read_headers(headers)))


def _number(text: str | None) -> int | None:
    if text is None or len(text) > _MOST_DIGITS or not (text.isascii() and text.isdecimal()):
        return None
    return int(text) or None
