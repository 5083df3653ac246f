"""Warnings for operators, kept in memory for eight hours in a bounded list.

A warning that repeats within a minute is counted, not listed again; after an acknowledgement it is a new one. When the
list is full, the oldest of the least severe is removed.
"""

import logging
from collections import OrderedDict
from collections.abc import Iterator
from enum import StrEnum

import msgspec

from penstock.domain.limits import MINUTE_MS
from penstock.edge.clock import Clock
from penstock.ops.telemetry import mask_secrets

log = logging.getLogger(__name__)

EXPIRY_MS = 8 * 60 * MINUTE_MS
REPEAT_MS = MINUTE_MS
MAX_WARNINGS = 1_000
MAX_MESSAGE_CHARS = 2_000
# The source of a warning that concerns neither a queue nor a pool.
ROUTER = "router"


class WarningSeverity(StrEnum):
    """Severity of a warning, least first."""

    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"
    CRITICAL = "CRITICAL"


class WarningCode(StrEnum):
    """The kind of a warning (ROUTER-WARN-1)."""

    CONFIG_SYNC_FAILED = "CONFIG_SYNC_FAILED"
    ROUTING = "ROUTING"
    QUEUE_FULL = "QUEUE_FULL"
    POOL_LIMIT = "POOL_LIMIT"
    PIPELINE_MAP_LEAK = "PIPELINE_MAP_LEAK"
    CONSUMER_RESTART = "CONSUMER_RESTART"
    CONSUMER_RESTART_FAILED = "CONSUMER_RESTART_FAILED"
    SHUTDOWN_CLEANUP_ERRORS = "SHUTDOWN_CLEANUP_ERRORS"
    GROUP_THREAD_RESTART = "GROUP_THREAD_RESTART"
    GROUP_THREAD_EXIT_WITH_MESSAGES = "GROUP_THREAD_EXIT_WITH_MESSAGES"
    SEMAPHORE_RELEASE_FAILED = "SEMAPHORE_RELEASE_FAILED"
    MEDIATOR_NULL_RESULT = "MEDIATOR_NULL_RESULT"
    PROCESSING = "PROCESSING"
    CONFIGURATION = "CONFIGURATION"
    MALFORMED_MESSAGE = "MALFORMED_MESSAGE"
    QUEUE_VALIDATION = "QUEUE_VALIDATION"


class RouterWarning(msgspec.Struct, frozen=True, rename="camel"):
    """A warning for operators."""

    id: str
    code: WarningCode
    severity: WarningSeverity
    source: str
    message: str
    first_at_ms: int
    last_at_ms: int
    count: int = 1
    acknowledged: bool = False

    @property
    def number(self) -> int:
        """The position of the warning in the order of first occurrence, counted from 1."""
        return int(self.id.partition("-")[2])


class WarningFilter(msgspec.Struct, frozen=True):
    """A filter of warnings; None matches all."""

    severity: WarningSeverity | None = None
    code: WarningCode | None = None
    source: str | None = None
    acknowledged: bool | None = None
    since_ms: int | None = None

    def matches(self, warning: RouterWarning) -> bool:
        """Return whether a warning matches."""
        return (
            self.severity in (None, warning.severity)
            and self.code in (None, warning.code)
            and self.source in (None, warning.source)
            and self.acknowledged in (None, warning.acknowledged)
            and (self.since_ms is None or warning.last_at_ms >= self.since_ms)
        )


_ALL = WarningFilter()
_LEVELS = {
    WarningSeverity.INFO: logging.INFO,
    WarningSeverity.WARN: logging.WARNING,
    WarningSeverity.ERROR: logging.ERROR,
    WarningSeverity.CRITICAL: logging.CRITICAL,
}
_Key = tuple[str, str, str, str]


class Warnings:
    """All warnings of a router."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Each in the order of the last occurrence, so that expired warnings come first.
        self._by_severity: dict[WarningSeverity, OrderedDict[str, RouterWarning]] = {
            each: OrderedDict() for each in WarningSeverity
        }
        self._repeatable: dict[_Key, RouterWarning] = {}
        self._created = 0

    def add(self, code: str, severity: str, source: str, message: str) -> None:
        """Add a warning; the code and the severity are those of WarningCode and WarningSeverity."""
        now_ms = self._clock.now_ms()
        self._expire(now_ms)
        text = mask_secrets(message)[:MAX_MESSAGE_CHARS]
        known = self._repeatable.get((code, severity, source, text))
        if known is not None and now_ms - known.last_at_ms < REPEAT_MS:
            self._count_up(known, now_ms)
        else:
            self._add_new(WarningCode(code), WarningSeverity(severity), source, text, now_ms)

    def listed(self, wanted: WarningFilter = _ALL) -> list[RouterWarning]:
        """Return the matching warnings, newest first."""
        self._expire(self._clock.now_ms())
        return sorted((each for each in self._all() if wanted.matches(each)), key=_newest_first)

    def counts(self) -> dict[WarningSeverity, int]:
        """Return the number of unacknowledged warnings by severity."""
        self._expire(self._clock.now_ms())
        return {
            severity: sum(not each.acknowledged for each in kept.values())
            for severity, kept in self._by_severity.items()
        }

    def acknowledge(self, warning_id: str) -> RouterWarning | None:
        """Acknowledge a warning and return it; None if there is none with this id."""
        self._expire(self._clock.now_ms())
        for kept in self._by_severity.values():
            if (found := kept.get(warning_id)) is not None:
                return self._acknowledge(found)
        return None

    def acknowledge_all(self) -> int:
        """Acknowledge all warnings, and return how many were not acknowledged before."""
        open_ones = self.listed(WarningFilter(acknowledged=False))
        for each in open_ones:
            self._acknowledge(each)
        return len(open_ones)

    def remove_older(self, age_ms: int) -> int:
        """Remove the warnings whose last occurrence is at least this old, and return their number."""
        return self._expire(self._clock.now_ms(), min(age_ms, EXPIRY_MS))

    def _all(self) -> Iterator[RouterWarning]:
        for kept in self._by_severity.values():
            yield from kept.values()

    def _add_new(self, code: WarningCode, severity: WarningSeverity, source: str, message: str, now_ms: int) -> None:
        if sum(map(len, self._by_severity.values())) >= MAX_WARNINGS:
            self._make_room()
        self._created += 1
        created = RouterWarning(f"{now_ms}-{self._created}", code, severity, source, message, now_ms, now_ms)
        self._by_severity[severity][created.id] = created
        self._repeatable[_key(created)] = created
        log.log(_LEVELS[severity], message, extra={"code": code, "source": source, "severity": severity})

    def _count_up(self, known: RouterWarning, now_ms: int) -> None:
        repeated = msgspec.structs.replace(known, count=known.count + 1, last_at_ms=now_ms)
        self._by_severity[known.severity][known.id] = self._repeatable[_key(known)] = repeated
        self._by_severity[known.severity].move_to_end(known.id)

    def _acknowledge(self, warning: RouterWarning) -> RouterWarning:
        self._end_repeats(warning)
        seen = msgspec.structs.replace(warning, acknowledged=True)
        self._by_severity[warning.severity][warning.id] = seen
        return seen

    def _make_room(self) -> None:
        lowest = next(kept for kept in self._by_severity.values() if kept)
        self._drop(lowest, next(iter(lowest.values())))

    def _expire(self, now_ms: int, age_ms: int = EXPIRY_MS) -> int:
        dropped = 0
        for kept in self._by_severity.values():
            while kept and (oldest := next(iter(kept.values()))).last_at_ms <= now_ms - age_ms:
                self._drop(kept, oldest)
                dropped += 1
        return dropped

    def _drop(self, kept: OrderedDict[str, RouterWarning], warning: RouterWarning) -> None:
        del kept[warning.id]
        self._end_repeats(warning)

    def _end_repeats(self, warning: RouterWarning) -> None:
        last = self._repeatable.get(_key(warning))
        if last is not None and last.id == warning.id:
            del self._repeatable[_key(warning)]


def _key(warning: RouterWarning) -> _Key:
    return (warning.code, warning.severity, warning.source, warning.message)


def _newest_first(warning: RouterWarning) -> tuple[int, int]:
    return -warning.last_at_ms, -warning.number
