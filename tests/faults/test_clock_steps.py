"""The machine's clock is set while everything runs: deliveries, retries and leases go on as if it were not."""

import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from penstock.testing.receiver import RecordingReceiver, Reply
from tests.protocol.pubsub_rig import Rig, bodies
from tests.rigs.dispatch import cloud_event, request
from tests.rigs.penstock_process import Machine
from tests.rigs.set_clock import SetClock
from tests.services import sqs_server
from tests.services.pubsub_server import PubsubServer, clients_of


@pytest.fixture
def clock(tmp_path: Path) -> SetClock:
    return SetClock(tmp_path / "clock")


@pytest.mark.long
@pytest.mark.parametrize("steps_s", [(-600,), (3600, 0)], ids=["back", "ahead and back"])
async def test_retries_go_on_when_the_clock_is_set(tmp_path: Path, clock: SetClock, steps_s: tuple[int, ...]) -> None:
    with Machine(tmp_path, settings=clock.settings) as machine:
        async with RecordingReceiver(Reply(500)) as receiver:
            options = ("--retry", ",".join(["1"] * 20))
            machine.penstock("subscriptions", "create", "s", "--pattern", "t:**", "--target", receiver.url, *options)
            machine.penstock("publish", "t:one", "--key", "k")
            seen = len(await receiver.received(1, 60))
            for step_s in steps_s:
                clock.step(step_s)
                seen = len(await receiver.received(seen + 2, 30))
            receiver.script(*[Reply(200)] * 10)
            machine.penstock("publish", "t:two", "--key", "other")
            await receiver.received(seen + 2, 30)


@pytest.mark.long
def test_sqs_keeps_leases_and_delays_when_the_clock_is_set(tmp_path: Path, clock: SetClock) -> None:
    with sqs_server.running(tmp_path, "--memory", environment=clock.settings) as server:
        url = server.anyone.create_queue(QueueName="q")["QueueUrl"]

        def leased(body: str, for_s: int) -> Any:
            server.anyone.send_message(QueueUrl=url, MessageBody=body)
            (message,) = sqs_server.receive(server.anyone, url, VisibilityTimeout=for_s, WaitTimeSeconds=20)
            assert message["Body"] == body
            return message["ReceiptHandle"]

        held = leased("held", 600)
        clock.step(3600)
        assert sqs_server.receive(server.anyone, url, WaitTimeSeconds=1) == []
        server.anyone.delete_message(QueueUrl=url, ReceiptHandle=held)
        for step_s in (0, -600, 3600):
            clock.step(step_s)
            leased(f"returned {step_s}", 1)
            server.anyone.send_message(QueueUrl=url, MessageBody=f"delayed {step_s}", DelaySeconds=2)
            returned = sqs_server.drain(server.anyone, url, 2)
            assert sorted(sqs_server.bodies(returned)) == [f"delayed {step_s}", f"returned {step_s}"]


@pytest.mark.long
def test_pubsub_keeps_ack_deadlines_when_the_clock_is_set(tmp_path: Path, clock: SetClock) -> None:
    with patch.dict(os.environ, clock.settings):
        server = PubsubServer(tmp_path, "--memory")
    with server, clients_of(server) as clients, ExitStack() as clean_up:
        rig = Rig(clients, clean_up)
        topic = rig.topic()
        subscription = rig.subscription(topic, ack_deadline_seconds=600)
        rig.publish(topic, "held")
        held = rig.pull(subscription, 1, ack=False)
        clock.step(3600)
        assert rig.is_empty(subscription)
        rig.ack(subscription, held)
        for step_s in (0, -600, 3600):
            clock.step(step_s)
            rig.publish(topic, f"returned {step_s}")
            rig.deadline(subscription, rig.pull(subscription, 1, ack=False), 1)
            assert bodies(rig.pull(subscription, 1)) == [f"returned {step_s}"]


@pytest.mark.long
async def test_rate_limits_and_breakers_go_on_when_the_clock_is_set(tmp_path: Path, clock: SetClock) -> None:
    with Machine(tmp_path, settings=clock.settings) as machine:
        async with RecordingReceiver(Reply(500)) as failing, RecordingReceiver() as limited:
            machine.penstock("pools", "set", "limited", "--concurrency", "5", "--rate", "60")
            create = ("subscriptions", "create")
            machine.penstock(*create, "limited", "--pattern", "l:*", "--target", limited.url)
            retries = ("--retry", ",".join(["1"] * 50))
            machine.penstock(*create, "failing", "--pattern", "f:*", "--target", failing.url, *retries)
            keyed = [cloud_event(number, type="f:one", partitionkey=f"k{number}") for number in range(20)]
            assert request(machine.url, "POST", "/api/v1/events", keyed).status == 200
            # Ten failures open its breaker.
            seen = len(await failing.received(10, 60))
            for step_s in (-600, 3600, 0):
                clock.step(step_s)
                machine.penstock("publish", "l:one", "--key", f"k{step_s}")
                await limited.received(len(limited.requests) + 1, 30)
                # It is tried again every few seconds.
                seen = len(await failing.received(seen + 2, 60))


@pytest.mark.long
async def test_order_and_due_times_survive_a_clock_that_is_set_back_between_two_starts(
    tmp_path: Path, clock: SetClock
) -> None:
    clock.step(3600)
    machine = Machine(tmp_path, settings=clock.settings)
    async with RecordingReceiver(Reply(500)) as receiver:
        with machine:
            options = ("--retry", ",".join(["1"] * 50))
            machine.penstock("subscriptions", "create", "s", "--pattern", "t:**", "--target", receiver.url, *options)
            machine.penstock("publish", "t:first", "--key", "k")
            await receiver.received(1, 60)
            machine.kill()
            clock.step(0)
            machine.start()
            machine.penstock("publish", "t:second", "--key", "k")
            await receiver.received(len(receiver.requests) + 2, 60)
            receiver.script(*[Reply(200)] * 10)
            types: list[str] = []
            while "t:second" not in types:
                requests = await receiver.received(len(types) + 1, 60)
                types = [json.loads(request.body)["type"] for request in requests]
    assert set(types[:-1]) == {"t:first"}
