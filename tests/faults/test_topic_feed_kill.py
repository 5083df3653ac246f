"""A topic that feeds events while the API and the Pub/Sub server are killed: each message arrives, in order per key."""

import asyncio
import json
import os
import random
import signal
from collections import defaultdict
from pathlib import Path

from penstock.testing.receiver import RecordingReceiver
from tests.rigs.penstock_process import Machine, descendants
from tests.services.pubsub_server import Clients

TOPIC = "projects/penstock/topics/orders"
KEYS = ("a", "b", "c")
EACH = 60


def pid_of(machine: Machine, *words: str) -> int:
    """The process of a part, by words of its command."""
    for pid in descendants(machine.pid):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        except OSError:
            continue
        if all(word in command for word in words):
            return pid
    raise AssertionError(f"no process {words}")


async def test_whatever_is_killed_each_message_becomes_one_event_in_order(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")  # shown when the test fails
    chance = random.Random(seed)
    settings = {"PENSTOCK_EGRESS__ALLOW": "127.0.0.0/8"}
    async with RecordingReceiver() as receiver:
        with Machine(tmp_path, settings=settings) as machine:
            machine.penstock("topics", "feed", "orders", "--type", "orders:placed")
            machine.penstock("subscriptions", "create", "all", "--pattern", "orders:**", "--target", receiver.url)
            clients = Clients(machine.addresses["pubsub"])
            futures = []
            for number in range(EACH):
                futures += [
                    clients.publisher.publish(TOPIC, json.dumps([key, number]).encode(), ordering_key=key)
                    for key in KEYS
                ]
                if number in (EACH // 3, 2 * EACH // 3):
                    await receiver.received(chance.randrange(1, number * len(KEYS) // 2), within_s=60)
                    part = "pubsub" if number == EACH // 3 else "dispatch"
                    os.kill(pid_of(machine, "serve", part), signal.SIGKILL)
            ids = [future.result(timeout=120) for future in futures]
            clients.close()
            events: dict[str, dict[str, object]] = {}
            came: dict[str, list[int]] = defaultdict(list)

            def take() -> None:
                for each in receiver.requests:
                    event = json.loads(each.body)
                    if event["id"] not in events:
                        events[event["id"]] = event
                        came[event["partitionkey"]].append(event["data"][1])

            while len(events) < len(KEYS) * EACH:
                await receiver.received(len(receiver.requests) + 1, within_s=120)
                events.clear()
                came.clear()
                take()
            listed = await asyncio.to_thread(machine.penstock, "jobs", "list", "--json", "--limit", "1000")
            jobs = json.loads(listed)["jobs"]
            # In a thread: the receiver must answer what is being delivered.
            assert await asyncio.to_thread(machine.stop) == 0
    # Google's client may publish a message again whose answer was lost; then it has two ids.
    assert set(ids) <= set(events)
    assert len(jobs) == len(events)
    assert len({job["eventId"] for job in jobs}) == len(jobs)
    for key in KEYS:
        assert list(dict.fromkeys(came[key])) == list(range(EACH)), key
