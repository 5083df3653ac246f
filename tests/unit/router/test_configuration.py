import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.errors import InvalidArgument
from penstock.domain.pointer import DEFAULT_POOL_CODE
from penstock.queues.open import QueueSpec
from penstock.router.config.configuration import PoolConfiguration, RouterConfiguration, merge, parse_configuration
from penstock.router.config.plan import plan_pools, plan_queues, worker_share
from penstock.router.monitoring.warnings import WarningSeverity

DOCUMENT = {
    "processingPools": [
        {"code": "P", "concurrency": 10, "rateLimitPerMinute": 600, "addedLater": True},
        {"code": "Q", "concurrency": 1},
    ],
    "queues": [
        {"queueName": "orders", "queueUri": "http://host/orders.fifo", "connections": 2, "visibilityTimeout": 120},
        {"queueName": "other", "queueUri": "nats://host:4222/stream/consumer"},
    ],
    "connections": 7,
}


def pool(code: str, concurrency: int = 1, rate: int | None = None) -> PoolConfiguration:
    return PoolConfiguration(code, concurrency, rate)


def queue(name: str, uri: str = "", connections: int = 1) -> QueueSpec:
    return QueueSpec(name, uri or f"sqlite:///q.db?queue={name}", connections)


def existing_pools(*pools: PoolConfiguration) -> dict[str, PoolConfiguration]:
    return {each.code: each for each in pools}


def problems(document: object) -> str:
    with pytest.raises(InvalidArgument) as refused:
        parse_configuration(document, "https://me:hunter2@host/router.json")
    assert "hunter2" not in refused.value.message
    return refused.value.message


def test_a_configuration_is_read_and_unknown_fields_are_passed_over() -> None:
    found = parse_configuration(DOCUMENT, "test")

    assert found.processing_pools == (pool("P", 10, 600), pool("Q", 1, None))
    assert found.queues[0] == QueueSpec("orders", "http://host/orders.fifo", 2, 120)
    assert found.queues[1] == QueueSpec("other", "nats://host:4222/stream/consumer", 1, None)


def test_it_is_written_as_it_is_read() -> None:
    found = parse_configuration(DOCUMENT, "test")

    assert parse_configuration(msgspec.json.decode(msgspec.json.encode(found)), "test") == found


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "Expected `object`"),
        ({}, "neither processingPools nor queues"),
        ({"pools": []}, "neither processingPools nor queues"),
        ({"processingPools": [{"code": "P"}]}, "concurrency"),
        ({"processingPools": [{"code": "P", "concurrency": "10"}]}, "processingPools[0].concurrency"),
        ({"processingPools": [{"code": "P", "concurrency": 0}]}, "pool 'P': concurrency is 0; give 1 to"),
        ({"processingPools": [{"code": "P", "concurrency": 1, "rateLimitPerMinute": 0}]}, "rateLimitPerMinute is 0"),
        ({"processingPools": [{"code": " ", "concurrency": 1}]}, "a name is 1 to 256 printable characters"),
        ({"processingPools": [{"code": "a\nb", "concurrency": 1}]}, "a name is 1 to 256 printable characters"),
        ({"processingPools": [{"code": "P", "concurrency": 1}] * 2}, "the pool code 'P' is used twice"),
        ({"queues": [{"queueName": "q", "queueUri": "u", "connections": 0}]}, "queue 'q': connections is 0"),
        ({"queues": [{"queueName": "q", "queueUri": "u", "visibilityTimeout": 43_201}]}, "visibilityTimeout is 43201"),
        ({"queues": [{"queueName": "q", "queueUri": ""}]}, "queue 'q': queueUri is empty"),
        ({"queues": [{"queueName": "q", "queueUri": u} for u in "uv"]}, "the queue name 'q' is used twice"),
        ({"queues": [{"queueName": n, "queueUri": "stomp://me:hunter2@h/q"} for n in "ab"]}, "the queue URI"),
    ],
)
def test_what_is_wrong_is_said(document: object, said: str) -> None:
    assert said in problems(document)


def test_every_problem_is_said_at_once() -> None:
    text = problems(
        {
            "processingPools": [{"code": "P", "concurrency": 0}, {"code": "Q", "concurrency": -1}],
            "queues": [{"queueName": "q", "queueUri": "u", "connections": 101}],
        }
    )

    assert all(part in text for part in ("'P'", "'Q'", "'q'"))


def test_of_several_configurations_the_first_wins() -> None:
    first = RouterConfiguration((pool("P", 1),), (queue("a", "one"), queue("b", "two")))
    second = RouterConfiguration((pool("P", 2), pool("Q", 2)), (queue("a", "three"), queue("c", "two"), queue("d")))

    assert merge([first, second]) == RouterConfiguration(
        (pool("P", 1), pool("Q", 2)), (queue("a", "one"), queue("b", "two"), queue("d"))
    )


def test_pools_are_drained_changed_and_made() -> None:
    existing = existing_pools(pool("gone"), pool("same"), pool("changed", 1))
    plan = plan_pools(existing, [pool("same"), pool("changed", 2), pool("new")], 10_000, 5_000)

    assert plan.drain == ("gone",)
    assert plan.change == (pool("changed", 2),)
    assert plan.create == (pool("new"),)
    assert (plan.refused, plan.warnings) == ((), ())


def test_a_changed_rate_limit_is_a_change_and_taking_it_away_too() -> None:
    existing = existing_pools(pool("P", 1, 60), pool("Q", 1, 60))

    assert plan_pools(existing, [pool("P", 1, 120), pool("Q", 1)], 10, 5).change == (pool("P", 1, 120), pool("Q", 1))


def test_the_default_pool_is_not_drained_for_not_being_configured() -> None:
    default = pool(DEFAULT_POOL_CODE, 20)

    assert plan_pools(existing_pools(default), [], 10, 5).drain == ()
    assert plan_pools(existing_pools(default), [pool(DEFAULT_POOL_CODE, 5)], 10, 5).change == (
        pool(DEFAULT_POOL_CODE, 5),
    )


def test_pools_beyond_the_limit_are_refused_with_a_critical_warning() -> None:
    wanted = [pool(f"P{number}") for number in range(5)]
    plan = plan_pools(existing_pools(pool("P0"), pool("gone")), wanted, 3, 3)

    assert plan.create == (pool("P1"), pool("P2"))
    assert plan.refused == (pool("P3"), pool("P4"))
    (warning,) = plan.warnings
    assert warning.severity is WarningSeverity.CRITICAL
    assert "P3, P4" in warning.message
    assert "router.max_pools" in warning.message


@pytest.mark.parametrize(("pools", "warned"), [(5, False), (6, True), (7, True)])
def test_a_pool_made_when_the_threshold_is_reached_warns(pools: int, warned: bool) -> None:
    plan = plan_pools({}, [pool(f"P{number}") for number in range(pools)], 10, 5)

    assert [warning.severity for warning in plan.warnings] == [WarningSeverity.WARN] * warned


def test_a_sync_that_makes_no_pool_does_not_warn_again() -> None:
    pools = [pool(f"P{number}") for number in range(8)]

    assert plan_pools(existing_pools(*pools), pools, 10, 5).warnings == ()


_POOLS = st.lists(
    st.builds(pool, st.sampled_from("ABCDEFGH"), st.integers(1, 3)), unique_by=lambda each: each.code, max_size=8
)


@given(_POOLS, _POOLS, st.integers(1, 8))
def test_carrying_out_a_plan_gives_what_was_wanted_up_to_the_limit(
    existing: list[PoolConfiguration], wanted: list[PoolConfiguration], most: int
) -> None:
    plan = plan_pools(existing_pools(*existing), wanted, most, most)
    after = existing_pools(*existing)
    for code in plan.drain:
        del after[code]
    after |= existing_pools(*plan.change, *plan.create)

    refused = {each.code for each in plan.refused}
    assert after == {each.code: each for each in wanted if each.code not in refused}
    assert not refused or len(after) >= most
    assert len(after) <= max(most, len(existing))
    assert plan_pools(after, wanted, most, most).create == ()


def test_consumers_of_unchanged_queues_are_left_alone() -> None:
    existing = {each.queue_name: each for each in (queue("gone"), queue("same"), queue("moved", "old"))}
    plan = plan_queues(existing, [queue("same"), queue("moved", "new"), queue("added")])

    assert plan.stop == ("gone", "moved")
    assert plan.start == (queue("moved", "new"), queue("added"))


@given(st.integers(1, 1000), st.integers(1, 1000) | st.none(), st.integers(1, 8))
def test_the_limits_of_a_pool_are_shared_out_among_workers(
    concurrency: int, rate_per_minute: int | None, workers: int
) -> None:
    whole = RouterConfiguration((PoolConfiguration("P", concurrency, rate_per_minute),))
    shares = [worker_share(whole, worker, workers, lambda _: True).processing_pools[0] for worker in range(workers)]

    assert sum(share.concurrency for share in shares) == max(concurrency, workers)
    assert max(share.concurrency for share in shares) - min(share.concurrency for share in shares) <= 1
    if rate_per_minute is None:
        assert all(share.rate_limit_per_minute is None for share in shares)
    else:
        assert sum(share.rate_limit_per_minute or 0 for share in shares) == max(rate_per_minute, workers)


def test_a_queue_that_cannot_be_shared_has_one_worker() -> None:
    queues = tuple(QueueSpec(f"q{number}", f"scripted:q{number}") for number in range(20))
    whole = RouterConfiguration((), queues)
    shares = [worker_share(whole, worker, 3, lambda queue: queue.queue_name == "q0").queues for worker in range(3)]

    consumed = [queue.queue_name for share in shares for queue in share]
    assert sorted(consumed) == sorted([queue.queue_name for queue in queues] + ["q0"] * 2)
    assert all(share for share in shares)
