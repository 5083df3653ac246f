"""The numbers that dispatch on Spark works by."""

import msgspec

from penstock.scheduler.settings import SchedulerSettings


class DispatchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much at once; how long things take is the scheduler's to say."""

    scheduler: SchedulerSettings = SchedulerSettings()
    most_jobs: int = 64_000
    """Jobs of one round: so many that a round's own cost is small, so few that what comes meanwhile waits seconds.

    A round takes as much of each lane as the others: the smaller it is, the more often a backlog's lanes are claimed.
    """
    most_per_lane: int = 1_000
    lanes_per_task: int = 64
    """Rounds of fewer lanes have fewer tasks: to share little work takes longer than to do it."""
    tasks: int | None = None
    """How many tasks publish at once, a power of two; None is one per core."""
    groups_at_once: int = 400
    """Groups that one task publishes at the same time."""
    chores_every_s: float = 0.5
