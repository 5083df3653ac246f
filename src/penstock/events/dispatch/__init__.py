"""Dispatch: PENDING jobs to the queue, in order per group, by the inline engine or by Spark."""

from penstock.events.dispatch.lane_claims import LaneClaims
from penstock.events.dispatch.pointers import Pointers
from penstock.events.dispatch.pool_queues import DispatchQueue
from penstock.events.dispatch.scheduler import Scheduler
from penstock.events.dispatch.server import (
    SchedulerRole,
    SchedulerServerSettings,
    scheduler_role,
    serve_api_with_scheduler,
    serve_scheduler,
)
from penstock.events.dispatch.settings import SchedulerSettings, scheduler_settings

__all__ = [
    "DispatchQueue",
    "LaneClaims",
    "Pointers",
    "Scheduler",
    "SchedulerRole",
    "SchedulerServerSettings",
    "SchedulerSettings",
    "scheduler_role",
    "scheduler_settings",
    "serve_api_with_scheduler",
    "serve_scheduler",
]
