"""The message router: takes pointers from queues and delivers them by HTTP, in order per group."""

from penstock.router.config.configuration import PoolConfiguration, RouterConfiguration
from penstock.router.monitoring.app import Reloaded
from penstock.router.monitoring.breakers import BreakerList, BreakerReset, ResetCount, breaker_list
from penstock.router.monitoring.in_flight import InFlightList, InFlightQuery
from penstock.router.monitoring.overview import Overview
from penstock.router.monitoring.pools import GroupList, GroupQuery, PoolChange, RouterPoolList
from penstock.router.monitoring.queues import QueueList
from penstock.router.monitoring.views import RouterPoolView
from penstock.router.monitoring.warning_routes import WarningCount, WarningList, WarningQuery
from penstock.router.monitoring.warnings import RouterWarning, WarningCode, Warnings
from penstock.router.pools.counts import RouterMetrics
from penstock.router.pools.mediator import HttpMediator, Mediator, StagedMediator
from penstock.router.pools.permits import MessageLeaseEnded, Permit, Permits
from penstock.router.pools.pool import SHRINK_WAIT_S
from penstock.router.pools.shared_rate import PermitSource
from penstock.router.router import Router
from penstock.router.schedule import TaskSchedule, router_tasks
from penstock.router.server import LocalMediation, serve_router, serve_standby_router
from penstock.router.settings import RouterSettings, router_settings

__all__ = [
    "SHRINK_WAIT_S",
    "BreakerList",
    "BreakerReset",
    "GroupList",
    "GroupQuery",
    "HttpMediator",
    "InFlightList",
    "InFlightQuery",
    "LocalMediation",
    "Mediator",
    "MessageLeaseEnded",
    "Overview",
    "Permit",
    "PermitSource",
    "Permits",
    "PoolChange",
    "PoolConfiguration",
    "QueueList",
    "Reloaded",
    "ResetCount",
    "Router",
    "RouterConfiguration",
    "RouterMetrics",
    "RouterPoolList",
    "RouterPoolView",
    "RouterSettings",
    "RouterWarning",
    "StagedMediator",
    "TaskSchedule",
    "WarningCode",
    "WarningCount",
    "WarningList",
    "WarningQuery",
    "Warnings",
    "breaker_list",
    "router_settings",
    "router_tasks",
    "serve_router",
    "serve_standby_router",
]
