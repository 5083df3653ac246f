"""Ownership: who serves a queue's partitions. One node owns them all today; several will share them by leases."""

from typing import Protocol

CAPABILITIES = ("htfifo",)
"""What this node can do; a queue that needs more is not served by it."""


class Ownership(Protocol):
    """Asked before anything is done with a queue."""

    def may_create_partitioned(self) -> bool:
        """Whether every live node can serve a queue with several partitions."""
        ...

    def owns(self, incarnation: int) -> bool:
        """Whether this node serves a queue; if not, the request belongs to another."""
        ...


class SoleOwner:
    """The ownership of a single node."""

    def may_create_partitioned(self) -> bool:
        """This node reports `htfifo`."""
        return "htfifo" in CAPABILITIES

    def owns(self, incarnation: int) -> bool:
        """Everything is here."""
        return True
