"""The whole chain as processes: API, scheduler, embedded queue, router, and back to the API that delivers."""

import json
from contextlib import ExitStack
from pathlib import Path

from penstock.testing.receiver import RecordingReceiver, Reply
from tests.rigs.dispatch import cloud_event, request
from tests.rigs.penstock_process import LOOPBACK, ServedPart

KEYS = 5
EVENTS_PER_KEY = 4
BRISK = {
    "PENSTOCK_SCHEDULER__POLL_INTERVAL_S": "0.2",
    "PENSTOCK_ROUTER__INITIAL_DELAY_S": "0",
    "PENSTOCK_ROUTER__SYNC_RETRY_S": "0.5",
}


def serving(part: str, directory: Path, *options: str) -> ServedPart:
    return ServedPart(directory, part, (part, *options), {**LOOPBACK, **BRISK})


async def test_events_arrive_in_order_per_key_through_all_processes_although_some_fail(tmp_path: Path) -> None:
    queue = f"sqlite://{tmp_path}/queue.db?queue=dispatch"
    total = KEYS * EVENTS_PER_KEY
    with ExitStack() as stack:
        api = stack.enter_context(serving("api", tmp_path, "--data", "data", "--queue", queue)).url
        options = ("--data", "data", "--queue", queue, "--endpoint", f"{api}/api/dispatch/process")
        stack.enter_context(serving("scheduler", tmp_path, *options))
        stack.enter_context(serving("router", tmp_path, "--config", f"{api}/api/router/config"))
        async with RecordingReceiver() as receiver:
            receiver.script(Reply(), Reply(500), Reply(), Reply(503))
            subscription = {"name": "all", "pattern": "**", "target": receiver.url, "retryDelaysS": [0.1] * 10}
            assert request(api, "POST", "/api/v1/subscriptions", subscription).status == 200
            events = [
                cloud_event(number, partitionkey=f"customer-{number % KEYS}", data=number) for number in range(total)
            ]
            assert request(api, "POST", "/api/v1/events", events).status == 200

            # What was delivered while a lease ended may come again: the number of requests alone says too little.
            while len({sent.body for sent in receiver.requests}) < total or len(receiver.requests) < total + 2:
                await receiver.received(len(receiver.requests) + 1, within_s=120)

            bodies = [json.loads(sent.body) for sent in receiver.requests]
    for key in range(KEYS):
        of_key = [body["data"] for body in bodies if body["partitionkey"] == f"customer-{key}"]
        assert list(dict.fromkeys(of_key)) == [number for number in range(total) if number % KEYS == key]
        assert of_key == sorted(of_key)
