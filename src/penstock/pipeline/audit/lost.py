"""Nothing lost on the way in: every subscription that wanted an event has a job for it.

A subscription is known as it is now. It owes nothing for events of before it was made, which its id tells, nor for
those of before it was changed, as far as `changed_ms` of the window says so.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.pipeline.audit.balance import in_buckets
from penstock.pipeline.audit.catalog import Catalog
from penstock.pipeline.audit.findings import FINDINGS, FindingKind, as_findings
from penstock.pipeline.audit.owed import owed_jobs
from penstock.pipeline.audit.window import AuditWindow

FANNED_OUT = "fanned_out"
"""Of an event, where it is known: whether its jobs have been made. One that still waits for them has lost nothing."""


def lost(
    events: DataFrame, catalog: Catalog, jobs: DataFrame, window: AuditWindow, buckets: Sequence[int]
) -> DataFrame:
    """Jobs that should be there and are not, and damaged events, among the events of the window in some buckets."""
    spark = events.sparkSession
    if not buckets:
        return spark.createDataFrame([], FINDINGS)
    wanting = f.broadcast(_wanting_since(spark, catalog))
    looked_at = in_buckets(events, "id", buckets)
    owed = owed_jobs(looked_at, catalog.packed, window.future_ms).join(wanting, "subscription_id", "left")
    made = jobs.select("event_id", "subscription_id").where(f.col("event_id").isNotNull())
    made = in_buckets(made, "event_id", buckets)
    is_damaged = f.col("damage").isNotNull()
    missing = owed.where(is_damaged | (f.col("created_at_ms") >= f.col("since_ms"))).join(
        made, ["event_id", "subscription_id"], "left_anti"
    )
    return as_findings(
        missing,
        f.when(is_damaged, FindingKind.DAMAGED.value).otherwise(FindingKind.LOST.value),
        group_key=f.col("group_key"),
        at_ms=f.col("created_at_ms"),
        event_id=f.col("event_id"),
        subscription_id=f.col("subscription_id"),
        detail=f.coalesce(
            f.concat(f.lit("the event: "), "damage"),
            f.lit("the subscription wants the event, and there is no job for it, live or archived"),
        ),
    )


def events_of(events: DataFrame, window: AuditWindow) -> DataFrame:
    """The events received in the window whose jobs have been made, and those of no time that can be."""
    received = f.col("received_ms")
    in_window = (received >= window.since_ms) & (received < window.until_ms)
    kept = events.where(in_window | received.isNull() | (received > window.future_ms))
    return kept.where(f.col(FANNED_OUT)) if FANNED_OUT in events.columns else kept


def _wanting_since(spark: SparkSession, catalog: Catalog) -> DataFrame:
    return spark.createDataFrame(list(catalog.since_ms.items()), "subscription_id string, since_ms long")
