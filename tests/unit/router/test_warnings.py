import logging
import re
from pathlib import Path

import pytest

from penstock.router.monitoring.warnings import (
    EXPIRY_MS,
    MAX_MESSAGE_CHARS,
    MAX_WARNINGS,
    WarningCode,
    WarningFilter,
    Warnings,
    WarningSeverity,
)
from penstock.testing.clock import VirtualClock

PAGE = Path(__file__).parents[3] / "docs/reference/warnings.md"


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def warnings(clock: VirtualClock) -> Warnings:
    return Warnings(clock)


def routing(warnings: Warnings, message: str = "no pool P", severity: WarningSeverity = WarningSeverity.WARN) -> None:
    warnings.add(WarningCode.ROUTING, severity, "QueueManager", message)


def test_a_warning_says_what_where_and_when(warnings: Warnings, clock: VirtualClock) -> None:
    routing(warnings)

    (warning,) = warnings.listed()
    assert (warning.code, warning.severity, warning.source) == (
        WarningCode.ROUTING,
        WarningSeverity.WARN,
        "QueueManager",
    )
    assert (warning.message, warning.count, warning.acknowledged) == ("no pool P", 1, False)
    assert warning.first_at_ms == warning.last_at_ms == clock.now_ms()


def test_a_repeat_within_a_minute_counts_up(warnings: Warnings, clock: VirtualClock) -> None:
    for _ in range(3):
        routing(warnings)
        clock.advance(59)

    (warning,) = warnings.listed()
    assert (warning.count, warning.last_at_ms - warning.first_at_ms) == (3, 118_000)


def test_a_repeat_after_a_minute_is_a_new_warning(warnings: Warnings, clock: VirtualClock) -> None:
    routing(warnings)
    clock.advance(60)
    routing(warnings)

    assert [warning.count for warning in warnings.listed()] == [1, 1]


def test_another_message_source_or_severity_is_another_warning(warnings: Warnings) -> None:
    routing(warnings)
    routing(warnings, "no pool Q")
    routing(warnings, severity=WarningSeverity.CRITICAL)
    warnings.add(WarningCode.ROUTING, WarningSeverity.WARN, "ProcessPool", "no pool P")

    assert len(warnings.listed()) == 4


def test_an_acknowledged_warning_that_comes_again_is_new(warnings: Warnings) -> None:
    routing(warnings)
    (first,) = warnings.listed()
    seen = warnings.acknowledge(first.id)
    assert seen is not None
    assert (seen.id, seen.acknowledged) == (first.id, True)
    routing(warnings)

    assert [warning.acknowledged for warning in warnings.listed()] == [False, True]


def test_a_warning_is_gone_after_eight_hours_without_a_repeat(warnings: Warnings, clock: VirtualClock) -> None:
    routing(warnings)
    clock.advance(30)
    routing(warnings)
    clock.advance(EXPIRY_MS / 1000 - 1)
    assert len(warnings.listed()) == 1
    clock.advance(1)

    # Counted first: health must not wait until somebody lists the warnings.
    assert set(warnings.counts().values()) == {0}
    assert warnings.listed() == []


def test_an_expired_warning_can_no_longer_be_acknowledged(warnings: Warnings, clock: VirtualClock) -> None:
    routing(warnings)
    (warning,) = warnings.listed()
    clock.advance(EXPIRY_MS / 1000)

    assert warnings.acknowledge(warning.id) is None


def test_the_newest_stands_first_also_within_a_millisecond(warnings: Warnings, clock: VirtualClock) -> None:
    routing(warnings, "a")
    routing(warnings, "b", WarningSeverity.CRITICAL)
    routing(warnings, "c")
    clock.advance(1)
    routing(warnings, "a")

    assert [warning.message for warning in warnings.listed()] == ["a", "c", "b"]


def test_filters_choose_by_every_field(warnings: Warnings, clock: VirtualClock) -> None:
    routing(warnings, "old")
    clock.advance(10)
    warnings.add(WarningCode.CONFIGURATION, WarningSeverity.ERROR, "HttpMediator", "new")
    warnings.acknowledge(warnings.listed()[0].id)

    def found(**wanted: object) -> list[str]:
        return [warning.message for warning in warnings.listed(WarningFilter(**wanted))]  # type: ignore[arg-type]

    assert found() == ["new", "old"]
    assert found(severity=WarningSeverity.ERROR) == ["new"]
    assert found(code=WarningCode.ROUTING) == ["old"]
    assert found(source="HttpMediator") == ["new"]
    assert found(acknowledged=False) == ["old"]
    assert found(since_ms=clock.now_ms()) == ["new"]
    assert found(severity=WarningSeverity.ERROR, acknowledged=False) == []


def test_counts_are_of_what_is_not_acknowledged(warnings: Warnings) -> None:
    routing(warnings, "a")
    routing(warnings, "b")
    warnings.acknowledge(warnings.listed()[0].id)

    assert warnings.counts() == {
        WarningSeverity.INFO: 0,
        WarningSeverity.WARN: 1,
        WarningSeverity.ERROR: 0,
        WarningSeverity.CRITICAL: 0,
    }
    assert warnings.acknowledge_all() == 1
    assert warnings.acknowledge_all() == 0
    assert warnings.acknowledge("nothing") is None


def test_older_ones_can_be_removed(warnings: Warnings, clock: VirtualClock) -> None:
    routing(warnings, "old")
    clock.advance(100)
    routing(warnings, "new", WarningSeverity.CRITICAL)

    assert warnings.remove_older(100_000) == 1
    assert [warning.message for warning in warnings.listed()] == ["new"]


def test_a_full_list_drops_the_oldest_of_the_least_severe(warnings: Warnings) -> None:
    routing(warnings, "the worst", WarningSeverity.CRITICAL)
    for number in range(MAX_WARNINGS + 10):
        routing(warnings, f"flood {number}")

    kept = warnings.listed()
    assert len(kept) == MAX_WARNINGS
    assert kept[-1].message == "the worst"
    assert kept[-2].message == "flood 11"


def test_what_was_dropped_does_not_count_up(warnings: Warnings) -> None:
    for number in range(MAX_WARNINGS + 1):
        routing(warnings, f"flood {number}")
    routing(warnings, "flood 0")

    assert warnings.listed()[0].count == 1
    assert len(warnings.listed()) == MAX_WARNINGS


def test_secrets_are_masked_and_sizes_bounded(warnings: Warnings) -> None:
    routing(warnings, "POST http://me:hunter2@host/ token=abcdef " + "x" * 10_000)

    (warning,) = warnings.listed()
    assert "hunter2" not in warning.message
    assert "abcdef" not in warning.message
    assert len(warning.message) == MAX_MESSAGE_CHARS


def test_each_new_warning_is_logged_with_its_fields(warnings: Warnings, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        routing(warnings, severity=WarningSeverity.CRITICAL)
        routing(warnings, severity=WarningSeverity.CRITICAL)

    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == ("CRITICAL", "no pool P")
    assert (vars(record)["code"], vars(record)["source"]) == ("ROUTING", "QueueManager")


def test_a_code_or_severity_that_does_not_exist_is_refused(warnings: Warnings) -> None:
    with pytest.raises(ValueError, match="NOPE"):
        warnings.add("NOPE", "WARN", "test", "text")
    with pytest.raises(ValueError, match="LOUD"):
        warnings.add("ROUTING", "LOUD", "test", "text")


def test_the_reference_page_has_every_code() -> None:
    documented = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE))

    assert documented == set(WarningCode)
