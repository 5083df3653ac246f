"""What a running `penstock up` keeps of large events and of clients that come and go: nothing."""

import json
import os
import socket
from pathlib import Path
from urllib.request import Request, urlopen

from penstock.testing.receiver import RecordingReceiver
from tests.rigs.penstock_process import LOOPBACK, Machine, descendants, wait_until

MEGABYTE = 1_000_000
LARGE = 20
CLIENTS = 300
WITHIN_S = 120


def publish(machine: Machine, name: str, data: str) -> None:
    event = {"specversion": "1.0", "id": name, "source": "/r", "type": "r:one", "partitionkey": name, "data": data}
    headers = {"content-type": "application/cloudevents+json"}
    with urlopen(Request(f"{machine.url}/api/v1/events", json.dumps(event).encode(), headers), timeout=60) as answer:
        assert answer.status < 300


def descriptors(machine: Machine) -> dict[int, int]:
    """Return the number of open files and connections of each part."""
    return {pid: len(os.listdir(f"/proc/{pid}/fd")) for pid in descendants(machine.pid)}


def connect_and_leave(machine: Machine) -> None:
    """Connect as many clients, each with half a request, and take them away."""
    _, _, port = machine.url.rpartition(":")
    clients = [socket.create_connection(("127.0.0.1", int(port))) for _ in range(CLIENTS)]
    for client in clients:
        client.sendall(b"GET / HTTP/1.1\r\nHost: ")
    wait_until(lambda: max(descriptors(machine).values()) >= CLIENTS)
    for client in clients:
        client.close()


async def test_large_events_arrive_whole_and_clients_that_leave_free_their_descriptors(tmp_path: Path) -> None:
    async with RecordingReceiver() as receiver:
        with Machine(tmp_path, settings=LOOPBACK) as machine:
            machine.penstock("subscriptions", "create", "s", "--pattern", "r:**", "--target", receiver.url)
            publish(machine, "first", "small")
            await receiver.received(1, WITHIN_S)
            before = descriptors(machine)
            for number in range(LARGE):
                publish(machine, f"large-{number}", str(number % 10) * MEGABYTE)
            requests = await receiver.received(1 + LARGE, WITHIN_S)
            connect_and_leave(machine)
            # A delivery per key at once: the pool's connections may stay open for the next ones.
            wait_until(lambda: all(count <= before[pid] + LARGE for pid, count in descriptors(machine).items()))
    bodies = [json.loads(request.body) for request in requests]
    assert {event["partitionkey"]: event["data"] for event in bodies if event["id"] != "first"} == {
        f"large-{number}": str(number % 10) * MEGABYTE for number in range(LARGE)
    }
