"""Errors of leases and leadership.

InvalidArgument
└── InvalidStandby       what was given names no kind of hot standby
FailedPrecondition
└── StaleLeader          another node has become the leader since
Unavailable
└── LeaseUnavailable     the service that keeps the leader's lease did not answer
"""

from penstock.domain.errors import FailedPrecondition, InvalidArgument, Unavailable


class InvalidStandby(InvalidArgument):
    """What was given names no kind of hot standby."""


class StaleLeader(FailedPrecondition):
    """Another node has become the leader since."""

    def __init__(self, token: int, current: int) -> None:
        super().__init__(f"the leader with token {token} was followed by token {current}: stop what it was doing")


class LeaseUnavailable(Unavailable):
    """Whoever keeps the leader's lease did not answer."""
