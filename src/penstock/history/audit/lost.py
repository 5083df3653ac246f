"""Lost jobs: checks that every subscription that wanted an event has a job for it.

A subscription is known as it is now. It owes nothing for events before it was created, which its id tells, or before it
was changed, as far as the window's `changed_ms` says.

Sums find the few events that need a close look. Events are spread over buckets. For each bucket, the hashes of the
expected pairs of event and subscription are added and those of the stored jobs subtracted: equal pairs leave zero. Rows
are summed where they are, and only the sums of buckets are sent.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b

import numpy
import pyarrow
import pyarrow.compute
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock.domain.ids import COPY_JOINT
from penstock.events.fan_out.columns import EVENT_COLUMNS
from penstock.events.fan_out.spark_plan import Pairs, planner_of
from penstock.history.audit.catalog import AuditCatalog
from penstock.history.audit.findings import FINDINGS, FindingKind, as_findings
from penstock.history.audit.packed_rows import Numbers, number_hash, pair_hash
from penstock.history.audit.window import AuditWindow

OWED = StructType(
    [
        StructField("event_id", StringType(), nullable=True),
        StructField("subscription_id", StringType(), nullable=True),
        StructField("group_key", StringType(), nullable=True),
        StructField("created_at_ms", LongType(), nullable=True),
        StructField("damage", StringType(), nullable=True),
    ]
)
"""A job; or an event alone, with what is wrong with it."""

BUCKETS = 4096
EVENT_HASH = "event_hash"
MARK, SINCE_MS = "mark", "since_ms"

FANNED_OUT = "fanned_out"
"""Whether the jobs of an event have been created, where that is known. A waiting event has lost nothing."""

_MOST_JOBS = 50_000
_SUBSCRIPTION = "subscription_hash"
_BUCKET_BITS = BUCKETS.bit_length() - 1
_MOST_PAIRS = 200_000
_TOO_MANY = BUCKETS // 4


def lost(
    events: DataFrame, catalog: AuditCatalog, jobs: DataFrame, window: AuditWindow, buckets: Sequence[int]
) -> DataFrame:
    """Return missing jobs and damaged events, among the events of the window in some buckets."""
    spark = events.sparkSession
    if not buckets:
        return spark.createDataFrame([], FINDINGS)
    wanting = f.broadcast(_wanting_since(spark, catalog))
    looked_at = in_buckets(events, "id", buckets)
    owed = owed_jobs(looked_at, catalog, window.future_ms).join(wanting, "subscription_id", "left")
    stored = jobs.select("event_id", "subscription_id").where(f.col("event_id").isNotNull())
    stored = in_buckets(stored, "event_id", buckets)
    is_damaged = f.col("damage").isNotNull()
    missing = owed.where(is_damaged | (f.col("created_at_ms") >= f.col("since_ms"))).join(
        stored, ["event_id", "subscription_id"], "left_anti"
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
            f.lit("the subscription wants the event, but there is no job for it, live or archived"),
        ),
    )


def events_of(events: DataFrame, window: AuditWindow) -> DataFrame:
    """Return the events of the window whose jobs have been created, and events with impossible times."""
    received = f.col("received_ms")
    in_window = (received >= window.since_ms) & (received < window.until_ms)
    kept = events.where(in_window | received.isNull() | (received > window.future_ms))
    return kept.where(f.col(FANNED_OUT)) if FANNED_OUT in events.columns else kept


def _wanting_since(spark: SparkSession, catalog: AuditCatalog) -> DataFrame:
    return spark.createDataFrame(list(catalog.since_ms.items()), "subscription_id string, since_ms long")


def owed_jobs(events: DataFrame, catalog: AuditCatalog, future_ms: int) -> DataFrame:
    """Return the jobs that events cause for the subscriptions; events after `future_ms` are damaged."""
    wanting, data_of = catalog.packed, catalog.data_of

    def plan(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        schema = to_arrow_schema(OWED)
        planner = planner_of(wanting)
        for batch in batches:
            is_future = pyarrow.compute.fill_null(
                pyarrow.compute.greater(batch.column("received_ms"), future_ms), False
            )
            yield _future(batch.filter(is_future), schema)
            for planned in planner.plan(batch.filter(pyarrow.compute.invert(is_future)), _MOST_JOBS, data_of):
                nothing = pyarrow.nulls(len(planned.jobs), pyarrow.string())
                columns = [planned.jobs.column(name) for name in schema.names[:-1]]
                yield pyarrow.RecordBatch.from_arrays([*columns, nothing], schema=schema)
                damaged = [{"event_id": event_id, "damage": reason} for event_id, reason in planned.set_aside]
                yield pyarrow.RecordBatch.from_pylist(damaged, schema=schema)

    return events.select(*EVENT_COLUMNS).mapInArrow(plan, OWED)


def _future(events: pyarrow.RecordBatch, schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    rows = [
        {"event_id": event_id, "created_at_ms": received_ms, "damage": "it was received in the future"}
        for event_id, received_ms in zip(
            events.column("id").to_pylist(), events.column("received_ms").to_pylist(), strict=True
        )
    ]
    return pyarrow.RecordBatch.from_pylist(rows, schema=schema)


def in_buckets(rows: DataFrame, event_id: str, buckets: Sequence[int]) -> DataFrame:
    """Return the rows of some buckets, or all rows if selecting is not worthwhile."""
    bucket = f.xxhash64(f.col(event_id)).bitwiseAND(BUCKETS - 1)
    return rows if len(buckets) > _TOO_MANY else rows.where(bucket.isin(list(buckets)))


def with_marks(jobs: DataFrame, catalog: AuditCatalog) -> DataFrame:
    """Return jobs with EVENT_HASH, the mark of their subscription and since when it is owed events, or null."""
    rows = [(each, mark_of(each), since_ms) for each, since_ms in catalog.since_ms.items()]
    known = jobs.sparkSession.createDataFrame(rows, f"subscription_id string, {MARK} long, {SINCE_MS} long")
    # Joined by a number, which Spark does without building rows or comparing texts.
    known = known.select(f.xxhash64("subscription_id").alias(_SUBSCRIPTION), MARK, SINCE_MS)
    hashed = {EVENT_HASH: f.xxhash64("event_id"), _SUBSCRIPTION: f.xxhash64("subscription_id")}
    return jobs.withColumns(hashed).join(f.broadcast(known), _SUBSCRIPTION, "left")


def stored_pair(window: AuditWindow) -> Column:
    """Return the number of a job's event and subscription, from bits of its hash and its bucket, or 0."""
    created, event_id = f.col("created_at_ms"), f.col("event_id")
    # Replays create further jobs of the same events.
    is_first = event_id.isNotNull() & ~f.coalesce(f.col("id").contains(COPY_JOINT), f.lit(False))
    in_window = (created >= window.since_ms) & (created < window.until_ms) & (created >= f.col(SINCE_MS))
    bucket = f.col(EVENT_HASH).bitwiseAND(BUCKETS - 1)
    pair = f.xxhash64(EVENT_HASH, MARK).bitwiseAND(-BUCKETS).bitwiseOR(bucket)
    return f.when(is_first & f.col(MARK).isNotNull() & in_window, pair).otherwise(f.lit(0).cast("long"))


def mark_of(subscription_id: str) -> int:
    """Return the number that identifies a subscription."""
    return int.from_bytes(blake2b(subscription_id.encode(errors="replace"), digest_size=8).digest(), signed=True)


class Sums:
    """For each bucket: the sum of pairs, their number, and the number of damaged events."""

    def __init__(self) -> None:
        self.numbers = numpy.zeros((3, BUCKETS), dtype=numpy.int64)

    def want(self, pairs: Numbers) -> None:
        """Add expected jobs."""
        bucket = pairs & (BUCKETS - 1)
        numpy.add.at(self.numbers[0], bucket, pairs >> _BUCKET_BITS)
        self.numbers[1] += numpy.bincount(bucket, minlength=BUCKETS)

    def have(self, pairs: Numbers) -> None:
        """Subtract stored jobs, as `stored_pair` encodes them."""
        some = pairs[pairs != 0]
        bucket = some & (BUCKETS - 1)
        numpy.subtract.at(self.numbers[0], bucket, some >> _BUCKET_BITS)
        self.numbers[1] -= numpy.bincount(bucket, minlength=BUCKETS)

    def damaged(self, events: Numbers) -> None:
        """Count damaged events, by their hashes."""
        self.numbers[2] += numpy.bincount(events & (BUCKETS - 1), minlength=BUCKETS)


def unbalanced(sums: Sequence[Numbers]) -> Numbers:
    """Return the buckets whose events lack a job, have one too many, or are damaged."""
    return numpy.flatnonzero(numpy.sum([each.reshape(3, BUCKETS) for each in sums], axis=0).any(axis=0))


class ExpectedSums:
    """Sums up what events should cause, batch by batch."""

    def __init__(self, catalog: AuditCatalog, future_ms: int) -> None:
        self._planner = planner_of(catalog.packed)
        self._data_of = catalog.data_of
        self._future_ms = future_ms
        ids = self._planner.subscription_ids
        self._marks = numpy.array([mark_of(each) for each in ids], dtype=numpy.int64)
        self._since_ms = numpy.array([catalog.since_ms[each] for each in ids], dtype=numpy.int64)
        self.sums = Sums()

    def add(self, events: pyarrow.RecordBatch) -> None:
        """Add events that have a column EVENT_HASH beside those of fan-out."""
        is_future = pyarrow.compute.greater(events.column("received_ms"), self._future_ms).fill_null(False)
        self.sums.damaged(_hashes(events.filter(is_future)))
        present = events.filter(pyarrow.compute.invert(is_future))
        for found in self._planner.pairs(present, _MOST_PAIRS, self._data_of):
            self.sums.want(self._owed(found))
            if found.set_aside:
                ids = pyarrow.array([event_id for event_id, _ in found.set_aside], pyarrow.string())
                self.sums.damaged(_hashes(events.filter(pyarrow.compute.is_in(events.column("id"), ids))))

    def _owed(self, found: Pairs) -> Numbers:
        """Return the pairs of events and the subscriptions that wanted them at that time."""
        received_ms = found.events.column("received_ms").to_numpy()
        is_owed = received_ms[found.event_at] >= self._since_ms[found.subscription_at]
        event = _hashes(found.events)
        seed, bucket = number_hash(event), event & (BUCKETS - 1)
        at, mark = found.event_at[is_owed], self._marks[found.subscription_at[is_owed]]
        pairs: Numbers = pair_hash(seed[at], mark) & -BUCKETS | bucket[at]
        return pairs


def _hashes(events: pyarrow.RecordBatch) -> Numbers:
    hashes: Numbers = events.column(EVENT_HASH).to_numpy()
    return hashes
