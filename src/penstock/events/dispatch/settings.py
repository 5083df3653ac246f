"""The settings of a scheduler, with the defaults of SCHED-SETTING-1, and its counters."""

from collections import Counter
from dataclasses import dataclass, field

import msgspec

from penstock.domain.pace.credit import LANE_CREDIT, AwakeStream
from penstock.ops.config import SchedulerOptions


class SchedulerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Intervals, batch sizes and timeouts."""

    poll_interval_s: float = 5.0
    batch_size: int = 20
    max_batch_size: int = 5000
    max_concurrent_groups: int = 10
    jobs_per_lane: int = LANE_CREDIT
    """Jobs of an ordered lane that may be on their way at once."""
    claim_lease_s: float = 30.0
    """How long claimed lanes are kept from other nodes, also after a crash."""
    stale_after_s: float = 900.0
    stale_poll_s: float = 60.0
    stale_batch_size: int = 100
    archive_after_s: float = 86_400.0
    keep_archive_s: float = 7_776_000.0


def scheduler_settings(options: SchedulerOptions) -> SchedulerSettings:
    """Return the settings of a configuration."""
    return SchedulerSettings(**{name: getattr(options, name) for name in SchedulerSettings.__struct_fields__})


@dataclass
class Counts:
    """Counters since the start, and the last problem."""

    claimed: int = 0
    published: int = 0
    publish_failures: int = 0
    recovered: int = 0
    archived: int = 0
    errors: int = 0
    terms: int = 0
    in_hand: Counter[AwakeStream] = field(default_factory=Counter)
    """Jobs that were taken from their lanes and are not yet marked as published."""
    lag_s: float = 0.0
    """How long the longest-waiting job of the last claim had been due; 0 when there was none."""
    trouble: str | None = None
    """What prevents the scheduler from publishing; None after a successful publication."""
