"""Jobs of lanes as a frame: what they are, and what keeps them back."""

from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from penstock.pipeline.schemas import READY_JOBS

_TEXT = StringType()
_NUMBER = LongType()

LANE = ("group_key", "ordered")
"""What names a lane."""

POSITION = ("sequence", "created_at_ms", "id")
"""A job's place in its lane."""

BLOCKER = ("blocker_sequence", "blocker_created_at_ms", "blocker_id")
"""The place of the first job that BLOCK_ON_ERROR jobs of the group must not pass; null when there is none."""

_JOB = ("id", "mode", "sequence", "created_at_ms", "due_at_ms", "expires_at_ms", "pool", "publish_round")

LANE_JOBS = StructType(
    [
        StructField("group_key", _TEXT, nullable=False),
        StructField("ordered", BooleanType(), nullable=False),
        StructField("group_hash", _NUMBER, nullable=False),
        StructField("turn", _NUMBER, nullable=False),
        StructField("paused", BooleanType(), nullable=False),
        StructField("in_flight", BooleanType(), nullable=False),
        *(StructField(name, _TEXT if name.endswith("_id") else _NUMBER) for name in BLOCKER),
        *(StructField(name, READY_JOBS[name].dataType) for name in _JOB),
        StructField("updated_at_ms", _NUMBER),
    ]
)
"""A job of a lane, with what the plan asks about the lane; a lane without a job is one row whose job is null."""
