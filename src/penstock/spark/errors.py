"""Errors of the pipeline, and the reason of a Spark failure in one line.

InvalidArgument
└── InvalidPipelineOption    an option for Spark or its jobs is not valid
FailedPrecondition
└── PositionsAhead           a checkpoint is ahead of its database
Unavailable
├── SparkUnavailable         Spark, or the Java it needs, is missing or does not start
└── JobsFailed               streaming jobs failed and are not restarted
"""

import re
from collections.abc import Mapping

from penstock.domain.errors import FailedPrecondition, InvalidArgument, Unavailable

# The last line of a Python stack trace, or the first of a Java one.
_PYTHON_CAUSE = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Refused|NotFound)\w*: .+)$", re.MULTILINE)
# The prefix that Spark adds to the cause; it has the query's ids but not its name.
_STREAM_FAILED = re.compile(r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ")
_MOST_CHARS = 500


class InvalidPipelineOption(InvalidArgument):
    """An option for Spark or its jobs is not valid."""


class PositionsAhead(FailedPrecondition):
    """A checkpoint is ahead of its database: it belongs to another database, or to a later state of it."""

    def __init__(self, place: str, table: str, position: int, reached: int) -> None:
        super().__init__(
            f"the checkpoint of {table} is at position {position}, but the {place} has only reached {reached}: it was "
            "restored from a backup or is another database. Stop the pipeline, delete this job's checkpoint directory "
            "and start again: finished work is not repeated"
        )


class SparkUnavailable(Unavailable):
    """Spark, or the Java it needs, is missing or does not start."""


class JobsFailed(Unavailable):
    """Streaming jobs failed and are not restarted."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name} failed: {reason}" for name, reason in reasons.items()))


def reason_of(error: BaseException) -> str:
    """Return what went wrong in one line: the innermost cause, without stack traces."""
    text = _text_of(error)
    causes = _PYTHON_CAUSE.findall(text)
    line = causes[-1] if causes else next(iter(text.strip().splitlines()), type(error).__name__)
    return _STREAM_FAILED.sub("", " ".join(str(line).split()))[:_MOST_CHARS]


def _text_of(error: BaseException) -> str:
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage()) if java is not None else str(error)
    return text.partition("\n\nJVM stacktrace:")[0] or type(error).__name__
