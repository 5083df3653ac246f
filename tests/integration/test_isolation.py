"""A slow, hanging, rate-limited or failing subscriber delays no other, with default settings (real processes)."""

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.testing.receiver import Ending, RecordingReceiver, Reply
from tests.rigs.dispatch import cloud_event, request
from tests.rigs.penstock_process import Machine

BACKLOG = 600
QUICK = 150
WITHIN_S = 60
TROUBLE = {
    "slow": Reply(delay_s=5),
    "hanging": Reply(ending=Ending.HANG),
    "limited": Reply(),
    "failing": Reply(500),
}


@pytest.fixture(scope="module")
def engine() -> str:
    return "inline"


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
            cloud_event(number, id=f"{kind}-{number}", type=kind, partitionkey=f"k{number % 40}", data=number)
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
        publish(machine, f"{kind}:slow", 0, BACKLOG)
        await troubled.received(1, WITHIN_S)

        publish(machine, f"{kind}:quick", 10_000, QUICK)
        await receiver.received(QUICK, WITHIN_S)

        assert waiting(machine, slow) >= BACKLOG // 2
        api(machine, "DELETE", f"/api/v1/subscriptions/{slow}")
        api(machine, "DELETE", f"/api/v1/subscriptions/{quick_id}")
