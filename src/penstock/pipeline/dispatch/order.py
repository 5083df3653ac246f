"""What the tasks of one round are told: where jobs and queue are, in whose name to claim, and until when to publish."""

import msgspec

from penstock.domain.subscription import DEFAULT_DISPATCH_POOL
from penstock.jobs.auth_token import AuthTokens
from penstock.jobs.lane_claiming import LaneOwner
from penstock.pipeline.database import Database
from penstock.pipeline.dispatch.settings import DispatchSettings
from penstock.scheduler.pointers import Pointers


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """The queue, and what its pointers say; never printed, for the secrets."""

    queue_uri: str
    endpoint: str
    secrets: tuple[bytes, ...]
    pool: str = DEFAULT_DISPATCH_POOL

    def __repr__(self) -> str:
        return "Destination(…)"

    def pointers(self) -> Pointers:
        """Makes the pointers."""
        return Pointers(self.endpoint, AuthTokens(self.secrets), self.pool)


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One round. The owner is the same for every attempt at it, so that a retried task has its predecessor's claims."""

    database: Database
    destination: Destination
    owner: LaneOwner
    settings: DispatchSettings
    until_ms: int
    """When it is too late to publish, by the wall clock: after that the queue may forget what it has seen."""
