"""SQL over the lake: its tables, and ready views of them.

The views are written in the SQL that Spark and DuckDB share, so that a query can be moved from one to the other.
"""

from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import TimestampType

from penstock.history.errors import InvalidQuery
from penstock.history.lake.lake import Lake
from penstock.history.lake.schema import TABLES
from penstock.spark.errors import reason_of

Cell = str | int | float | bool | None


class LakeView(msgspec.Struct, frozen=True):
    """A ready view: its name, what it shows, and its SQL over the tables."""

    name: str
    text: str
    sql: str


VIEWS = (
    LakeView(
        "hourly",
        "Deliveries of each subscription and hour: attempts by outcome, and percentiles of waiting and response.",
        """
SELECT date_trunc('hour', attempted_at) AS hour, tenant, subscription,
    count(*) AS attempts,
    count(*) FILTER (WHERE outcome = 'DELIVERED') AS delivered,
    count(*) FILTER (WHERE outcome = 'FAILED') AS failed,
    count(*) FILTER (WHERE outcome = 'REFUSED') AS refused,
    count(*) FILTER (WHERE outcome = 'DEFERRED') AS deferred,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY waited_ms) AS waited_ms_p50,
    percentile_cont(0.99) WITHIN GROUP (ORDER BY waited_ms) AS waited_ms_p99,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY response_ms) FILTER (WHERE was_sent) AS response_ms_p50,
    percentile_cont(0.99) WITHIN GROUP (ORDER BY response_ms) FILTER (WHERE was_sent) AS response_ms_p99
FROM deliveries GROUP BY date_trunc('hour', attempted_at), tenant, subscription
""",
    ),
    LakeView(
        "slow_endpoints",
        "Endpoints with their requests, failures and response times, the slowest first.",
        """
SELECT endpoint, count(*) AS requests,
    count(*) FILTER (WHERE outcome = 'FAILED') AS failed,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY response_ms) AS response_ms_p50,
    percentile_cont(0.99) WITHIN GROUP (ORDER BY response_ms) AS response_ms_p99,
    max(response_ms) AS response_ms_max
FROM deliveries WHERE was_sent GROUP BY endpoint ORDER BY response_ms_p99 DESC, endpoint
""",
    ),
    LakeView(
        "retries",
        "Jobs that needed more than one attempt: how many, how long it took, and the last outcome.",
        """
SELECT job_id, tenant, subscription, event_type, key, count(*) AS attempts,
    min(attempted_at) AS first_attempt, max(attempted_at) AS last_attempt,
    max_by(outcome, position) AS last_outcome, nullif(max_by(coalesce(reason, ''), position), '') AS last_reason
FROM deliveries GROUP BY job_id, tenant, subscription, event_type, key HAVING count(*) > 1
""",
    ),
    LakeView(
        "key_order",
        "The events of each key as they were delivered to a subscription: `published` and `delivered` number them in "
        "the order of publishing and of their first delivery, and `in_order` says whether the two agree.",
        """
SELECT tenant, subscription, key, event_id, event_type, event_time, delivered_at, published, delivered,
    published = delivered AS in_order
FROM (
    SELECT tenant, subscription, key, event_id, event_type, event_time, delivered_at,
        row_number() OVER (PARTITION BY group_key ORDER BY event_id) AS published,
        row_number() OVER (PARTITION BY group_key ORDER BY place, event_id) AS delivered
    FROM (
        SELECT tenant, subscription, key, group_key, event_id, event_type, min(event_time) AS event_time,
            min(attempted_at) AS delivered_at, min(position) AS place
        FROM deliveries WHERE outcome = 'DELIVERED' AND key IS NOT NULL AND event_id IS NOT NULL
        GROUP BY tenant, subscription, key, group_key, event_id, event_type
    ) AS delivered_once
) AS numbered
""",
    ),
)


def names() -> list[tuple[str, str, str]]:
    """Return name, kind and meaning of everything that a query can read."""
    tables = [(table.name, "table", table.text) for table in TABLES.values()]
    return [*tables, *((view.name, "view", view.text) for view in VIEWS)]


def query(lake: Lake, sql: str) -> DataFrame:
    """Return the result of a query over the tables as of now and the views; InvalidQuery says what is wrong with it."""
    for name in TABLES:
        lake.frame(name).createOrReplaceTempView(name)
    for view in VIEWS:
        lake.spark.sql(view.sql).createOrReplaceTempView(view.name)
    try:
        return lake.spark.sql(sql.strip().rstrip(";"))
    except PySparkException as error:
        raise InvalidQuery(reason_of(error)) from error


def rows(result: DataFrame, most: int | None) -> Iterator[list[Cell]]:
    """Return the rows of a result, up to `most`, with times as people and programs read them."""
    try:
        found = (result if most is None else result.limit(most)).toLocalIterator()
        zoned = [isinstance(field.dataType, TimestampType) for field in result.schema]
        for row in found:
            yield [_cell(value, zoned=has_zone) for value, has_zone in zip(row, zoned, strict=True)]
    except PySparkException as error:
        raise InvalidQuery(reason_of(error)) from error


def _cell(value: object, *, zoned: bool) -> Cell:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if zoned and isinstance(value, datetime):
        # Spark gives times in the zone of this machine.
        value = value.astimezone(UTC)
    # Times, decimals, arrays and maps, as JSON has them.
    plain = msgspec.to_builtins(value, str_keys=True)
    return plain if isinstance(plain, str | int | float | bool) else msgspec.json.encode(plain).decode()
