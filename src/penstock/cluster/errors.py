"""Errors of leases and leadership.

InvalidArgument
└── InvalidStandby       the setting is not a kind of hot standby
FailedPrecondition
├── StaleLeader          another node has become the leader
└── NodeNameTaken        another process is a node of this name
Unavailable
├── NotOwner             the node that was asked does not own the shard
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


class NodeNameTaken(FailedPrecondition):
    """Another process is a node of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"another process is the node {name!r} at another address: give each its own --node NAME")


class NotOwner(Unavailable):
    """The node that was asked does not own the shard, and did nothing."""

    def __init__(self, node: str, shard: str) -> None:
        super().__init__(f"node {node} does not own shard {shard}; ask its owner")
