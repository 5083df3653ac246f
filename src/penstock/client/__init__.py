"""The Python client: publish, subscribe, inspect jobs, and verify webhooks.

with Penstock("http://127.0.0.1:8080") as penstock:
    penstock.publish(Event(type="orders:placed", key="order-1", data={"total": 7}))
"""

from typing import TYPE_CHECKING

from penstock.client.blocking import Penstock
from penstock.client.errors import BadSignature, NoAnswer, StrangeAnswer, TokenRefused
from penstock.client.event import Event
from penstock.client.types import AttemptView as Attempt
from penstock.client.types import (
    ClientCertificate,
    EventTypeBody,
    EventTypeVersion,
    HealthReport,
    HeldGroupView,
    LaneView,
    Match,
    OAuth2,
)
from penstock.client.types import EventReceipt as Receipt
from penstock.client.types import EventTypeView as EventType
from penstock.client.types import FeedView as Feed
from penstock.client.types import JobView as Job
from penstock.client.types import PoolView as Pool
from penstock.client.types import SubscriptionMade as NewSubscription
from penstock.client.types import SubscriptionView as Subscription
from penstock.client.webhook import Webhook, verify_webhook
from penstock.domain.event import Validation
from penstock.domain.job_state import JobStatus
from penstock.domain.matching import Comparison, Condition
from penstock.domain.pointer import DispatchMode

if TYPE_CHECKING:
    from penstock.client.asynchronous import AsyncPenstock

__all__ = [
    "AsyncPenstock",
    "Attempt",
    "BadSignature",
    "ClientCertificate",
    "Comparison",
    "Condition",
    "DispatchMode",
    "Event",
    "EventType",
    "EventTypeBody",
    "EventTypeVersion",
    "Feed",
    "HealthReport",
    "HeldGroupView",
    "Job",
    "JobStatus",
    "LaneView",
    "Match",
    "NewSubscription",
    "NoAnswer",
    "OAuth2",
    "Penstock",
    "Pool",
    "Receipt",
    "StrangeAnswer",
    "Subscription",
    "TokenRefused",
    "Validation",
    "Webhook",
    "verify_webhook",
]


def __getattr__(name: str) -> object:
    # Imported on first use: the CLI and blocking programs do not need asyncio and start faster without it.
    if name == "AsyncPenstock":
        from penstock.client.asynchronous import AsyncPenstock

        return AsyncPenstock
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
