"""`penstock up` as a newcomer uses it: one command, everything answers, Ctrl-C ends it, what dies comes back."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import boto3  # type: ignore[import-untyped]
import psycopg
import pytest
from google.cloud import pubsub_v1  # type: ignore[import-untyped]

from penstock.testing.receiver import RecordingReceiver, Reply
from tests.rigs.penstock_process import (
    PARTS,
    PENSTOCK,
    STOP_S,
    Machine,
    free_ports,
    output_of,
    run_penstock,
    wait_until,
)

SECRET = "whsec_" + "c2VjcmV0IG9mIGEgdGVzdA=="


def is_ready(url: str) -> bool:
    """Whether a part says that it is ready."""
    try:
        with urllib.request.urlopen(f"{url}/health/ready") as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def metrics_of(url: str) -> bytes:
    """What a part tells Prometheus."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        return bytes(answer.read())


def breakers_of(url: str) -> list[str]:
    """The endpoints whose breakers the API shows."""
    with urllib.request.urlopen(f"{url}/api/v1/breakers") as answer:
        return [each["endpoint"] for each in json.load(answer)["circuitBreakers"]]


def children_of(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def arguments_of(pid: int) -> str:
    """The command line of a process, which every user of the machine can read."""
    return Path(f"/proc/{pid}/cmdline").read_text()


# Those that share a machine run in one worker; each uses types of events of its own.
shared = pytest.mark.xdist_group("up shared")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine that is stopped with nothing left over."""
    with Machine(tmp_path_factory.mktemp("up")) as made:
        yield made


@shared
async def test_an_event_reaches_its_subscriber_and_everything_answers(machine: Machine) -> None:
    async with RecordingReceiver() as receiver:
        machine.penstock("subscriptions", "create", "billing", "--pattern", "orders:**", "--target", receiver.url)
        for number in range(3):
            machine.penstock("publish", "orders:placed", "--key", "order-1", "--data", str(number))
        requests = await receiver.received(3, 60)
        # The router sends webhooks itself; the API shows its breakers.
        delivered = b'job_deliveries_total{outcome="DELIVERED"} 3.0'
        await asyncio.to_thread(wait_until, lambda: delivered in metrics_of(machine.addresses["router"]))
        assert breakers_of(machine.addresses["api"]) == [f"{receiver.url}/"]
    assert [b'"data":%d' % number in request.body for number, request in enumerate(requests)] == [True] * 3
    for part in ("sqs", "api", "router"):
        assert is_ready(machine.addresses[part]), part
    assert b"penstock_scheduler_published_total 3.0" in metrics_of(machine.addresses["api"])
    client = boto3.client(
        "sqs",
        endpoint_url=machine.addresses["sqs"],
        region_name="us-east-1",
        aws_access_key_id="anyone",
        aws_secret_access_key="anything",
    )
    assert [url.rpartition("/")[2] for url in client.list_queues()["QueueUrls"]] == [
        "dispatch-billing.fifo",
        "dispatch.fifo",
    ]


@shared
def test_a_listener_prints_what_comes_and_a_publisher_that_waits_says_who_got_it(machine: Machine) -> None:
    command = [str(PENSTOCK), "listen", "0", "--count", "2", "--json", "--secret", SECRET]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout is not None
        url = listener.stdout.readline().removeprefix("listening on ").strip()
        ears = ("ears", "--pattern", "heard:**", "--target", url, "--secret", SECRET)
        machine.penstock("subscriptions", "create", *ears)
        said = [machine.penstock("publish", "heard:it", "--key", "k", "--data", "7", "--wait") for _ in range(2)]
        heard = [json.loads(line) for line in listener.stdout]
    assert listener.returncode == 0
    assert all(re.search(rf"^delivered to ears at {url} in \d+ ms, 1 attempt$", text, re.MULTILINE) for text in said)
    assert [(each["data"], each["signature"], each["order"]) for each in heard] == [(7, "valid", "in order")] * 2


async def test_events_and_jobs_are_in_the_database_that_is_given(tmp_path: Path, postgres_database: str) -> None:
    with Machine(tmp_path, up_options=["--database", postgres_database]) as machine:
        async with RecordingReceiver() as receiver:
            machine.penstock("subscriptions", "create", "billing", "--pattern", "orders:**", "--target", receiver.url)
            machine.penstock("publish", "orders:placed", "--key", "order-1", "--data", "7")
            (request,) = await receiver.received(1, 60)
            # By the router itself, not through the API.
            delivered = b'job_deliveries_total{outcome="DELIVERED"} 1.0'
            await asyncio.to_thread(wait_until, lambda: delivered in metrics_of(machine.addresses["router"]))
        assert b'"data":7' in request.body
        assert jobs_in(postgres_database) == 1
        assert {path.name for path in (tmp_path / "data").glob("*.db")} == {"sqs.db", "pubsub.db"}
        assert not any("postgresql" in arguments_of(pid) for pid in children_of(machine.pid))


def jobs_in(database: str) -> int:
    """How many jobs a database has."""
    with psycopg.connect(database) as connection:
        row = connection.execute("SELECT count(*) FROM penstock_jobs.jobs").fetchone()
    assert row is not None
    return int(row[0])


@shared
async def test_what_is_given_up_goes_to_the_dead_letter_topic(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", machine.addresses["pubsub"])
    topic, name = "projects/penstock/topics/given-up", "projects/penstock/subscriptions/look"
    with pubsub_v1.PublisherClient() as publisher:
        publisher.create_topic(name=topic)
    with pubsub_v1.SubscriberClient() as subscriber:
        subscriber.create_subscription(name=name, topic=topic)
        async with RecordingReceiver(Reply(500)) as receiver:
            options = ("--retry", "0.1", "--dead-letter-topic", "given-up")
            machine.penstock(
                "subscriptions", "create", "s", "--pattern", "refunds:**", "--target", receiver.url, *options
            )
            machine.penstock("publish", "refunds:asked", "--key", "order-1", "--data", "7")
            received = await asyncio.to_thread(pull_one, subscriber, name)
    assert b'"data":7' in received.message.data
    assert "500" in received.message.attributes["penstock-reason"]


def pull_one(subscriber: pubsub_v1.SubscriberClient, subscription: str) -> Any:
    """The next message of a subscription, whenever it comes."""
    found: list[Any] = []

    def pull() -> list[Any]:
        found.extend(subscriber.pull(subscription=subscription, max_messages=1, timeout=60).received_messages)
        return found

    wait_until(pull, STOP_S)
    return found[0]


async def test_with_keys_the_parts_know_each_other_and_strangers_are_refused(
    tmp_path: Path, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, settings = tmp_path / "keys.toml", tmp_path / "settings.toml"
    key = made_key(keys)
    settings.write_text(f'[http]\nhost = "0.0.0.0"\n[api]\nkeys = "{keys}"\n')
    # A setting does what the option does.
    monkeypatch.setenv("PENSTOCK_DATA__DATABASE", postgres_database)
    # With keys, loopback is not for deliveries unless it is allowed.
    monkeypatch.setenv("PENSTOCK_EGRESS__ALLOW", "127.0.0.0/8")
    with Machine(tmp_path, options=("--config", str(settings))) as machine:
        assert [status_for_strangers(machine.addresses[part]) for part in ("api", "router")] == [401, 401]
        monkeypatch.setenv("PENSTOCK_API__TOKEN", key)
        async with RecordingReceiver() as receiver:
            machine.penstock("subscriptions", "create", "billing", "--pattern", "orders:**", "--target", receiver.url)
            machine.penstock("publish", "orders:placed", "--key", "order-1")
            await receiver.received(1, 60)
        assert jobs_in(postgres_database) == 1
        # Long before the router's next sync.
        machine.penstock("pools", "set", "SLOW", "--concurrency", "3")
        wait_until(lambda: concurrency_of(machine, "SLOW", key) == 3, 60)
    assert key not in machine.log()


def made_key(file: Path) -> str:
    """A key with all rights."""
    return output_of("keys", "create", "ann", "--role", "admin", "--file", file).strip()


def status_for_strangers(url: str) -> int:
    """How a part answers someone without a key."""
    with pytest.raises(HTTPError) as refused:
        urllib.request.urlopen(f"{url}/openapi.json")
    refused.value.close()
    return refused.value.code


def concurrency_of(machine: Machine, pool: str, key: str) -> int | None:
    """How many deliveries the router makes at once in a pool, as the API's gateway tells it."""
    url = f"{machine.addresses['api']}/api/router/monitoring/pools"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request) as answer:
        return next((each["concurrency"] for each in json.load(answer)["pools"] if each["code"] == pool), None)


@shared
def test_a_part_that_dies_is_started_again_where_it_was(machine: Machine) -> None:
    router = machine.addresses["router"]
    wait_until(lambda: is_ready(router), 60)
    (victim,) = (pid for pid in children_of(machine.pid) if "\0serve\0router\0" in arguments_of(pid))
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: "router ended with code -9; starting it again" in machine.log())
    wait_until(lambda: is_ready(router))


def test_ctrl_c_while_it_starts_stops_it_without_starting_the_rest(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.launch()
    wait_until(lambda: machine.log().startswith("starting sqs, "), 60)
    machine.terminate()
    code, out = machine.finish()
    assert (code, out) == (0, ""), machine.log()
    assert "api is ready" not in machine.log()


def test_when_it_is_killed_its_parts_end_too(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.start()
    parts = children_of(machine.pid)
    assert len(parts) == len(PARTS)
    machine.send(signal.SIGKILL)
    assert machine.wait() == -signal.SIGKILL
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in parts), STOP_S)


def test_without_keys_other_machines_are_not_let_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_HTTP__HOST", "0.0.0.0")
    (error,) = errors_of("--data", str(tmp_path), *free_ports())
    assert error.startswith("error: api did not start: will not listen on 0.0.0.0")


def test_a_data_directory_that_is_none_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (error,) = errors_of("--data", str(tmp_path / "file"))
    assert f"{tmp_path / 'file'} is not a directory; " in error
    assert "give --data" in error


@shared
def test_a_taken_directory_is_told_in_one_sentence(machine: Machine) -> None:
    (error,) = errors_of("--data", str(machine.data), *free_ports())
    assert re.search(r"is locked by process \d+: stop it, or use another data directory", error)


def test_a_taken_port_is_reported_with_what_to_change(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        (error,) = errors_of("--data", str(tmp_path), *free_ports(**{"--pubsub": port}))
    assert error.startswith(f"error: pubsub did not start: port {port} on 127.0.0.1 is in use by another program; ")
    assert "choose another port with --pubsub PORT or the setting ports.pubsub (0 takes a free one)" in error


def errors_of(*options: str) -> list[str]:
    """What `penstock up` says when it cannot start."""
    refused = run_penstock("up", "--engine", "inline", *options)
    assert refused.returncode == 1
    return [line for line in refused.stderr.splitlines() if line.startswith("error: ")]
