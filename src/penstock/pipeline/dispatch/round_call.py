"""What the tasks of a round are told: it goes with the round's Spark job, not with its plan.

A number in a plan is a constant of the code that Spark makes of it, and to compile such code takes longer than a round.
"""

import msgspec
from pyspark import TaskContext
from pyspark.sql import SparkSession

from penstock.jobs.lane_claiming import AwakeRange, LaneOwner

_PROPERTY = "penstock.dispatch.round"


class RoundCall(msgspec.Struct, frozen=True, kw_only=True):
    """One round. Spark shows it to people, so it has no secrets."""

    owner: LaneOwner
    ranges: tuple[AwakeRange, ...]
    share: int
    """How many jobs a lane may give."""
    rows: int
    """How many rows are read of a range of lanes, in whole lanes."""
    now_ms: int
    until_ms: int
    """When it is too late to publish, by the wall clock."""

    def announce(self, spark: SparkSession) -> None:
        """Let the tasks of all jobs that this thread starts from now on know."""
        spark.sparkContext.setLocalProperty(_PROPERTY, msgspec.json.encode(self).decode())


_decode = msgspec.json.Decoder(RoundCall).decode


def announced() -> RoundCall:
    """What was announced, in the process of a task."""
    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(_PROPERTY)
    if text is None:
        raise RuntimeError("no round was announced to this task")
    return _decode(text)
