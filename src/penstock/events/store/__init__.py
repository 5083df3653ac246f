"""The database of events: one repository, named SQL, migrations, SQLite and PostgreSQL."""

from penstock.events.store.database import LaneContent, LaneJob, LaneQuestion, Row, Transaction
from penstock.events.store.repository import JobRepository
from penstock.events.store.repository.changes import KeptChange
from penstock.events.store.repository.deliveries import (
    Begin,
    Beginning,
    DeliveryBegins,
    DeliveryLease,
    Done,
    EndedDelivery,
    TryLater,
    Verdict,
)
from penstock.events.store.repository.erasure import Subject, SubjectCounts
from penstock.events.store.repository.event_types import ChangedEventTypes
from penstock.events.store.repository.feeds import TopicFeed
from penstock.events.store.repository.inspection import (
    COUNTED_JOBS,
    THE_NEWEST,
    FailedDelivery,
    FinishedJob,
    HeldGroup,
    LaneState,
    SubscriptionLoad,
)
from penstock.events.store.repository.lane_runs import LaneOffer, LaneRun, Return, credited_run, return_of
from penstock.events.store.repository.lanes import AwakeRange, LaneOwner, Lanes, credited_streams
from penstock.events.store.repository.leader import SCHEDULER
from penstock.events.store.repository.listing import JobFilter, JobPage
from penstock.events.store.repository.replays import ReplayLoad, ReplayPart, Replays
from penstock.events.store.repository.statistics import KEPT_MS, Statistics
from penstock.events.store.statements import MODE_OF, STATUS_OF, Dialect, StoredMode, StoredState, queries

__all__ = [
    "COUNTED_JOBS",
    "KEPT_MS",
    "MODE_OF",
    "SCHEDULER",
    "STATUS_OF",
    "THE_NEWEST",
    "AwakeRange",
    "Begin",
    "Beginning",
    "ChangedEventTypes",
    "DeliveryBegins",
    "DeliveryLease",
    "Dialect",
    "Done",
    "EndedDelivery",
    "FailedDelivery",
    "FinishedJob",
    "HeldGroup",
    "JobFilter",
    "JobPage",
    "JobRepository",
    "KeptChange",
    "LaneContent",
    "LaneJob",
    "LaneOffer",
    "LaneOwner",
    "LaneQuestion",
    "LaneRun",
    "LaneState",
    "Lanes",
    "ReplayLoad",
    "ReplayPart",
    "Replays",
    "Return",
    "Row",
    "Statistics",
    "StoredMode",
    "StoredState",
    "Subject",
    "SubjectCounts",
    "SubscriptionLoad",
    "TopicFeed",
    "Transaction",
    "TryLater",
    "Verdict",
    "credited_run",
    "credited_streams",
    "queries",
    "return_of",
]
