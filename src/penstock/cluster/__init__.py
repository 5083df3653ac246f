"""Leases with fencing tokens, leadership and standby."""

from penstock.cluster.errors import NotOwner, StaleLeader
from penstock.cluster.leadership import OFF, Terms, lease_for, running
from penstock.cluster.lease import LeaderLease, LeaseDatabase
from penstock.cluster.standby import RENEW_S, TTL_S, Alone, Leadership, Standby

__all__ = [
    "OFF",
    "RENEW_S",
    "TTL_S",
    "Alone",
    "LeaderLease",
    "Leadership",
    "LeaseDatabase",
    "NotOwner",
    "StaleLeader",
    "Standby",
    "Terms",
    "lease_for",
    "running",
]
