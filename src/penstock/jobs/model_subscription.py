"""A subscription: which events a subscriber wants, where they go, and how failures are met."""

from collections.abc import Mapping

import msgspec

from penstock.core.errors import InvalidArgument
from penstock.core.event_filter import EventFilter
from penstock.core.message import NO_ATTRIBUTES
from penstock.core.patterns import EventPattern
from penstock.core.pointer import DispatchMode
from penstock.core.retry_schedule import DEFAULT_RETRY_SCHEDULE, RetrySchedule

DEFAULT_TIMEOUT_S = 30.0
DEFAULT_DISPATCH_POOL = "DISPATCH-POOL"


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """What a subscriber asked for; `secrets` has the newest first, several while one replaces another."""

    id: str
    name: str
    pattern: str
    target: str
    filter: EventFilter = EventFilter()
    secrets: tuple[str, ...] = ()
    pool: str = DEFAULT_DISPATCH_POOL
    mode: DispatchMode = DispatchMode.BLOCK_ON_ERROR
    retry: RetrySchedule = DEFAULT_RETRY_SCHEDULE
    timeout_s: float = DEFAULT_TIMEOUT_S
    headers: Mapping[str, str] = NO_ATTRIBUTES
    paused: bool = False
    dead_letter_topic: str | None = None
    tenant: str = ""

    def __post_init__(self) -> None:
        EventPattern.parse(self.pattern)
        if not self.name or not self.target:
            raise InvalidArgument(f"subscription {self.id} needs a name and a target URL")
        if self.timeout_s <= 0:
            raise InvalidArgument(f"the timeout of subscription {self.name!r} is {self.timeout_s} s: use more than 0")

    def __repr__(self) -> str:
        # Without the secrets, which must not come into a log.
        return f"Subscription({self.id!r}, {self.name!r}, {self.pattern!r} -> {self.target!r})"
