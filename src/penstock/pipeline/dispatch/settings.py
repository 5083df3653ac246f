"""The numbers that dispatch on Spark works by."""

import msgspec

from penstock.scheduler.settings import SchedulerSettings


class DispatchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much at once; how long things take is the scheduler's to say."""

    scheduler: SchedulerSettings = SchedulerSettings()
    most_jobs: int = 64_000
    """Jobs of one round: so many that a round's own cost is small, so few that what comes meanwhile waits seconds.

    It takes as much of each lane as of the others, in the order of their turns, until it has so many.
    """
    most_per_lane: int = 1_000
    least_per_lane: int = 32
    """Jobs that a lane may give when it is its turn, however many lanes wait: to claim a lane and give it back costs as
    much as to publish two jobs.
    """
    lanes_per_task: int = 64
    """Rounds of fewer lanes have fewer tasks: to share little work takes longer than to do it."""
    tasks: int | None = None
    """How many tasks publish at once, a power of two; None is one per core."""
    groups_at_once: int = 400
    """Groups that one task publishes at the same time."""
    chores_every_s: float = 0.5
