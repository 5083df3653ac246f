"""A delivery never reaches a part of Penstock itself, and with keys the parts ask for credentials."""

import json
import re
import socket
import urllib.request
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote

import boto3  # type: ignore[import-untyped]
import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from penstock.delivery.egress import EgressGuard, is_this_machine
from penstock.delivery.errors import EgressRefused
from penstock.edge import own_ports
from penstock.testing.receiver import RecordingReceiver
from tests.rigs.penstock_process import Machine, descendants, output_of, wait_until

LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"), ip_network("::ffff:0:0/96"), ip_network("0.0.0.0/8"))
shared = pytest.mark.xdist_group("own parts")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "0.0.0.0", "localhost"])
async def test_a_port_that_is_closed_stays_closed_whatever_is_allowed(host: str) -> None:
    guard = EgressGuard(LOOPBACK, deny_ports=(9324,))
    try:
        with pytest.raises(EgressRefused, match="port 9324 of this machine is closed to deliveries; no setting opens"):
            await guard.addresses(host, 9324)
        assert await guard.addresses("127.0.0.1", 9325)
    finally:
        guard.close()


async def test_a_port_of_another_machine_is_not_closed() -> None:
    guard = EgressGuard(deny_ports=(443,))
    try:
        assert await guard.addresses("8.8.8.8", 443) == [("8.8.8.8", 443)]
    finally:
        guard.close()


async def test_the_ports_that_a_process_serves_are_closed_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_ports, "_ports", set())
    guard = EgressGuard(LOOPBACK)
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port)) as connected:
                guard.check_peer(connected)
                own_ports.serve_port(port)
                with pytest.raises(EgressRefused, match="closed to deliveries"):
                    guard.check_peer(connected)
    finally:
        guard.close()


def test_the_addresses_of_a_network_card_are_those_of_this_machine() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no network")
        assert is_this_machine((probe.getsockname()[0], 80))
    assert not is_this_machine(("192.0.2.1", 80))


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine without keys, whose deliveries may go to loopback."""
    with Machine(tmp_path_factory.mktemp("own-parts")) as made:
        yield made


@shared
def test_the_data_are_for_their_owner_alone(machine: Machine) -> None:
    modes = {path.name: path.stat().st_mode & 0o777 for path in machine.data.rglob("*.*")}
    assert {"jobs.db", "sqs.db", "pubsub.db", "dispatch.secret"} <= modes.keys()
    assert machine.data.stat().st_mode & 0o777 == 0o700
    assert set(modes.values()) == {0o600}, modes


def call(url: str, body: object = None, key: str = "") -> Any:
    """The JSON that an API answers."""
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
    content = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, content, headers)) as answer:
        return json.load(answer)


def sqs(url: str, access_key: str = "anyone", secret: str = "anything") -> Any:
    """A client of the SQS server."""
    return boto3.client(
        "sqs",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=access_key,
        aws_secret_access_key=secret,
    )


def names_of(client: Any) -> list[str]:
    """The queues that a client sees."""
    return [url.rpartition("/")[2] for url in client.list_queues().get("QueueUrls", [])]


@shared
def test_no_job_reaches_a_part_of_up(machine: Machine) -> None:
    queue = f"{machine.addresses['sqs']}/000000000000/dispatch.fifo"
    attack = f"{machine.addresses['sqs']}/?Action=DeleteQueue&Version=2012-11-05&QueueUrl={quote(queue, safe='')}"
    local = attack.replace("127.0.0.1", "localhost", 1)
    others = [f"{machine.addresses[part]}/" for part in ("api", "router")] + [f"http://{machine.addresses['pubsub']}/"]
    jobs = f"{machine.url}/api/v1/jobs"
    made = [
        call(jobs, {"type": "attack", "group": str(number), "target": target})["id"]
        for number, target in enumerate((attack, local, *others))
    ]

    def last_errors() -> list[str | None]:
        return [call(f"{jobs}/{job}")["lastError"] for job in made]

    wait_until(lambda: all(last_errors()))
    assert all("of this machine is closed to deliveries" in str(error) for error in last_errors()), last_errors()
    assert "dispatch.fifo" in names_of(sqs(machine.addresses["sqs"]))
    call(f"{jobs}/cancel", {"ids": made})


@shared
async def test_a_dispatch_queue_that_was_deleted_is_created_again(machine: Machine) -> None:
    client = sqs(machine.addresses["sqs"])
    async with RecordingReceiver() as receiver:
        machine.penstock("subscriptions", "create", "late", "--pattern", "late:**", "--target", receiver.url)
        client.delete_queue(QueueUrl=f"{machine.addresses['sqs']}/000000000000/dispatch.fifo")
        machine.penstock("publish", "late:one", "--key", "k")
        await receiver.received(1, 60)
    wait_until(lambda: "dispatch.fifo" in names_of(client))


def test_with_keys_nothing_inside_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a publisher's key could do before: list, purge and delete the queues, through a job with its own target."""
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    file, users = tmp_path / "keys.toml", tmp_path / "users.toml"
    admin, publisher = (
        output_of("keys", "create", role, "--role", role, "--file", file).strip() for role in ("admin", "publisher")
    )
    users.write_text('[[key]]\naccess_key = "me"\nsecret = "sixteen letters or more"\nrole = "client"\n')
    settings = {"PENSTOCK_API__KEYS": str(file), "PENSTOCK_SQS__CREDENTIALS": str(users)}
    with Machine(tmp_path, settings=settings) as machine:
        with pytest.raises(ClientError, match=r"InvalidClientTokenId|AccessDenied|SignatureDoesNotMatch"):
            names_of(sqs(machine.addresses["sqs"]))
        assert names_of(sqs(machine.addresses["sqs"], "me", "sixteen letters or more")) == ["dispatch.fifo"]
        # The web page's gateway signs with the key of the parts.
        assert call(f"{machine.url}/api/queues", key=admin)
        jobs = f"{machine.url}/api/v1/jobs"
        with pytest.raises(HTTPError) as refused:
            call(jobs, {"type": "attack", "target": "http://127.0.0.1:1/"}, publisher)
        with refused.value as answer:
            assert (answer.code, b"requires the role admin" in answer.read()) == (403, True)
        # Loopback is closed: other programs of the machine are not for deliveries.
        job = call(jobs, {"type": "t", "target": "http://127.0.0.1:1/"}, admin)["id"]
        wait_until(lambda: call(f"{jobs}/{job}", key=admin)["lastError"])
        assert "is loopback" in call(f"{jobs}/{job}", key=admin)["lastError"]
        subscription = {"name": "s", "pattern": "s:**", "target": "http://127.0.0.1:1/"}
        made = call(f"{machine.url}/api/v1/subscriptions", subscription, admin)["subscription"]["id"]
        assert call(jobs, {"type": "t", "subscriptionId": made}, publisher)["id"]
        for pid in descendants(machine.pid):
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode()
            # Those of the parts are random: whatever looks like one, or belongs to a key, is not there.
            assert not re.search(r"[0-9a-f]{64}|penstock-parts|sixteen letters|token|://[^/]*@", arguments), arguments
    assert "penstock-parts" not in machine.log()
