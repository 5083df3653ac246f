"""The API of jobs, events, subscriptions and pools."""

from penstock.events.api.app import ApiFront, JobsParts
from penstock.events.api.health.alerts import AlertRules, QuietHours
from penstock.events.api.health.breakers import SubscriberBreakerRoutes
from penstock.events.api.health.report import PartStates
from penstock.events.api.jobs.groups import GroupRoutes
from penstock.events.api.jobs.replays import ReplayRoutes
from penstock.events.api.pools import ROUTER_CONFIG_PATH
from penstock.events.api.server import ApiSettings, api_server, serve_api
from penstock.events.api.statistics import DeliveryRoutes, StatisticsRoutes
from penstock.events.api.subscriptions.routes import PATH

__all__ = [
    "PATH",
    "ROUTER_CONFIG_PATH",
    "AlertRules",
    "ApiFront",
    "ApiSettings",
    "DeliveryRoutes",
    "GroupRoutes",
    "JobsParts",
    "PartStates",
    "QuietHours",
    "ReplayRoutes",
    "StatisticsRoutes",
    "SubscriberBreakerRoutes",
    "api_server",
    "serve_api",
]
