"""Errors of leases and leadership.

InvalidArgument
└── InvalidStandby       the setting is not a kind of hot standby
FailedPrecondition
└── StaleLeader          another node has become the leader
Unavailable
└── LeaseUnavailable     the service that stores the leader's lease did not answer
"""

from penstock.domain.errors import FailedPrecondition, InvalidArgument, Unavailable


class InvalidStandby(InvalidArgument):
    """The setting is not a kind of hot standby."""


class StaleLeader(FailedPrecondition):
    """Another node has become the leader."""

    def __init__(self, token: int, current: int) -> None:
        super().__init__(f"the leader with token {token} was replaced by the one with token {current}; stop its work")


class LeaseUnavailable(Unavailable):
    """The service that stores the leader's lease did not answer."""
