"""The receiver kit in real servers of FastAPI, Flask and Django, called by the courier that delivers jobs."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from ipaddress import ip_network
from types import ModuleType
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import django
import pytest
import uvicorn
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.urls import path
from fastapi import FastAPI
from flask import Flask

from penstock.client.receiver import (
    DeliverLater,
    InMemory,
    ReceivedDelivery,
    WebhookReceiver,
    django_view,
    flask_view,
    starlette_endpoint,
)
from penstock.client.receiver.receiver import MOST_BODY_BYTES
from penstock.delivery.breakers import Breakers
from penstock.delivery.webhook.courier import Courier, CourierSettings, WebhookDelivery, open_courier
from penstock.delivery.webhook.request import delivery_request
from penstock.domain.event import StoredEvent
from penstock.domain.job import DispatchJob
from penstock.domain.replay import as_copy
from penstock.domain.subscription import Subscription
from penstock.edge.clock import SystemClock, wall_seconds
from tests.rigs.made_jobs import NOW_MS, dispatch_job

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_YW5vdGhlciBzZWNyZXQgb2Y="
SUBSCRIPTION = Subscription(id="s", name="billing", pattern="**", target="https://a.example/", secrets=(SECRET,))

Serve = Callable[[WebhookReceiver], AbstractAsyncContextManager[str]]


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


class Uvicorn(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.listening.set()


@contextmanager
def wsgi(app: Any) -> Iterator[str]:
    with make_server("127.0.0.1", 0, app, handler_class=Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/hook"
        finally:
            server.shutdown()
            thread.join()


@asynccontextmanager
async def serve_fastapi(receiver: WebhookReceiver) -> AsyncIterator[str]:
    app = FastAPI()
    app.add_route("/hook", starlette_endpoint(receiver), methods=["POST"])
    server = Uvicorn(uvicorn.Config(app, "127.0.0.1", 0, log_level="critical", lifespan="off"))
    serving = asyncio.create_task(server.serve())
    async with asyncio.timeout(30):
        await server.listening.wait()
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/hook"
    server.should_exit = True
    await serving


@asynccontextmanager
async def serve_flask(receiver: WebhookReceiver) -> AsyncIterator[str]:
    app = Flask("receiver")
    app.add_url_rule("/hook", view_func=flask_view(receiver), methods=["POST"])
    with wsgi(app) as url:
        yield url


@asynccontextmanager
async def serve_django(receiver: WebhookReceiver) -> AsyncIterator[str]:
    if not settings.configured:
        settings.configure(
            ALLOWED_HOSTS=["127.0.0.1"],
            SECRET_KEY="for tests",
            MIDDLEWARE=["django.middleware.csrf.CsrfViewMiddleware"],
            ROOT_URLCONF=ModuleType("urls"),
            LOGGING_CONFIG=None,
        )
        django.setup()
    settings.ROOT_URLCONF = ModuleType("urls")
    settings.ROOT_URLCONF.urlpatterns = [path("hook", django_view(receiver))]
    with wsgi(WSGIHandler()) as url:
        yield url


@pytest.fixture(params=[serve_fastapi, serve_flask, serve_django], ids=["fastapi", "flask", "django"])
def serve(request: pytest.FixtureRequest) -> Serve:
    """Serves a receiver with a framework."""
    found: Serve = request.param
    return found


class Penstock:
    """Delivers numbered events of one key to a URL."""

    def __init__(self, courier: Courier, url: str) -> None:
        self._courier = courier
        self._url = url

    def job(self, number: int) -> DispatchJob:
        fields = {"event_id": f"e{number}", "subscription_id": "s", "group": "Änne 1", "key_sequence": number}
        return dispatch_job(id=f"0HZXEQ5Y8JY{number:02}", target=self._url, **fields)

    async def deliver(self, job: DispatchJob, secret: str = SECRET, data: bytes = b'{"total": 7}') -> WebhookDelivery:
        event = StoredEvent(id=job.event_id or "", source="/shop", type="orders:paid", received_ms=NOW_MS, data=data)
        signed = Subscription(id="s", name="billing", pattern="**", target=self._url, secrets=(secret,))
        return await self._courier.deliver(delivery_request(job, event, signed, int(wall_seconds() * 1000)))

    async def status(self, number: int, **given: Any) -> int | None:
        return (await self.deliver(self.job(number), **given)).outcome.status


@asynccontextmanager
async def penstock(url: str) -> AsyncIterator[Penstock]:
    clock = SystemClock()
    reachable = CourierSettings(egress_allow=(ip_network("127.0.0.0/8"),))
    async with open_courier(reachable, Breakers(clock), clock) as courier:
        yield Penstock(courier, url)


async def test_a_delivery_is_verified_processed_once_and_its_place_is_known(serve: Serve) -> None:
    handled: list[ReceivedDelivery] = []
    async with serve(WebhookReceiver(handled.append, SECRET)) as url, penstock(url) as sender:
        assert [await sender.status(number) for number in (1, 1, 4)] == [204, 204, 204]
        replayed = as_copy(sender.job(1), "0HZXEQ5Y8JY60", 1)
        assert (await sender.deliver(replayed)).outcome.status == 204
        assert await sender.status(5, secret=OTHER) == 401
        assert await sender.status(3) == 204
    assert [each.sequence for each in handled] == [1, 4, 3]
    assert [list(each.missing) for each in handled] == [[], [2, 3], []]
    assert {each.key for each in handled} == {"Änne 1"}
    assert handled[0].event.data == {"total": 7}


async def test_what_the_handler_did_not_finish_comes_again(serve: Serve) -> None:
    outcomes = iter([RuntimeError("the database is away"), DeliverLater(90), None])

    def handle(delivery: ReceivedDelivery) -> None:
        failure = next(outcomes)
        if failure is not None:
            raise failure

    async with serve(WebhookReceiver(handle, [OTHER, SECRET])) as url, penstock(url) as sender:
        assert await sender.status(1) == 500
        deferred = await sender.deliver(sender.job(1))
        assert (deferred.outcome.status, deferred.outcome.delay_s) == (200, 90)
        assert [await sender.status(1) for _ in range(2)] == [204, 204]
    assert next(outcomes, "used up") == "used up"


async def test_a_body_larger_than_any_delivery_is_refused_and_other_methods_too(serve: Serve) -> None:
    async with serve(WebhookReceiver(lambda delivery: None, SECRET)) as url, penstock(url) as sender:
        assert await sender.status(1, data=b"1" * (MOST_BODY_BYTES + 1)) == 413
        assert await sender.status(1) == 204


async def test_an_async_handler_runs_in_the_event_loop() -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def handle(delivery: ReceivedDelivery) -> None:
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())
        if len(loops) == 1:
            raise DeliverLater(5)

    receiver = WebhookReceiver(handle, SECRET, InMemory())
    async with serve_fastapi(receiver) as url, penstock(url) as sender:
        assert [await sender.status(1) for _ in range(3)] == [200, 204, 204]
    assert loops == [asyncio.get_running_loop()] * 2
