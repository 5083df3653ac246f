"""Groups in the API: those that are held up, and the lanes of a key."""

from datetime import datetime
from enum import StrEnum

import msgspec

from penstock.client.types.fields import Cursor, GroupKey, Limit, Name
from penstock.client.types.job import JobView
from penstock.domain.job_state import JobStatus


class HeldOrder(StrEnum):
    """By key, which is stable across pages, or the most urgent first, which has a single page."""

    KEY = "key"
    URGENT = "urgent"


class HeldQuery(msgspec.Struct, frozen=True, rename="camel"):
    """Of which subscription, how many groups to return, in which order, and where to continue."""

    subscription_id: Name | None = None
    limit: Limit = 100
    order: HeldOrder = HeldOrder.KEY
    cursor: Cursor | None = None


class HeldGroupView(msgspec.Struct, frozen=True, rename="camel"):
    """A group whose jobs wait for one that failed; `waiting` of them are in line, counted up to 1,000."""

    group_key: str
    subscription_id: str | None
    subscription: str | None
    errors: int
    retrying: int
    waiting: int
    since: datetime


class HeldGroupList(msgspec.Struct, frozen=True):
    """Groups that are held up: by key, or those in ERROR first and then those held longest.

    The cursor asks for the next page; it is null on the last one.
    """

    groups: list[HeldGroupView]
    cursor: str | None


class LaneQuery(msgspec.Struct, frozen=True):
    """A key such as `order-17`, for the lanes of every subscription, or a whole group key; and where to continue."""

    key: GroupKey
    cursor: Cursor | None = None


class LaneView(msgspec.Struct, frozen=True, rename="camel"):
    """The unfinished jobs of a group, the next one first, and what holds them up, if anything."""

    group_key: str
    subscription_id: str | None
    subscription: str | None
    paused: bool
    blocked_by: str | None
    """The id of the job that the others wait for."""
    reason: str
    counts: dict[JobStatus, int]
    jobs: list[JobView]


class LaneList(msgspec.Struct, frozen=True):
    """The lanes in which a key has jobs; the cursor asks for those of more subscriptions, null on the last page."""

    lanes: list[LaneView]
    cursor: str | None
