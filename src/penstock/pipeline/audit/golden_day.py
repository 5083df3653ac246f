"""A rehearsal of the audit: a day of events, fanned out by Spark and delivered as the rules say, must be clean.

Then one breach of each kind is planted in the database, and the audit must find these and nothing else. The deliveries
are written as history, in bulk and in an SQLite database of their own: nothing is sent.
"""

import asyncio
from typing import NamedTuple

import msgspec
from pyspark.sql import SparkSession

from penstock.domain.event import Event
from penstock.domain.ids import TsidFactory
from penstock.domain.matching import Condition, EventFilter
from penstock.domain.pointer import DispatchMode
from penstock.domain.subscription import Subscription
from penstock.events.fan_out.spark import FanOutJob, FanOutSettings
from penstock.pipeline.audit.auditor import audit_database
from penstock.pipeline.audit.golden_history import deliver_day, plant_breaches
from penstock.pipeline.audit.result import AuditResult
from penstock.pipeline.audit.window import AuditWindow
from penstock.pipeline.database import Database

DAY_MS = 86_400_000
_HOUR_MS = 3_600_000
_NODE = 1
_AT_ONCE = 2_000
_TYPES = ("orders:eu:created", "orders:us:created", "orders:eu:paid", "carts:eu:left")


class GoldenDay(msgspec.Struct, frozen=True, kw_only=True):
    """How many events, of how many keys, in the day that begins then."""

    from_ms: int
    events: int = 100_000
    keys: int = 500


class Rehearsed(NamedTuple):
    """What the audits said: of the day, and of the day with a breach of each kind."""

    day: AuditResult
    broken: AuditResult


def rehearse(spark: SparkSession, database: Database, checkpoint: str, day: GoldenDay) -> Rehearsed:
    """Make the day in an empty SQLite database, and audit it, before and after the breaches."""
    asyncio.run(_publish(database, day))
    job = FanOutJob(database, FanOutSettings(once=True))
    try:
        job.start(spark, checkpoint).awaitTermination()
    finally:
        job.close()
    deliver_day(database)
    # Long after: jobs that were held up are over by then.
    end_ms = day.from_ms + 2 * DAY_MS
    window = AuditWindow(since_ms=day.from_ms - 2 * _HOUR_MS, until_ms=end_ms, taken_ms=end_ms)
    clean = audit_database(spark, database, window)
    plant_breaches(database)
    return Rehearsed(clean, audit_database(spark, database, window))


async def _publish(database: Database, day: GoldenDay) -> None:
    ids = TsidFactory(_NODE)
    repository = database.repository()
    await repository.open(day.from_ms)
    try:
        for subscription in _subscriptions(ids, day.from_ms - _HOUR_MS):
            await repository.add_subscription(subscription)
        for start in range(0, day.events, _AT_ONCE):
            await repository.add_events(
                [_event(ids, number, day) for number in range(start, min(start + _AT_ONCE, day.events))]
            )
    finally:
        await repository.close()


def _subscriptions(ids: TsidFactory, made_ms: int) -> list[Subscription]:
    europe = EventFilter((Condition("region", values=("eu",)),))
    wishes = (
        ("billing", "orders:**", DispatchMode.BLOCK_ON_ERROR, EventFilter()),
        ("search", "orders:*:created", DispatchMode.NEXT_ON_ERROR, EventFilter()),
        ("counting", "**", DispatchMode.IMMEDIATE, EventFilter()),
        ("europe", "orders:**", DispatchMode.BLOCK_ON_ERROR, europe),
    )
    return [
        Subscription(
            id=ids.next_id(made_ms),
            name=name,
            pattern=pattern,
            target=f"https://{name}.example",
            mode=mode,
            filter=asked,
        )
        for name, pattern, mode, asked in wishes
    ]


def _event(ids: TsidFactory, number: int, day: GoldenDay) -> Event:
    received_ms = day.from_ms + number * DAY_MS // day.events
    kind = _TYPES[number % len(_TYPES)]
    # Every key has events of all types: the keys are not a multiple of their number.
    key = number * 7 // 3 % day.keys
    return Event(
        id=ids.next_id(received_ms),
        source="golden-day",
        type=kind,
        received_ms=received_ms,
        external_id=str(number),
        data=b"{}",
        group=f"клиент {key}" if key % 10 else None,
        attributes={"region": kind.split(":")[1]},
    )
