"""Nodes on machines whose clocks are set differently: leases, delays and hops go by the clock of the database."""

import asyncio
import json
from pathlib import Path

import pytest

from penstock.testing.receiver import RecordingReceiver
from tests.cluster.rig import ClusterNode
from tests.cluster.test_whole_nodes import NodeMachine
from tests.rigs.penstock_process import wait_until
from tests.rigs.set_clock import SetClock


@pytest.mark.long
def test_a_take_over_by_a_machine_whose_clock_is_ahead_ends_no_lease(tmp_path: Path, postgres_database: str) -> None:
    clock = SetClock(tmp_path / "clock")
    clock.step(3600)
    first = ClusterNode(tmp_path, "first", postgres_database)
    ahead = ClusterNode(tmp_path, "ahead", postgres_database, settings=clock.settings)
    try:
        for node in (first, ahead):
            node.start()
            wait_until(lambda: first.owner() == "first")
        # Each passes requests on to the other, whose clock differs by more than a signature may be old.
        url = ahead.anyone.create_queue(QueueName="q")["QueueUrl"]
        for body in ("held", "later"):
            first.anyone.send_message(QueueUrl=url, MessageBody=body)
        (held,) = ahead.anyone.receive_message(QueueUrl=url, VisibilityTimeout=600)["Messages"]
        (brief,) = ahead.anyone.receive_message(QueueUrl=url, VisibilityTimeout=1)["Messages"]
        first.kill()
        wait_until(lambda: ahead.owner() == "ahead")
        (again,) = ahead.anyone.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]
        assert again["Body"] == brief["Body"]
        ahead.anyone.delete_message(QueueUrl=url, ReceiptHandle=again["ReceiptHandle"])
        clock.step(-3600)
        assert ahead.anyone.receive_message(QueueUrl=url).get("Messages") is None
        first.start()
        assert ahead.stop() == 0
        # The other way round: it does not stay hidden for an hour longer, nor shorter.
        assert first.anyone.receive_message(QueueUrl=url).get("Messages") is None
        first.anyone.change_message_visibility(QueueUrl=url, ReceiptHandle=held["ReceiptHandle"], VisibilityTimeout=1)
        (again,) = first.anyone.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]
        assert again["Body"] == held["Body"]
    finally:
        for node in (first, ahead):
            if node.process is not None:
                node.kill()


@pytest.mark.long
async def test_events_of_a_key_keep_their_order_whichever_machine_accepts_them(
    tmp_path: Path, postgres_database: str
) -> None:
    clock = SetClock(tmp_path / "clock")
    clock.step(3600)
    first = NodeMachine(tmp_path, "first", postgres_database)
    ahead = NodeMachine(tmp_path, "ahead", postgres_database, clock.settings)
    try:
        for machine in (first, ahead):
            await asyncio.to_thread(machine.start)
        async with RecordingReceiver() as receiver:
            first.penstock("subscriptions", "create", "billing", "--pattern", "orders:**", "--target", receiver.url)
            for number in range(6):
                await asyncio.to_thread((ahead, first)[number % 2].publish, number)
            requests = await receiver.received(6, 90)
    finally:
        for machine in (first, ahead):
            if machine.process is not None:
                machine.kill()
    numbers = [json.loads(request.body)["data"] for request in requests]
    assert list(dict.fromkeys(numbers)) == list(range(6))
