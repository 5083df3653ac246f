"""The examples as a reader runs them, against one real `penstock up`."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from penstock.client import Event, Penstock
from tests.rigs.penstock_process import Machine, wait_until
from tests.services.server_process import free_port

pytestmark = pytest.mark.xdist_group("up")

EXAMPLES = Path(__file__).parents[2] / "examples"
WAIT_S = 60
IN_ORDER = ["placed", "paid", "packed"]
RECEIVERS = [
    ("receive_plain.py", "http.server"),
    ("receive_flask.py", "flask"),
    ("receive_fastapi.py", "fastapi"),
]


def run(name: str, **environment: str) -> list[str]:
    """The lines that an example prints."""
    command = [sys.executable, str(EXAMPLES / name)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=WAIT_S, env={**os.environ, **environment}, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@contextmanager
def listening(name: str, port: int, secret: str, log: Path) -> Iterator[None]:
    """A receiver, once it takes connections."""
    environment = {**os.environ, "WEBHOOK_SECRET": secret, "PORT": str(port)}
    with (
        log.open("w") as output,
        subprocess.Popen(
            [sys.executable, str(EXAMPLES / name)], stdout=output, stderr=subprocess.STDOUT, env=environment
        ) as process,
    ):
        try:
            wait_until(lambda: process.poll() is not None or accepts(port), WAIT_S)
            assert process.poll() is None, log.read_text()
            yield
        finally:
            process.kill()


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(("name", "framework"), RECEIVERS)
def test_a_receiver_takes_events_in_order_and_refuses_forgeries(
    machine: Machine, tmp_path: Path, name: str, framework: str
) -> None:
    if find_spec(framework) is None:
        pytest.skip(f"{framework} is not a dependency and is not installed; {name} is compiled only")
    port, log = free_port(), tmp_path / "receiver.log"
    with Penstock(machine.addresses["api"]) as penstock:
        made = penstock.subscribe(framework, "orders:**", f"http://127.0.0.1:{port}/webhooks")
        with listening(name, port, made.secret, log):
            # The ids are the same in every run of the example; an own source makes these events new.
            events = [
                Event(type=f"orders:{step}", key="order-1", source=f"/{framework}", id=step, data={"order": 1})
                for step in IN_ORDER
            ]
            penstock.publish_all(events)
            wait_until(lambda: "orders:packed" in log.read_text(), WAIT_S)
            assert status_of_forgery(port) == 401
        penstock.unsubscribe(made.subscription.id)
    received = [line for line in log.read_text().splitlines() if line.startswith("orders:")]
    assert received == [f"orders:{step} order-1 {{'order': 1}}" for step in IN_ORDER]


def status_of_forgery(port: int) -> int:
    forged = Request(f"http://127.0.0.1:{port}/webhooks", b"{}", {"webhook-id": "1", "webhook-timestamp": "1"})
    with pytest.raises(HTTPError) as refused:
        urlopen(forged, timeout=WAIT_S)
    refused.value.close()
    return refused.value.code


def test_what_is_published_twice_is_known(machine: Machine) -> None:
    first, again = (run("publish.py", PENSTOCK_URL=machine.addresses["api"]) for _ in range(2))
    assert first == [f"orders:{step} order-1 published" for step in IN_ORDER]
    assert again == [f"orders:{step} order-1 was known" for step in IN_ORDER]


def test_boto3_consumes_a_group_in_order(machine: Machine) -> None:
    lines = run("consume_boto3.py", SQS_URL=machine.addresses["sqs"])
    assert lines == [f"order-1 {step}" for step in IN_ORDER]


def test_googles_client_consumes_a_key_in_order(machine: Machine) -> None:
    lines = run("consume_pubsub.py", PUBSUB_EMULATOR_HOST=machine.addresses["pubsub"])
    assert lines == [f"order-1 {step}" for step in IN_ORDER]


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_compiles(example: Path) -> None:
    compile(example.read_text(), str(example), "exec")


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.[ps][yh]")), ids=lambda path: path.name)
def test_an_example_is_listed(example: Path) -> None:
    assert f"[{example.name}]({example.name})" in (EXAMPLES / "README.md").read_text()
