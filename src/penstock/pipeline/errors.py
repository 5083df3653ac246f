"""Errors of the pipeline.

InvalidArgument
└── InvalidPipelineOption    what was given for Spark or its jobs cannot be used
Unavailable
├── SparkUnavailable         Spark, or the Java it needs, is not there or does not start
└── JobsFailed               streaming jobs ended with an error and are not started again
"""

from collections.abc import Mapping

from penstock.domain.errors import InvalidArgument, Unavailable


class InvalidPipelineOption(InvalidArgument):
    """What was given for Spark or its jobs cannot be used."""


class SparkUnavailable(Unavailable):
    """Spark, or the Java it needs, is not there or does not start."""


class JobsFailed(Unavailable):
    """Streaming jobs ended with an error and are not started again."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name} failed: {reason}" for name, reason in reasons.items()))
