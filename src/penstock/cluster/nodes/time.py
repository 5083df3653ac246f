"""The time of a whole node: its parts go by the clock of the database, as those of the other nodes do (NODE-CLOCK-4).

Events of a key are in the order of their ids, which begin with the time, whichever node accepted them.
"""

import logging
from threading import Event, Thread

from penstock.cluster.nodes.membership import UNREACHABLE
from penstock.cluster.nodes.registry import Registry
from penstock.edge.clock import FollowedClock, go_by

log = logging.getLogger(__name__)

_PART = "time"
_ASK_S = 5.0


def go_by_database(url: str) -> None:
    """Let this process have the time of the database; called at its start."""
    registry = Registry(url, _PART)
    try:
        clock = FollowedClock(registry.now_us)
    except UNREACHABLE as error:
        # The part needs the database too: it ends by itself, and is started again.
        log.warning("the time of the database is not known: %s", error)
        return
    go_by(clock)
    Thread(target=_follow, args=(clock, registry), name="penstock-time", daemon=True).start()


def _follow(clock: FollowedClock, registry: Registry) -> None:
    never = Event()
    while not never.wait(_ASK_S):
        try:
            clock.ask()
        except UNREACHABLE:
            # Steady time goes on; the parts say that the database is away.
            registry.close()
