"""Why tasks failed, in one line: what Python raised in an executor comes to the driver inside Java's stack trace."""

import re

_RAISED = re.compile(r"^(?:penstock(?:\.\w+)*\.)(\w+: .+)$", re.MULTILINE)
_MOST_CHARS = 300


def told_by_tasks(error: Exception) -> str:
    """The last error of ours in the text, else its first line."""
    text = str(error)
    raised = _RAISED.findall(text)
    told = raised[-1].partition(": ")[2] if raised else next(iter(text.splitlines()), type(error).__name__)
    return told[:_MOST_CHARS]
