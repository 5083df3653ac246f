"""A delivery as a subscriber handles it: verify that it is genuine, then read it."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from penstock.client.errors import BadSignature
from penstock.client.event import Event, decode_binary, decode_event
from penstock.domain.event import BINARY_HEADER, attributes_in
from penstock.domain.limits import SECOND_MS
from penstock.domain.signing import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, TOLERANCE_S, Signature, verify
from penstock.edge.clock import wall_seconds


class Webhook(msgspec.Struct, frozen=True):
    """A genuine delivery. Retries and replays have the same `id`: remember it to process each only once."""

    id: str
    sent_at: datetime
    body: bytes
    content_type: str = ""
    attributes: Mapping[str, str] = {}
    """The event's attributes, where they are headers (a subscription with `body="binary"`); they are not signed."""

    @property
    def event(self) -> Event:
        """Return the event; InvalidArgument if this is the payload of a job without one."""
        return (
            decode_binary(self.attributes, self.content_type, self.body) if self.attributes else decode_event(self.body)
        )


def verify_webhook(
    headers: Mapping[str, str], body: bytes, secrets: str | Sequence[str], now_ms: int | None = None
) -> Webhook:
    """Return the delivery if one of the secrets signed it less than five minutes ago; else raise BadSignature.

    `body` must be the bytes as received: JSON that was decoded and encoded again has another signature.
    """
    given = {name.lower(): value for name, value in headers.items()}
    missing = [name for name in (ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER) if not given.get(name)]
    if missing:
        raise BadSignature(f"the request is not a signed webhook: it has no header {' and no '.join(missing)}")
    signature = Signature(given[ID_HEADER], given[TIMESTAMP_HEADER], given[SIGNATURE_HEADER])
    at_ms = int(wall_seconds() * SECOND_MS) if now_ms is None else now_ms
    if not verify(signature, body, [secrets] if isinstance(secrets, str) else secrets, at_ms):
        raise BadSignature(
            f"the webhook {signature.message_id[:100]!r} has no signature by one of the {_count(secrets)}, or its time "
            f"is more than {TOLERANCE_S} s off: check the secret and the clock, and that the body is unchanged"
        )
    sent_at = datetime.fromtimestamp(int(signature.timestamp), UTC)
    attributes = attributes_in(given) if BINARY_HEADER in given else {}
    return Webhook(signature.message_id, sent_at, body, given.get("content-type", ""), attributes)


def _count(secrets: str | Sequence[str]) -> str:
    count = 1 if isinstance(secrets, str) else len(secrets)
    return f"{count} secret{'' if count == 1 else 's'} given"
