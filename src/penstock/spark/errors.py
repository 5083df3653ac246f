"""Errors of the pipeline.

InvalidArgument
└── InvalidPipelineOption    what was given for Spark or its jobs cannot be used
Unavailable
├── SparkUnavailable         Spark, or the Java it needs, is not there or does not start
└── JobsFailed               streaming jobs ended with an error and are not started again

Why something on Spark failed, in one line: the innermost cause, without Java's and Python's stack traces.

Errors of the sources.

FailedPrecondition
└── PositionsAhead    a checkpoint is further than the database has ever counted
"""

import re
from collections.abc import Mapping

from penstock.domain.errors import FailedPrecondition, InvalidArgument, Unavailable


class InvalidPipelineOption(InvalidArgument):
    """What was given for Spark or its jobs cannot be used."""


class SparkUnavailable(Unavailable):
    """Spark, or the Java it needs, is not there or does not start."""


class JobsFailed(Unavailable):
    """Streaming jobs ended with an error and are not started again."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name} failed: {reason}" for name, reason in reasons.items()))


# The last line of a Python stack trace, or the first of a Java one.
_PYTHON_CAUSE = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Refused|NotFound)\w*: .+)$", re.MULTILINE)
# What Spark puts before the cause: the query's ids, which are not its name.
_STREAM_FAILED = re.compile(r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ")
_MOST_CHARS = 500


def reason_of(error: BaseException) -> str:
    """What went wrong, in one line."""
    text = _text_of(error)
    causes = _PYTHON_CAUSE.findall(text)
    line = causes[-1] if causes else next(iter(text.strip().splitlines()), type(error).__name__)
    return _STREAM_FAILED.sub("", " ".join(str(line).split()))[:_MOST_CHARS]


def _text_of(error: BaseException) -> str:
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage()) if java is not None else str(error)
    return text.partition("\n\nJVM stacktrace:")[0] or type(error).__name__


class PositionsAhead(FailedPrecondition):
    """A checkpoint is further than the database has ever counted: it belongs to another one, or to a later state."""

    def __init__(self, place: str, table: str, position: int, reached: int) -> None:
        super().__init__(
            f"the checkpoint of {table} is at position {position}, and the {place} has only come to {reached}: it was "
            "restored from a backup or is another one. Stop the pipeline, remove this job's checkpoint directory, and "
            "start again: what was done is found done"
        )
