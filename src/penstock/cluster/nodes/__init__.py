"""The nodes of a cluster on one PostgreSQL database, and the shards that they share out."""

from penstock.cluster.nodes.keeper import ShardKeeper
from penstock.cluster.nodes.membership import UNREACHABLE, NodeMembership
from penstock.cluster.nodes.part import NodeIdentity, identify, renewed, taking_part, until_stop
from penstock.cluster.nodes.rates import RatePermits
from penstock.cluster.nodes.registry import Before, Registry
from penstock.cluster.nodes.spread import Node
from penstock.cluster.nodes.time import go_by_database

__all__ = [
    "UNREACHABLE",
    "Before",
    "Node",
    "NodeIdentity",
    "NodeMembership",
    "RatePermits",
    "Registry",
    "ShardKeeper",
    "go_by_database",
    "identify",
    "renewed",
    "taking_part",
    "until_stop",
]
