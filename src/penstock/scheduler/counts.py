"""What the scheduler has done so far, for its metrics and its health."""

from dataclasses import dataclass


@dataclass
class Counts:
    """Counts since the start, and what went wrong last."""

    claimed: int = 0
    published: int = 0
    publish_failures: int = 0
    recovered: int = 0
    archived: int = 0
    errors: int = 0
    terms: int = 0
    lag_s: float = 0.0
    """For how long the job of the last claim that waited longest had been due; 0 when there was none."""
    trouble: str | None = None
    """What keeps the scheduler from publishing; None when the last publication went well."""
