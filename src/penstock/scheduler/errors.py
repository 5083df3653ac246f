"""Errors of the scheduler.

InvalidArgument
└── InvalidStandby       what was given names no kind of hot standby
FailedPrecondition
└── NotLeading           this node lost the lease before it could publish
Unavailable
└── LeaseUnavailable     whoever keeps the leader's lease did not answer
"""

from penstock.domain.errors import FailedPrecondition, InvalidArgument, Unavailable


class InvalidStandby(InvalidArgument):
    """What was given names no kind of hot standby."""


class NotLeading(FailedPrecondition):
    """This node lost the lease before it could publish."""

    def __init__(self) -> None:
        super().__init__("this node lost the leader's lease, so it publishes nothing")


class LeaseUnavailable(Unavailable):
    """Whoever keeps the leader's lease did not answer."""
