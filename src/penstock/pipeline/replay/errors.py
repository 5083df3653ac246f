"""Errors of replays.

Unavailable
└── ReplayBroken    the tasks of a replay failed; what they delivered is kept
"""

from penstock.domain.errors import Unavailable


class ReplayBroken(Unavailable):
    """The tasks of a replay failed; what they delivered is kept."""

    def __init__(self, replay_id: str, reason: str) -> None:
        super().__init__(f"{reason}; go on with `penstock pipeline replay --resume {replay_id}`")
