"""The database of events: one repository, named SQL, migrations, SQLite and PostgreSQL."""

from penstock.events.store.changes import KeptChange
from penstock.events.store.deliveries import Begin, Beginning, Done, TryLater, Verdict
from penstock.events.store.inspection import THE_NEWEST, FinishedJob, HeldGroup, LaneState
from penstock.events.store.lane_run import LaneContent, LaneRun, Return, rested_run
from penstock.events.store.lanes import AwakeRange, LaneOwner, Lanes
from penstock.events.store.leader import SCHEDULER
from penstock.events.store.listing import JobFilter, JobPage
from penstock.events.store.replays import ReplayLoad, ReplayPart, Replays
from penstock.events.store.repository import JobRepository
from penstock.events.store.sql_repository import SqlRepository
from penstock.events.store.statements import MODE_OF, STATUS_OF, Dialect, StoredMode, StoredState, queries
from penstock.events.store.statistics import KEPT_MS, Statistics
from penstock.events.store.transaction import Row

__all__ = [
    "KEPT_MS",
    "MODE_OF",
    "SCHEDULER",
    "STATUS_OF",
    "THE_NEWEST",
    "AwakeRange",
    "Begin",
    "Beginning",
    "Dialect",
    "Done",
    "FinishedJob",
    "HeldGroup",
    "JobFilter",
    "JobPage",
    "JobRepository",
    "KeptChange",
    "LaneContent",
    "LaneOwner",
    "LaneRun",
    "LaneState",
    "Lanes",
    "ReplayLoad",
    "ReplayPart",
    "Replays",
    "Return",
    "Row",
    "SqlRepository",
    "Statistics",
    "StoredMode",
    "StoredState",
    "TryLater",
    "Verdict",
    "queries",
    "rested_run",
]
