"""`penstock up --engine spark`: Spark makes the jobs of events and publishes them."""

import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.receiver import RecordingReceiver
from tests.protocol.test_up import children_of, is_ready
from tests.rigs.penstock_process import Machine, wait_until

pytestmark = pytest.mark.xdist_group("spark")

ORDERS = 5
STEPS = 4
WAIT_S = 180


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with Machine(tmp_path_factory.mktemp("up"), "spark") as made:
        yield made


def queries(machine: Machine) -> dict[str, Any]:
    """What the pipeline says of its streaming jobs, through the API as the web page asks for it."""
    with urllib.request.urlopen(f"{machine.addresses['api']}/api/pipeline") as answer:
        return {query["name"]: query for query in json.load(answer)["queries"]}


def publish_all(machine: Machine, kind: str, first: int) -> None:
    lines = [
        {
            "specversion": "1.0",
            "id": f"{kind}-{order}-{step}",
            "source": "/shop",
            "type": f"{kind}:step",
            "partitionkey": f"order-{order}",
            "data": step,
        }
        for step in range(first, first + STEPS)
        for order in range(ORDERS)
    ]
    request = urllib.request.Request(
        f"{machine.addresses['api']}/api/v1/events",
        json.dumps(lines).encode(),
        {"content-type": "application/cloudevents-batch+json"},
    )
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200


def steps_by_order(receiver: RecordingReceiver) -> dict[str, list[int]]:
    """The steps each order's events came in, repeats left out."""
    found: dict[str, dict[int, None]] = {}
    for request in receiver.requests:
        event = json.loads(request.body)
        found.setdefault(event["partitionkey"], {})[event["data"]] = None
    return {order: list(steps) for order, steps in found.items()}


async def all_steps(receiver: RecordingReceiver, rounds: int) -> dict[str, list[int]]:
    """`steps_by_order` once every step came: a crash may repeat some, so a count of requests says too little."""
    while sum(map(len, steps_by_order(receiver).values())) < rounds * ORDERS * STEPS:
        await receiver.received(len(receiver.requests) + 1, WAIT_S)
    return steps_by_order(receiver)


def in_order(rounds: int) -> dict[str, list[int]]:
    return {f"order-{order}": list(range(rounds * STEPS)) for order in range(ORDERS)}


async def test_events_go_through_spark_in_order(machine: Machine) -> None:
    async with RecordingReceiver() as receiver:
        machine.penstock("subscriptions", "create", "first", "--pattern", "orders:**", "--target", receiver.url)
        publish_all(machine, "orders", 0)
        assert await all_steps(receiver, rounds=1) == in_order(rounds=1)
        # The figure follows when the micro-batch has ended.
        wait_until(lambda: queries(machine)["fan-out"]["rows"] >= ORDERS * STEPS, WAIT_S)


@pytest.mark.long
async def test_events_go_through_spark_in_order_also_across_a_crash_of_spark(machine: Machine) -> None:
    async with RecordingReceiver() as receiver:
        machine.penstock("subscriptions", "create", "second", "--pattern", "refunds:**", "--target", receiver.url)
        publish_all(machine, "refunds", 0)
        await all_steps(receiver, rounds=1)

        os.kill(children_of(machine.pid)[-1], signal.SIGKILL)
        publish_all(machine, "refunds", STEPS)
        wait_until(lambda: is_ready(machine.addresses["pipeline"]), WAIT_S)
        assert await all_steps(receiver, rounds=2) == in_order(rounds=2)


@pytest.mark.parametrize(("engine", "code"), [("auto", 0), ("spark", 1)])
def test_without_java_it_says_so(tmp_path: Path, engine: str, code: int) -> None:
    machine = Machine(tmp_path, engine, settings={"JAVA_HOME": str(tmp_path)})
    machine.launch()
    wait_until(lambda: "ready;" in machine.log() or machine.has_ended, WAIT_S)
    if not machine.has_ended:
        machine.terminate()
    assert machine.wait() == code, machine.log()
    text = machine.log()
    assert "Java 17" in text
    assert ("Spark is not available, using --engine inline" in text) == (engine == "auto")
    assert "Traceback" not in text
