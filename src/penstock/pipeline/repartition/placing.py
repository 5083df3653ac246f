"""Where messages go in the new queue, and whether they are all there: pure functions of DataFrames."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from penstock.pipeline.replay.parts import hash_of

PLACE = "place"

_CONTENTS = ("body", "attributes", "trace")


def with_origin(source: DataFrame) -> DataFrame:
    """The source's messages with the deduplication ids of their copies."""
    return source.withColumn("dedup_id", f.concat_ws("-", "partition", "sequence", "message_id"))


def placed(source: DataFrame, count: int) -> DataFrame:
    """Messages by the partition they go to, one task each, in the source's order.

    A group is in one partition of the source, so the source's sequence orders it.
    """
    # A power of two: the remainder is what the queue's own mask gives.
    place = (hash_of("group") % f.lit(count)).cast("int")
    by_place = with_origin(source).withColumn(PLACE, place).repartitionById(count, PLACE)
    return by_place.sortWithinPartitions("sequence", "partition")


def digests(messages: DataFrame) -> DataFrame:
    """Per group how many messages it has, and a number that another order or other contents would change."""
    rank = f.row_number().over(Window.partitionBy("group").orderBy("sequence"))
    weighed = messages.select("group", f.xxhash64(rank, "dedup_id", *_CONTENTS).alias("weight"))
    # As decimals: a sum of many 64-bit numbers may be larger than one.
    total: Column = f.sum(f.col("weight").cast("decimal(20,0)"))
    return weighed.groupBy("group").agg(f.count("weight").alias("messages"), total.alias("digest"))


def compared(source: DataFrame, target: DataFrame) -> DataFrame:
    """Per group how many messages each queue has of it, and whether they are the `same` in the same order."""
    ours, theirs = digests(with_origin(source)).alias("s"), digests(target).alias("t")
    same = f.col("s.digest").eqNullSafe(f.col("t.digest")) & f.col("s.messages").eqNullSafe(f.col("t.messages"))
    return ours.join(theirs, f.col("s.group") == f.col("t.group"), "full_outer").select(
        f.coalesce("s.group", "t.group").alias("group"),
        f.coalesce("s.messages", f.lit(0)).alias("source_messages"),
        f.coalesce("t.messages", f.lit(0)).alias("target_messages"),
        same.alias("same"),
    )


def summary(groups: DataFrame) -> DataFrame:
    """One row of `compared`: how many `messages` of how many `groups`, how many `differ`, and the `first` of these."""
    first = f.min(f.when(~f.col("same"), f.struct("group", "source_messages", "target_messages")))
    return groups.agg(
        f.coalesce(f.sum("target_messages"), f.lit(0)).alias("messages"),
        f.count("group").alias("groups"),
        f.count_if(~f.col("same")).alias("differ"),
        first.alias("first"),
    )
