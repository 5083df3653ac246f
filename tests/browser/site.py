"""A running `penstock up` that the tests of the page look at, with what they need to make something happen."""

import json
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import boto3  # type: ignore[import-untyped]

from penstock.domain.replay import ReplayRequest, ReplaySelection
from penstock.edge.clock import SystemClock
from penstock.edge.node import process_ids
from penstock.events.store.sqlite import sqlite_repository
from tests.browser.receiver import Receiver, ReceiverThread
from tests.rigs.penstock_process import Machine, wait_until

WAIT_S = 60


class Site:
    """`penstock up` on free ports, an AWS client of its SQS server, and receivers."""

    def __init__(self, directory: Path) -> None:
        # A pipeline that another test runs at the usual port is not this machine's.
        settings = {"PENSTOCK_LOG__LEVEL": "error", "PENSTOCK_API__PIPELINE": ""}
        self._machine = Machine(directory, settings=settings)
        self._receivers: list[Receiver] = []
        self._thread = ReceiverThread()
        self._numbers = count(1)

    def __enter__(self) -> "Site":
        self._machine.start()
        wait_until(lambda: bool(self.get("/api/router/monitoring")["sync"]["initialised"]), WAIT_S)
        self.sqs = boto3.client(
            "sqs",
            endpoint_url=self.addresses["sqs"],
            region_name="us-east-1",
            aws_access_key_id="anyone",
            aws_secret_access_key="anything",
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.sqs.close()
        self._machine.stop()
        for receiver in self._receivers:
            self._thread.do(receiver.stop())
        self._thread.close()

    @property
    def addresses(self) -> dict[str, str]:
        """Where each part listens."""
        return self._machine.addresses

    @property
    def url(self) -> str:
        """Where the page is."""
        return self._machine.url

    def receiver(self) -> Receiver:
        """A new receiver."""
        self._receivers.append(Receiver(self._thread))
        return self._receivers[-1]

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """An answer of the API."""
        content = None if body is None else json.dumps(body).encode()
        headers = {"X-Penstock": "1", **({} if body is None else {"Content-Type": "application/json"})}
        try:
            with urlopen(Request(self.url + path, content, headers, method=method), timeout=WAIT_S) as answer:
                return json.loads(answer.read())
        except HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.read().decode()}") from error

    def get(self, path: str) -> Any:
        """What the API tells."""
        return self.ask("GET", path)

    def left_replay(self, subscription: Any) -> str:
        """A large replay of a subscription, as a process leaves it that ends before it has copied anything; its id."""
        request = ReplayRequest(selection=ReplaySelection(subscription_id=subscription["id"]))
        replay_id = process_ids().next_id(SystemClock().now_ms())

        async def begin() -> None:
            async with sqlite_repository(self._machine.data / "jobs.db").replays(SystemClock()) as replays:
                await replays.add(replay_id, request, 0, SystemClock().now_ms())

        self._thread.do(begin())
        return replay_id

    def subscribe(self, receiver: Receiver, **fields: Any) -> Any:
        """A subscription to a type of its own, such as `t7:**`, at a receiver."""
        number = next(self._numbers)
        body = {"name": f"sub-{number}", "pattern": f"t{number}:**", "target": receiver.url, **fields}
        return self.ask("POST", "/api/v1/subscriptions", body)["subscription"]

    def publish(self, subscription: Any, *numbers: int, key: str = "order-1") -> list[str]:
        """Events for a subscription, each with a number; their ids."""
        kind = subscription["pattern"].replace("**", "placed")
        events = [
            {
                "specversion": "1.0",
                "id": f"{kind}-{number}-{next(self._numbers)}",
                "source": "/shop",
                "type": kind,
                "partitionkey": key,
                "data": {"number": number},
            }
            for number in numbers
        ]
        return [event["id"] for event in self.ask("POST", "/api/v1/events", events)["events"]]

    def jobs(self, subscription: Any, query: str = "") -> list[Any]:
        """The jobs of a subscription, the oldest first."""
        found = self.get(f"/api/v1/jobs?subscriptionId={subscription['id']}{query}")
        return list(reversed(found["jobs"]))

    def statuses(self, subscription: Any) -> list[str]:
        """The statuses of its jobs, the oldest first."""
        return [job["status"] for job in self.jobs(subscription)]

    def wait_for(self, subscription: Any, statuses: Sequence[str]) -> None:
        """Wait until its jobs have these statuses."""
        self.wait(lambda: self.statuses(subscription) == list(statuses))

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds."""
        wait_until(condition, WAIT_S)

    def numbers(self, receiver: Receiver) -> list[int]:
        """The numbers of the events that a receiver took, in order."""
        return [json.loads(body)["data"]["number"] for body in receiver.bodies]

    def queue(self, name: str, **attributes: str) -> str:
        """A new queue; its URL."""
        return str(self.sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])

    def described(self, name: str) -> Any:
        """A queue as the API tells it."""
        return self.get(f"/api/queues/{quote(name, safe='')}")
