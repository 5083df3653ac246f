"""A backup of everything on one machine, while it runs: the copy knows what the original knew."""

import json
from pathlib import Path

import pytest

from penstock.client import Event, Penstock
from tests.rigs.penstock_process import ApiProcess, Machine, output_of

pytestmark = pytest.mark.xdist_group("up")


def penstock(*arguments: str | Path) -> list[str]:
    """The names of the files that a command tells of."""
    return [file["name"] for file in json.loads(output_of(*arguments, "--json"))]


def test_a_restored_api_has_subscriptions_events_and_the_secret(machine: Machine, tmp_path: Path) -> None:
    original, file, copy = machine.data, tmp_path / "all.tar.gz", tmp_path / "data"
    with Penstock(machine.addresses["api"]) as api:
        made = api.subscribe("archive", "archive:*", "http://127.0.0.1:9/").subscription
        event = Event(type="archive:made", key="1")
        receipt = api.publish(event)

    names = penstock("backup", "--data", original, "--to", file)
    assert penstock("restore", "--from", file, "--data", copy) == names
    with Penstock(machine.addresses["api"]) as api:
        api.unsubscribe(made.id)

    assert names == ["jobs.db", "pubsub.db", "sqs.db", "dispatch.secret"]
    assert (copy / "dispatch.secret").read_bytes() == (original / "dispatch.secret").read_bytes()
    with ApiProcess(tmp_path) as server, Penstock(server.url) as api:
        assert api.subscription(made.id) == made
        assert api.publish(event).id == receipt.id
        assert [job.event_id for job in api.jobs(subscription_id=made.id)] == [receipt.id]
