"""Which stretch of time is audited, and how exactly clocks are believed."""

from collections.abc import Mapping

import msgspec

from penstock.domain.limits import MINUTE_MS, SECOND_MS

SETTLED_MS = 5 * SECOND_MS
"""Tables are read one after the other while the system runs: what is younger than this is left for the next audit."""

CATALOG_LAG_MS = 10 * SECOND_MS
"""A subscription's id is older than its row: events that follow it so closely may have missed it rightly."""

FINISH_LAG_MS = MINUTE_MS
"""From the end of a delivery to its being written down, at most: the lease is over by then."""

LONGEST_DELIVERY_MS = 24 * 60 * MINUTE_MS
"""No delivery lasts longer, so that attempts which ended in a window are found by when they began."""

FUTURE_MS = 60 * MINUTE_MS
"""A clock that is ahead by more is a damaged row."""

ROUNDING_MS = 1
"""Moments and durations are whole milliseconds: less than this between an end and a beginning proves nothing."""


class AuditWindow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """From `since_ms` up to and without `until_ms`, read at `taken_ms`.

    `tolerance_ms` is by how much the clocks of several machines may differ: whatever could be explained by that is no
    finding. `subscription_id` narrows the audit to one subscription; `changed_ms` says when subscriptions got the
    pattern and filter that they have now.
    """

    until_ms: int
    since_ms: int = 0
    taken_ms: int | None = None
    tolerance_ms: int = 0
    subscription_id: str | None = None
    changed_ms: Mapping[str, int] = msgspec.field(default_factory=dict)

    @property
    def future_ms(self) -> int:
        """Rows of later than this are damaged."""
        return (self.until_ms if self.taken_ms is None else self.taken_ms) + FUTURE_MS

    @property
    def jobs_since_ms(self) -> int:
        """Jobs that were over before have nothing to do with the window."""
        return self.since_ms - FINISH_LAG_MS

    @property
    def attempts_since_ms(self) -> int:
        """Attempts that began before were over when it began."""
        return self.since_ms - LONGEST_DELIVERY_MS
