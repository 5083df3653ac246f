from collections.abc import Iterable

import msgspec
import pytest
from prometheus_client.core import Metric

from penstock.delivery.breakers import BreakerView
from penstock.router.monitoring.metrics import (
    MAX_ENDPOINT_LABELS,
    MAX_GROUPED_POOLS,
    MAX_LABELS,
    MAX_TIMED_POOLS,
    OTHER,
    RouterCollector,
)
from penstock.router.monitoring.warnings import Warnings
from penstock.router.pools.counts import SHOWN_GROUP_TIMES, SHOWN_GROUPS, PoolMetrics, RouterMetrics
from penstock.testing.clock import VirtualClock
from tests.rigs.router_surface import FakeRouter, pool_view, queue_view


def collected(router: FakeRouter, metrics: RouterMetrics | None = None) -> dict[str, Metric]:
    collector = RouterCollector(router, metrics or RouterMetrics(), Warnings(VirtualClock()))
    found: Iterable[Metric] = collector.collect()
    return {metric.name: metric for metric in found}


def values(metric: Metric, label: str) -> dict[str, float]:
    return {sample.labels[label]: sample.value for sample in metric.samples}


def test_each_ending_counts_once_and_only_failures_lower_the_success_rate() -> None:
    pool = PoolMetrics()
    assert pool.success_rate == 1.0
    for _ in range(3):
        pool.delivered(0.1, 0.2, "g")
    pool.failed(0.3, 0.2, "g")
    pool.transient(0.1, 0.2, "g")
    pool.deferred(0.1, 0.2, "g")

    assert (pool.succeeded_count, pool.failed_count, pool.transient_count, pool.deferred_count) == (3, 1, 1, 1)
    assert pool.success_rate == 0.75
    assert round(pool.average_processing_ms) == 133
    assert pool.processing.count == pool.waiting.count == 6


def test_the_success_rate_is_that_of_the_last_five_minutes() -> None:
    now_s = 1000.0
    pool = PoolMetrics(lambda: now_s)
    for _ in range(9):
        pool.failed(0.1, 0.0, "g")
    pool.delivered(0.1, 0.0, "g")
    assert (pool.success_rate, pool.judged_count) == (0.1, 10)

    now_s += 270
    pool.delivered(0.1, 0.0, "g")
    assert (pool.success_rate, pool.judged_count) == (2 / 11, 11)
    now_s += 30
    assert (pool.success_rate, pool.judged_count) == (1.0, 1)
    now_s += 600
    assert (pool.success_rate, pool.judged_count, pool.failed_count) == (1.0, 0, 9)


def test_groups_are_shown_of_the_pools_with_the_most_messages() -> None:
    metrics = RouterMetrics()
    for number in range(MAX_GROUPED_POOLS + 10):
        metrics.pool(f"P{number}").submitted(2 if number < MAX_GROUPED_POOLS else 40)
        metrics.pool(f"P{number}").delivered(0.5, 0.1, "g")
    found = collected(FakeRouter(), metrics)

    late = {f"P{MAX_GROUPED_POOLS + number}" for number in range(10)}
    for name in ("delivery", "processing"):
        assert late <= {sample.labels["pool"] for sample in found[f"penstock_router_group_{name}_seconds"].samples}


def test_times_per_group_and_messages_per_group_are_histograms_of_few_groups() -> None:
    router, metrics = FakeRouter(), RouterMetrics()
    for number in range(50):
        for group in range(200):
            metrics.pool(f"P{number}").delivered(0.5 if group == 7 else 0.001, 5.0, f"g{group}")
    found = collected(router, metrics)

    for name, below in (("delivery", "1.0"), ("wait", "10.0")):
        samples = found[f"penstock_router_group_{name}_seconds"].samples
        groups = {(sample.labels["pool"], sample.labels["group"]) for sample in samples}
        assert len(groups) == MAX_TIMED_POOLS * SHOWN_GROUP_TIMES
        slow = {
            sample.labels["le"]: sample.value
            for sample in samples
            if sample.labels.get("le") and (sample.labels["pool"], sample.labels["group"]) == ("P0", "g7")
        }
        assert (slow[below], slow["+Inf"]) == (1, 1)

    sizes = found["penstock_router_pool_group_messages"].samples
    assert {sample.labels["pool"] for sample in sizes} == {group.pool for group in router.groups(None)}
    assert sum(sample.value for sample in sizes if sample.labels.get("le") == "+Inf") == len(router.groups(None))


def test_the_heaviest_groups_are_told_by_the_time_they_took() -> None:
    pool = PoolMetrics()
    for number in range(1_000):
        pool.delivered(0.001, 0.5, f"group-{number}")
        pool.delivered(0.5, 0.001, "slow")

    assert pool.busiest_groups()[0].key == "slow"
    assert pool.most_delayed_groups()[0].key != "slow"
    assert len(pool.busiest_groups()) == SHOWN_GROUPS


@pytest.mark.parametrize("groups", [2, 8, 16, 17, 31, 32])
def test_the_time_of_groups_that_take_turns_is_told_about_right(groups: int) -> None:
    pool = PoolMetrics()
    turns = 1_000
    for _ in range(turns):
        for number in range(groups):
            pool.delivered(0.004 if number == 0 else 0.001, 0.0, f"group-{number}")

    first, *others = pool.busiest_groups()
    assert first.key == "group-0"
    assert first.weight == pytest.approx(turns * 4_000, rel=0.25)
    assert [heavy.weight for heavy in others] == pytest.approx([turns * 1_000] * len(others), rel=0.5)


def test_a_pool_that_is_gone_is_no_longer_told() -> None:
    metrics = RouterMetrics()
    metrics.pool("P").submitted(1)
    metrics.pool("Q").submitted(1)
    metrics.forget("P")

    submitted = collected(FakeRouter(), metrics)["penstock_router_pool_submitted"]
    assert values(submitted, "pool") == {"Q": 1}


def test_ten_thousand_pools_do_not_make_ten_thousand_labels() -> None:
    router, metrics = FakeRouter(), RouterMetrics()
    router.pool_views = [pool_view(f"P{number}") for number in range(10_000)]
    for number in range(10_000):
        metrics.pool(f"P{number}").delivered(0.1, 0.1, "g")
    found = collected(router, metrics)

    queued = values(found["penstock_router_pool_queued"], "pool")
    assert (len(queued), queued["P0"], queued[OTHER]) == (MAX_LABELS + 1, 3, (10_000 - MAX_LABELS) * 3)
    assert values(found["penstock_router_pool_oldest_waiting_seconds"], "pool")[OTHER] == 1.5
    counts = {
        sample.labels["pool"]: sample.value
        for sample in found["penstock_router_pool_processing_seconds"].samples
        if sample.name.endswith("_count")
    }
    assert (len(counts), counts[OTHER]) == (MAX_LABELS + 1, 10_000 - MAX_LABELS)
    assert len(found["penstock_router_group_processing_seconds"].samples) == MAX_GROUPED_POOLS


def test_endpoints_and_queues_beyond_the_limit_are_one() -> None:
    router = FakeRouter()
    router.breaker_views = [BreakerView(f"http://{n}/", "CLOSED", 10, 1, 0.1, None, 2) for n in range(1_000)]
    router.breaker_views[-1] = msgspec.structs.replace(router.breaker_views[-1], state="OPEN")
    router.queue_views = [queue_view(f"q{number}") for number in range(1_000)]
    router.queue_views[-1] = queue_view("q999", healthy=False)
    found = collected(router)

    states = values(found["penstock_router_breaker_state"], "endpoint")
    assert (len(states), states[OTHER]) == (MAX_ENDPOINT_LABELS + 1, 2)
    assert values(found["penstock_router_breaker_rejected"], "endpoint")[OTHER] == (1_000 - MAX_ENDPOINT_LABELS) * 2
    healthy = values(found["penstock_router_queue_healthy"], "queue")
    assert (len(healthy), healthy["q0"], healthy[OTHER]) == (MAX_LABELS + 1, 1, 0)


def test_the_age_of_the_last_poll_is_shown_and_a_queue_that_never_was_polled_has_none() -> None:
    router = FakeRouter()
    router.queue_views = [
        msgspec.structs.replace(queue_view("polled"), last_poll_age_s=7.5),
        msgspec.structs.replace(queue_view("new"), last_poll_age_s=None),
    ]
    ages = values(collected(router)["penstock_router_queue_last_poll_age_seconds"], "queue")
    assert ages == {"polled": 7.5, "new": 0.0}


def test_a_pool_that_drains_while_its_successor_works_is_told_once() -> None:
    router = FakeRouter()
    router.pool_views = [pool_view("P"), pool_view("P", queued=4)]

    assert values(collected(router)["penstock_router_pool_queued"], "pool") == {"P": 7}
