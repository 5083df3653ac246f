"""The subscriptions as tasks get them: what fan-out asks of one, packed. Their secrets stay on the driver."""

from collections.abc import Iterable

import msgspec

from penstock.domain.matching import EventFilter
from penstock.domain.pointer import DispatchMode
from penstock.domain.subscription import Subscription


class Wish(msgspec.Struct, frozen=True, array_like=True):
    """Which events a subscription wants, and what its jobs are like."""

    id: str
    tenant: str
    pattern: str
    filter: EventFilter
    target: str
    pool: str
    mode: DispatchMode


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Wish]).decode


def packed(subscriptions: Iterable[Subscription]) -> bytes:
    """The subscriptions of this moment; the same ones give the same bytes."""
    return _encode(
        [
            Wish(each.id, each.tenant, each.pattern, each.filter, each.target, each.pool, each.mode)
            for each in subscriptions
        ]
    )


def unpacked(catalog: bytes) -> list[Wish]:
    """What `packed` took."""
    return _decode(catalog)
