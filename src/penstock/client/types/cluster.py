"""The nodes of a cluster and what each of them owns, in the API."""

import msgspec


class ClusterNode(msgspec.Struct, frozen=True):
    """A live node."""

    name: str
    address: str
    capabilities: tuple[str, ...]
    draining: bool
    """Whether it is about to stop."""
    expires_in_s: float
    """How long it counts as live without a renewal."""


class ClusterShard(msgspec.Struct, frozen=True):
    """A part of the data with one owner at a time."""

    part: str
    """What it belongs to: sqs or pubsub."""
    name: str
    owner: str | None
    """The name of the node that serves it; None while there is none."""
    epoch: int
    """The number of its ownership, larger than all before."""
    needs: tuple[str, ...]
    """The capabilities that its owner must have."""
    moves: int
    """How often it got another owner."""


class ClusterView(msgspec.Struct, frozen=True):
    """The cluster as one node sees it."""

    node: str
    nodes: list[ClusterNode]
    shards: list[ClusterShard]
