"""`/monitoring`: the state of the whole router, and whether it is the primary instance."""

import msgspec

from penstock.http.api import Call, NoBody, NoQuery, route
from penstock.router.config.sync import ConfigSync, SyncState
from penstock.router.leadership import RouterLeadership
from penstock.router.monitoring.health import Health, assess
from penstock.router.monitoring.views import QueueView, RouterPoolView, RouterSurface
from penstock.router.monitoring.warnings import Warnings, WarningSeverity


class RouterTotals(msgspec.Struct, frozen=True, rename="camel"):
    """Totals of all pools and queues."""

    pools: int
    queues: int
    queued: int
    active: int
    in_flight: int
    submitted: int
    succeeded: int
    failed: int
    transient: int
    deferred: int
    received: int
    acked: int
    nacked: int
    malformed: int


class Overview(msgspec.Struct, frozen=True, rename="camel"):
    """The current state of the router."""

    health: Health
    totals: RouterTotals
    open_breakers: int
    unacknowledged_warnings: dict[WarningSeverity, int]
    sync: SyncState


class StandbyStatus(msgspec.Struct, frozen=True, rename="camel"):
    """Whether this instance consumes, and why."""

    enabled: bool
    primary: bool
    initialised: bool
    consuming: bool


class OverviewRoutes:
    """The routes of the overview."""

    def __init__(
        self,
        router: RouterSurface,
        sync: ConfigSync,
        warnings: Warnings,
        leadership: RouterLeadership,
        *,
        enabled: bool,
    ) -> None:
        self._router = router
        self._sync = sync
        self._warnings = warnings
        self._leadership = leadership
        self._enabled = enabled

    @route("GET", "/monitoring", summary="Show the health of the router, with reasons, and its totals.")
    def _overview(self, _: Call[NoQuery, NoBody]) -> Overview:
        pools, queues, breakers = self._router.pools(), self._router.queues(), self._router.breakers()
        warnings = self._warnings.counts()
        return Overview(
            health=assess(self._sync.state, pools, queues, breakers, warnings),
            totals=_totals(pools, queues),
            open_breakers=sum(breaker.state != "CLOSED" for breaker in breakers),
            unacknowledged_warnings=warnings,
            sync=self._sync.state,
        )

    @route("GET", "/monitoring/standby-status", summary="Show whether this instance is the primary one and consumes.")
    def _standby_status(self, _: Call[NoQuery, NoBody]) -> StandbyStatus:
        state = self._sync.state
        return StandbyStatus(self._enabled, self._leadership.is_primary(), state.initialised, state.consuming)


def _totals(pools: list[RouterPoolView], queues: list[QueueView]) -> RouterTotals:
    return RouterTotals(
        pools=len(pools),
        queues=len(queues),
        queued=sum(pool.queued for pool in pools),
        active=sum(pool.active for pool in pools),
        in_flight=sum(queue.in_flight for queue in queues),
        submitted=sum(pool.submitted for pool in pools),
        succeeded=sum(pool.succeeded for pool in pools),
        failed=sum(pool.failed for pool in pools),
        transient=sum(pool.transient for pool in pools),
        deferred=sum(pool.deferred for pool in pools),
        received=sum(queue.received for queue in queues),
        acked=sum(queue.acked for queue in queues),
        nacked=sum(queue.nacked for queue in queues),
        malformed=sum(queue.malformed for queue in queues),
    )
