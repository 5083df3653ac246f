import msgspec
import pytest

from penstock.delivery.breakers import BreakerView
from penstock.router.config.sync import SyncState
from penstock.router.monitoring.health import Health, RouterHealthStatus, assess
from penstock.router.monitoring.views import RouterPoolView
from penstock.router.monitoring.warnings import WarningSeverity
from tests.rigs.router_surface import pool_view, queue_view

GOOD = SyncState(initialised=True, consuming=True)


def judged(
    sync: SyncState = GOOD,
    pool: RouterPoolView | None = None,
    breakers: tuple[BreakerView, ...] = (),
    warnings: dict[WarningSeverity, int] | None = None,
) -> Health:
    counts = dict.fromkeys(WarningSeverity, 0) | (warnings or {})
    return assess(sync, [pool or pool_view("P")], [queue_view("q")], breakers, counts)


def test_nothing_wrong_is_healthy() -> None:
    assert judged() == Health(RouterHealthStatus.HEALTHY, ())
    assert judged(warnings={WarningSeverity.WARN: 3, WarningSeverity.INFO: 3}).status is RouterHealthStatus.HEALTHY


@pytest.mark.parametrize(
    ("pool", "reason"),
    [
        (pool_view("P", queued=200), "pool P is full"),
        (msgspec.structs.replace(pool_view("P"), success_rate=0.5), "pool P delivers 50%"),
    ],
)
def test_a_pool_in_trouble_is_a_warning(pool: RouterPoolView, reason: str) -> None:
    assert judged(pool=pool) == Health(RouterHealthStatus.WARNING, (reason,))


def test_a_few_failures_are_not_judged() -> None:
    assert judged(pool=msgspec.structs.replace(pool_view("P"), judged=9, success_rate=0.44)).reasons == ()


@pytest.mark.parametrize("state", ["OPEN", "HALF_OPEN"])
def test_a_breaker_that_is_not_closed_is_a_warning(state: str) -> None:
    breaker = BreakerView("http://h:80/", state, 10, 9, 0.9, 0, 1)

    assert judged(breakers=(breaker,)).reasons == (f"the breaker of http://h:80/ is {state}",)


def test_more_reasons_than_somebody_reads_are_counted() -> None:
    breakers = tuple(BreakerView(f"http://h:80/{number}", "OPEN", 10, 9, 0.9, 0, 1) for number in range(30))

    reasons = judged(breakers=breakers).reasons
    assert (len(reasons), reasons[19:]) == (21, ("the breaker of http://h:80/19 is OPEN", "and 10 more reasons"))


def test_a_failed_sync_and_errors_are_warnings() -> None:
    found = judged(msgspec.structs.replace(GOOD, last_failure="no answer"), warnings={WarningSeverity.ERROR: 2})

    assert found.status is RouterHealthStatus.WARNING
    assert found.reasons == (
        "the last sync failed: no answer",
        "2 warnings of severity ERROR are not acknowledged",
    )


def test_before_the_first_sync_it_is_degraded() -> None:
    assert judged(SyncState()) == Health(
        RouterHealthStatus.DEGRADED, ("the first sync of the configuration is not done",)
    )
