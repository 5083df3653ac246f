"""What a task tells the driver when it is done: one row, whatever it published."""

from collections.abc import Sequence

import msgspec
import pyarrow
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the jobs of a task, or of a round."""

    claimed: int = 0
    published: int = 0
    failed: int = 0
    lag_ms: int = 0
    """For how long the job that waited longest had been due."""
    trouble: str | None = None
    """What keeps jobs from being published."""
    in_trouble: bool = False
    """Whether the queue as a whole is in trouble, and not some groups only."""
    is_stale: bool = False
    """Whether another node leads."""

    def batch(self) -> pyarrow.RecordBatch:
        """As a row of REPORTS."""
        return pyarrow.RecordBatch.from_pylist([msgspec.structs.asdict(self)], schema=to_arrow_schema(REPORTS))


_TYPES = {int: LongType(), bool: BooleanType()}
REPORTS = StructType(
    [
        StructField(field.name, _TYPES.get(field.type, StringType()), nullable=field.type not in _TYPES)
        for field in msgspec.structs.fields(Report)
    ]
)


def summed(told: Sequence[Report]) -> Report:
    """The report of a round: what its tasks told."""
    return Report(
        claimed=sum(report.claimed for report in told),
        published=sum(report.published for report in told),
        failed=sum(report.failed for report in told),
        lag_ms=max((report.lag_ms for report in told), default=0),
        trouble=next((report.trouble for report in told if report.trouble), None),
        in_trouble=any(report.in_trouble for report in told),
        is_stale=any(report.is_stale for report in told),
    )
