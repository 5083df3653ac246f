"""Which task delivers which jobs: all of a group by one task, in order."""

import pyarrow
import pyarrow.compute
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import LongType

from penstock.domain.partition import fnv1a_32

PART = "part"


def with_part(jobs: DataFrame, count: int) -> DataFrame:
    """Jobs with the number of the task that has their group."""
    return jobs.withColumn(PART, (hash_of("group_key") % f.lit(count)).cast("int"))


def planned(jobs: DataFrame, count: int) -> DataFrame:
    """`part` and `id`: each part in one partition, in the order in which jobs stand in their groups.

    The oldest of all groups come first, so that a task meets many groups soon.
    """
    in_order = (
        with_part(jobs, count).repartitionById(count, PART).sortWithinPartitions("sequence", "created_at_ms", "id")
    )
    return in_order.select(PART, "id")


def part_counts(jobs: DataFrame, count: int) -> DataFrame:
    """`part`, and how many jobs and groups it has; a group is in one part only."""
    return (
        with_part(jobs, count)
        .groupBy(PART)
        .agg(f.count("id").alias("jobs"), f.count_distinct("group_key").alias("groups"))
    )


@f.arrow_udf(returnType=LongType())  # type: ignore[attr-defined, untyped-decorator]
def hash_of(keys: pyarrow.Array) -> pyarrow.Array:
    """The FNV-1a hash of texts, as the queue and the router know it."""
    distinct = pyarrow.compute.dictionary_encode(keys)
    hashes = pyarrow.array([fnv1a_32(key) for key in distinct.dictionary.to_pylist()], pyarrow.int64())
    return hashes.take(distinct.indices)
