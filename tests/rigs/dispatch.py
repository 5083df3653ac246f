"""The API of jobs on a real database, delivering to a real receiver; only the clock is virtual."""

import asyncio
import http.client
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from ipaddress import ip_network
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from penstock.delivery.attempt import Client
from penstock.delivery.breakers import Breakers
from penstock.delivery.webhook.courier import Courier
from penstock.domain.event import StoredEvent
from penstock.domain.ids import TsidFactory
from penstock.domain.job import DispatchJob
from penstock.domain.signing import Signature, verify
from penstock.events.api.app import ApiFront, JobsParts
from penstock.events.api.health.watch import HealthWatch, NoParts
from penstock.events.api.jobs.replay_worker import ReplayWorker
from penstock.events.api.server import ApiSettings, api_server
from penstock.events.portal import PortalTokens
from penstock.events.process.processor import ProcessMetrics, Processor
from penstock.events.process.tokens import AuthTokens
from penstock.events.store.repository import JobRepository
from penstock.events.store.sqlite import sqlite_repository
from penstock.http.server.server import HttpServer
from penstock.ops.telemetry.metrics import Metrics
from penstock.testing.clock import VirtualClock
from penstock.testing.receiver import RecordedRequest, RecordingReceiver
from tests.rigs.jobs import JobRig

SECRET = b"a secret for tests only"
_WAIT_S = 60


class Answer(msgspec.Struct, frozen=True):
    """An HTTP answer; `body` is decoded JSON if it is JSON."""

    status: int
    headers: dict[str, str]
    body: Any


class KeptDeadLetters:
    """Remembers what was given up."""

    def __init__(self) -> None:
        self.copies: list[tuple[str, str, str | None, str]] = []
        self.failure: Exception | None = None

    async def publish(self, topic: str, job: DispatchJob, event: StoredEvent | None, reason: str) -> None:
        if self.failure is not None:
            raise self.failure
        self.copies.append((topic, job.id, None if event is None else event.id, reason))


class DispatchRig(JobRig):
    """A served API, a receiver, and a short word for each step."""

    def __init__(self, repository: JobRepository, receiver: RecordingReceiver) -> None:
        super().__init__(repository)
        self.receiver = receiver
        self.server: HttpServer
        self.tokens = AuthTokens([SECRET])
        self.dead_letters = KeptDeadLetters()

    async def ask(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request, as our own tools send it; a body that is not bytes is sent as JSON."""
        return await asyncio.to_thread(request, self.server.url, method, path, body, headers)

    async def process(self, job_id: str, token: str | None = None) -> Answer:
        """Bring a pointer, as the router does."""
        given = self.tokens.token(job_id, self.now_ms) if token is None else token
        return await self.ask(
            "POST", "/api/dispatch/process", {"messageId": job_id}, {"Authorization": f"Bearer {given}"}
        )

    async def processed(self, job_id: str) -> object:
        """Bring a pointer; what the endpoint says about it."""
        answer = await self.process(job_id)
        assert answer.status == 200, answer
        return answer.body

    async def dispatch_all(self) -> list[str]:
        """Publish whatever may go, and bring each pointer, until nothing is left that is due; the ids in order."""
        ids: list[str] = []
        while queued := await self.queue_all():
            for job_id in queued:
                assert (await self.process(job_id)).body["ack"] is True
            ids += queued
        return ids

    async def subscribe(self, name: str = "billing", **fields: Any) -> tuple[str, str]:
        """A subscription to `orders:**` at the receiver; its id and its secret."""
        body = {"name": name, "pattern": "orders:**", "target": f"{self.receiver.url}/{name}", **fields}
        answer = await self.ask("POST", "/api/v1/subscriptions", body)
        assert answer.status == 200, answer
        return answer.body["subscription"]["id"], answer.body["secret"]

    async def publish(self, number: int = 1, **fields: Any) -> str:
        """An event; its id."""
        answer = await self.ask("POST", "/api/v1/events", cloud_event(number, **fields))
        assert answer.status == 200, answer
        return str(answer.body["events"][0]["id"])

    async def job(self, job_id: str) -> Any:
        """A job as the API shows it."""
        return (await self.ask("GET", f"/api/v1/jobs/{job_id}")).body

    async def jobs(self, query: str = "") -> list[Any]:
        """Jobs as the API lists them, the oldest first."""
        answer = await self.ask("GET", f"/api/v1/jobs{query}")
        return list(reversed(answer.body["jobs"]))

    async def attempts(self, job_id: str) -> list[Any]:
        """The attempts of a job as the API shows them."""
        return list((await self.ask("GET", f"/api/v1/jobs/{job_id}/attempts")).body["attempts"])

    def signed_by(self, request: RecordedRequest, secret: str) -> bool:
        """Whether a receiver that knows the secret would trust a request."""
        names = ("webhook-id", "webhook-timestamp", "webhook-signature")
        signature = Signature(*(request.headers[name] for name in names))
        return verify(signature, request.body, [secret], self.now_ms)


def cloud_event(number: int = 1, **fields: Any) -> dict[str, Any]:
    """An event as publishers send it."""
    return {
        "specversion": "1.0",
        "id": f"order-{number}",
        "source": "/shop",
        "type": "orders:created",
        "partitionkey": "customer-1",
        "data": {"number": number},
        **fields,
    }


def request(url: str, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Answer:
    """One request from a thread."""
    content = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
    typed = {} if body is None else {"Content-Type": "application/json"}
    address = urlsplit(url)
    with closing(http.client.HTTPConnection(address.hostname or "", address.port, timeout=_WAIT_S)) as connection:
        connection.request(method, path, content, {"X-Penstock": "1", **typed, **(headers or {})})
        answer = connection.getresponse()
        received = answer.read()
        found = {name.lower(): value for name, value in answer.getheaders()}
    is_json = "json" in found.get("content-type", "") and received
    return Answer(answer.status, found, msgspec.json.decode(received) if is_json else received)


@asynccontextmanager
async def dispatch_rig(
    repository: JobRepository, front: ApiFront | None = None, **settings: Any
) -> AsyncIterator[DispatchRig]:
    """A rig that is served, on a repository that is not open yet."""
    given = {"port": 0, "secrets": (SECRET,), "egress_allow": (ip_network("127.0.0.0/8"),), **settings}
    async with RecordingReceiver() as receiver:
        rig = DispatchRig(repository, receiver)
        async with (
            api_server(
                repository, rig.clock, rig.ids, ApiSettings(**given), dead_letters=rig.dead_letters, front=front
            ) as server,
            server,
        ):
            rig.server = server
            yield rig


def jobs_parts() -> JobsParts:
    """The parts of an API that is never asked: for its routes and its document."""
    clock, ids = VirtualClock(), TsidFactory(1)
    repository = sqlite_repository("never-opened.db")
    courier = Courier(cast("Client", None), Breakers(clock), clock)
    metrics = Metrics("api")
    processor = Processor(repository, courier, KeptDeadLetters(), ProcessMetrics(metrics), clock)
    return JobsParts(
        repository=repository,
        courier=courier,
        processor=processor,
        tokens=AuthTokens([SECRET]),
        portal=PortalTokens(repository, [SECRET], clock),
        clock=clock,
        new_id=lambda: ids.next_id(0),
        metrics=metrics,
        health=HealthWatch(repository, courier.breakers, clock, NoParts()),
        replays=ReplayWorker(repository, clock),
    )
