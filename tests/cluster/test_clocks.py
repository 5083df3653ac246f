"""Nodes on machines whose clocks are set differently: leases, delays and hops go by the clock of the database."""

from pathlib import Path

import pytest

from tests.cluster.rig import ClusterNode
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
