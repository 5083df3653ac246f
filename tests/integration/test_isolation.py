"""A slow, hanging, rate-limited or failing subscriber delays no other, with default settings (real processes)."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.receiver import Ending, RecordingReceiver, Reply
from tests.rigs.dispatch import cloud_event, request
from tests.rigs.penstock_process import Machine

BACKLOG = 600
QUICK = 150
KEYS = 40
WITHIN_S = 60
TROUBLE = {
    "slow": Reply(delay_s=5),
    "hanging": Reply(ending=Ending.HANG),
    "limited": Reply(),
    "failing": Reply(500),
}


@pytest.fixture(scope="module", params=["inline", pytest.param("spark", marks=pytest.mark.long)])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, engine: str) -> Iterator[Machine]:
    with Machine(tmp_path_factory.mktemp("up"), engine) as made:
        yield made


def api(machine: Machine, method: str, path: str, body: Any = None) -> Any:
    """What the API answers."""
    answer = request(machine.addresses["api"], method, path, body)
    assert answer.status == 200, answer
    return answer.body


def publish(machine: Machine, kind: str, first: int, count: int) -> None:
    """Publish events of some keys."""
    for start in range(first, first + count, 200):
        numbers = range(start, min(start + 200, first + count))
        events = [
            cloud_event(number, id=f"{kind}-{number}", type=kind, partitionkey=f"k{number % KEYS}", data=number)
            for number in numbers
        ]
        api(machine, "POST", "/api/v1/events", events)


def waiting(machine: Machine, subscription_id: str) -> int:
    """Return how many jobs of a subscription are not finished, up to 1,000."""
    found = 0
    for status in ("PENDING", "QUEUED", "PROCESSING"):
        path = f"/api/v1/jobs?subscriptionId={subscription_id}&status={status}&limit=1000"
        found += len(api(machine, "GET", path)["jobs"])
    return found


@pytest.mark.parametrize("shared", [False, True], ids=["own-pools", "shared-pool"])
@pytest.mark.parametrize("trouble", TROUBLE)
async def test_a_quick_subscriber_gets_all_its_events_while_anothers_backlog_stands(
    machine: Machine, trouble: str, shared: bool
) -> None:
    kind = f"{trouble}:{'shared' if shared else 'own'}"
    name = kind.replace(":", "-")
    pool = {"pool": f"pool-{name}"} if shared else {}
    async with RecordingReceiver(TROUBLE[trouble]) as troubled, RecordingReceiver() as receiver:
        if trouble == "limited":
            limits = {"concurrency": 10, "rateLimitPerMinute": 60}
            # Alone in its pool; in a shared one the limit is for all.
            api(machine, "PUT", f"/api/v1/pools/{name}-slow", limits)
        slow = api(
            machine,
            "POST",
            "/api/v1/subscriptions",
            {
                "name": f"{name}-slow",
                "pattern": f"{kind}:slow",
                "target": troubled.url,
                **({} if trouble == "limited" else pool),
            },
        )["subscription"]["id"]
        quick = {"name": f"{name}-quick", "pattern": f"{kind}:quick", "target": receiver.url, **pool}
        quick_id = api(machine, "POST", "/api/v1/subscriptions", quick)["subscription"]["id"]
        # So that the router knows that the pool is shared before the first message comes.
        assert request(machine.addresses["router"], "POST", "/config/reload").status == 200
        publish(machine, f"{kind}:slow", 0, BACKLOG)
        await troubled.received(1, WITHIN_S)

        publish(machine, f"{kind}:quick", 10_000, QUICK)
        await receiver.received(QUICK, WITHIN_S)

        assert waiting(machine, slow) >= BACKLOG // 2
        api(machine, "DELETE", f"/api/v1/subscriptions/{slow}")
        api(machine, "DELETE", f"/api/v1/subscriptions/{quick_id}")


# What changes while it runs loses and reorders nothing


def subscribe(machine: Machine, name: str, target: str, **more: Any) -> str:
    """Create a subscription to events of its name, and return its id."""
    body = {"name": name, "pattern": name, "target": target, **more}
    return str(api(machine, "POST", "/api/v1/subscriptions", body)["subscription"]["id"])


async def all_received(receiver: RecordingReceiver, count: int) -> None:
    """Wait until this many different events came; some may come twice."""
    async with asyncio.timeout(2 * WITHIN_S):
        while (missing := count - len({each.body for each in receiver.requests})) > 0:
            await receiver.received(len(receiver.requests) + missing, 2 * WITHIN_S)


def assert_in_order(receiver: RecordingReceiver, count: int) -> None:
    """Check that all events came, and those of each key in the order of their numbers, repeats left out."""
    of_key: dict[int, list[int]] = {}
    for each in receiver.requests:
        number = json.loads(each.body)["data"]
        of_key.setdefault(number % KEYS, []).append(number)
    for key, numbers in of_key.items():
        assert list(dict.fromkeys(numbers)) == list(range(key, count, KEYS))
    assert len(of_key) == KEYS


async def test_a_subscription_whose_pool_changes_loses_and_reorders_nothing(machine: Machine) -> None:
    async with RecordingReceiver(Reply(delay_s=0.05)) as receiver:
        changed = f"/api/v1/subscriptions/{subscribe(machine, 'moving', receiver.url)}"
        published = 0
        for pool in ("narrow", "wide", None, "narrow", None):
            publish(machine, "moving", published, QUICK)
            published += QUICK
            await receiver.received(published - QUICK // 2, WITHIN_S)
            if pool is not None:
                api(machine, "PUT", f"/api/v1/pools/{pool}", {"concurrency": 2 if pool == "narrow" else 50})
            api(machine, "PATCH", changed, {"pool": pool})
        publish(machine, "moving", published, QUICK)
        published += QUICK
        await all_received(receiver, published)

        assert_in_order(receiver, published)
        api(machine, "DELETE", changed)


async def test_a_pool_that_is_deleted_loses_and_reorders_nothing(machine: Machine) -> None:
    async with RecordingReceiver(Reply(delay_s=0.05)) as receiver:
        api(machine, "PUT", "/api/v1/pools/brief", {"concurrency": 3})
        changed = f"/api/v1/subscriptions/{subscribe(machine, 'leaving', receiver.url, pool='brief')}"
        publish(machine, "leaving", 0, QUICK)
        await receiver.received(QUICK // 3, WITHIN_S)
        api(machine, "DELETE", "/api/v1/pools/brief")
        publish(machine, "leaving", QUICK, QUICK)
        # No subscription names the pool any more, but its queue has messages.
        api(machine, "PATCH", changed, {"pool": None})
        publish(machine, "leaving", 2 * QUICK, QUICK)
        await all_received(receiver, 3 * QUICK)

        assert_in_order(receiver, 3 * QUICK)
        api(machine, "DELETE", changed)


@pytest.mark.long
async def test_an_installation_with_one_full_queue_is_upgraded_to_queues_of_pools(tmp_path: Path, engine: str) -> None:
    before = Machine(tmp_path, engine, settings={"PENSTOCK_SCHEDULER__QUEUE_PER_POOL": "false"})
    async with RecordingReceiver(Reply(delay_s=0.2)) as first, RecordingReceiver(Reply(delay_s=0.2)) as second:
        with before:
            subscribe(before, "first", first.url)
            subscribe(before, "second", second.url)
            for kind in ("first", "second"):
                publish(before, kind, 0, QUICK)
            await first.received(QUICK // 5, WITHIN_S)
            await second.received(QUICK // 5, WITHIN_S)
            # In a thread, so that the receivers here answer what it still delivers.
            assert await asyncio.to_thread(before.stop) == 0
        with Machine(tmp_path, engine) as after:
            for kind in ("first", "second"):
                publish(after, kind, QUICK, QUICK)
            await all_received(first, 2 * QUICK)
            await all_received(second, 2 * QUICK)
        assert_in_order(first, 2 * QUICK)
        assert_in_order(second, 2 * QUICK)


def counted(machine: Machine, name: str) -> float:
    """Return a number among the router's metrics, 0 if it is not there yet."""
    answer = request(machine.addresses["router"], "GET", "/metrics")
    lines = answer.body.decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def held_back(machine: Machine) -> float:
    """Return how many messages came to be delivered and had to wait for an earlier one of their key."""
    return counted(machine, 'penstock_job_pointers_without_delivery_total{reason="HELD_BACK"}')


async def test_many_dead_endpoints_are_not_asked_for_each_of_their_events(machine: Machine) -> None:
    name = 'penstock_job_deliveries_total{outcome="DEFERRED"}'
    async with AsyncExitStack() as stack, RecordingReceiver() as receiver:
        dead = [await stack.enter_async_context(RecordingReceiver(Reply(500))) for _ in range(5)]
        made = [subscribe(machine, f"dead-{number}", each.url) for number, each in enumerate(dead)]
        made.append(subscribe(machine, "beside-dead", receiver.url))
        before = counted(machine, name)
        for number in range(len(dead)):
            # Each event has a key of its own, so that none waits for another.
            kind = f"dead-{number}"
            events = [
                cloud_event(each, id=f"{kind}-{each}", type=kind, partitionkey=f"k{each}") for each in range(QUICK)
            ]
            api(machine, "POST", "/api/v1/events", events)
        # Ten calls open a breaker, which then lets probes through again and again.
        for each in dead:
            await each.received(13, WITHIN_S)
        publish(machine, "beside-dead", 0, QUICK)
        await receiver.received(QUICK, WITHIN_S)

        assert 0 < counted(machine, name) - before < len(dead) * QUICK / 2
        for subscription in made:
            api(machine, "DELETE", f"/api/v1/subscriptions/{subscription}")


async def test_those_behind_a_failing_one_are_not_carried_through_the_queue(machine: Machine) -> None:
    tries = 4
    async with RecordingReceiver() as receiver:
        receiver.script(*[Reply(500)] * tries)
        changed = f"/api/v1/subscriptions/{subscribe(machine, 'deep', receiver.url, retryDelaysS=[1] * tries)}"
        before = held_back(machine)
        events = [
            cloud_event(number, id=f"d{number}", type="deep", partitionkey="k", data=number) for number in range(900)
        ]
        api(machine, "POST", "/api/v1/events", events)
        await receiver.received(tries, WITHIN_S)
        assert 0 < held_back(machine) - before < 30
        await all_received(receiver, len(events))

        numbers = [json.loads(each.body)["data"] for each in receiver.requests]
        assert list(dict.fromkeys(numbers)) == list(range(len(events)))
        api(machine, "DELETE", changed)
