"""The subscriptions of an audit: what each wants, and since when."""

from collections.abc import Iterable, Mapping

import msgspec
from pyspark.sql import Row

from penstock.domain.errors import PenstockError
from penstock.domain.ids import decode_tsid, tsid_time_ms
from penstock.domain.matching import EventFilter
from penstock.domain.pointer import DispatchMode
from penstock.domain.subscription import Subscription
from penstock.events.fan_out.spark_plan import DataOf, no_data, packed
from penstock.history.audit.window import CATALOG_LAG_MS, AuditWindow

_filter = msgspec.json.Decoder(EventFilter).decode


class AuditCatalog(msgspec.Struct, frozen=True):
    """Valid subscriptions as fan-out takes them, and damaged ones with the reason.

    `data_of` reads the data of events, for filters that ask for it. Without it, the catalog lacks the subscriptions
    with such a filter: what they wanted cannot be known.
    """

    packed: bytes
    since_ms: Mapping[str, int]
    damaged: Mapping[str, str]
    data_of: DataOf = no_data


def catalog_of(rows: Iterable[Row], window: AuditWindow, data_of: DataOf | None = None) -> AuditCatalog:
    """Return the catalog of rows of `schemas.SUBSCRIPTIONS`: all of them, or the one of the window."""
    wanting: list[Subscription] = []
    damaged: dict[str, str] = {}
    for row in rows:
        if window.subscription_id in (None, row["id"]):
            try:
                subscription = _subscription(row)
                if data_of is not None or not subscription.filter.reads_data:
                    wanting.append(subscription)
            except (msgspec.MsgspecError, PenstockError, ValueError, TypeError) as error:
                damaged[str(row["id"])] = str(error)
    since_ms = {each.id: _since_ms(each.id, window) for each in wanting}
    return AuditCatalog(packed(wanting), since_ms, damaged, no_data if data_of is None else data_of)


def _subscription(row: Row) -> Subscription:
    return Subscription(
        id=row["id"],
        tenant=row["tenant"],
        name=row["name"],
        pattern=row["pattern"],
        filter=_filter(row["filter"]),
        target=row["target"],
        pool=row["pool"],
        mode=DispatchMode(row["mode"]),
        paused=row["paused"],
    )


def _since_ms(subscription_id: str, window: AuditWindow) -> int:
    """Return since when events are owed to a subscription; 0 if its id has no time."""
    try:
        created_ms = tsid_time_ms(decode_tsid(subscription_id)) + CATALOG_LAG_MS
    except ValueError:
        created_ms = 0
    changed_ms = window.changed_ms.get(subscription_id)
    return created_ms if changed_ms is None else max(created_ms, changed_ms + CATALOG_LAG_MS)
