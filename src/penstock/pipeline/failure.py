"""Why something on Spark failed, in one line: the innermost cause, without Java's and Python's stack traces."""

import re

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
