"""The router's API, served over a real socket from a thread, around a router that only remembers."""

import asyncio
import http.client
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec

from penstock.domain.errors import Unavailable
from penstock.domain.ids import TsidFactory
from penstock.edge.pause import pause
from penstock.http.server.server import HttpServer
from penstock.queues.open import QueueSpec
from penstock.queues.port import Publication
from penstock.router.config.configuration import PoolConfiguration, RouterConfiguration
from penstock.router.config.sync import ConfigSync
from penstock.router.leadership import AlwaysPrimary
from penstock.router.monitoring.app import RouterParts, router_app
from penstock.router.monitoring.warnings import WarningCode, Warnings, WarningSeverity
from penstock.router.pools.counts import RouterMetrics
from penstock.router.settings import RouterSettings
from penstock.testing.clock import VirtualClock
from tests.rigs.router_surface import FakeRouter
from tests.rigs.virtual_pauses import settle

CONFIGURATION = RouterConfiguration(
    (PoolConfiguration("P", 10), PoolConfiguration("pool/with space", 1)),
    (
        QueueSpec("orders", "sqlite:///q.db?queue=orders"),
        QueueSpec("slow", "sqlite:///q.db?queue=slow"),
    ),
)
_WAIT_S = 60


class Answer(msgspec.Struct, frozen=True):
    """An HTTP answer; `body` is decoded JSON if it is JSON."""

    status: int
    headers: dict[str, str]
    body: Any


class RecordingPublisher:
    """A queue that keeps what is published; the second message of a batch is refused if `refuses`."""

    def __init__(self, rig: "ServedApi", uri: str) -> None:
        self._rig = rig
        self._uri = uri

    async def open(self) -> None:
        if self._rig.broker_is_down:
            raise Unavailable(f"no broker answers at {self._uri}")

    async def publish(self, publications: Sequence[Publication]) -> list[Exception | None]:
        self._rig.published.extend((self._uri, publication) for publication in publications)
        return [
            Unavailable("token=hunter2") if self._rig.refuses and n == 1 else None for n in range(len(publications))
        ]

    async def settled_before_ms(self, pool: str | None = None) -> int:
        raise NotImplementedError

    async def close(self) -> None:
        self._rig.closed_publishers += 1


class ServedApi:
    """What a test sees: the URL to ask, and everything behind it."""

    def __init__(self, settings: RouterSettings) -> None:
        self.settings = settings
        self.url = ""
        self.clock = VirtualClock()
        self.router = FakeRouter()
        self.warnings = Warnings(self.clock)
        self.metrics = RouterMetrics()
        self.source: RouterConfiguration | Exception = CONFIGURATION
        self.published: list[tuple[str, Publication]] = []
        self.broker_is_down = False
        self.refuses = False
        self.closed_publishers = 0
        self._ids = TsidFactory(1)
        self.sync = ConfigSync(settings, self.router, self.warnings, AlwaysPrimary(), self.clock, pause, self._fetch)

    async def _fetch(self, _: Sequence[str]) -> RouterConfiguration:
        if isinstance(self.source, Exception):
            raise self.source
        return self.source

    def parts(self) -> RouterParts:
        return RouterParts(
            settings=self.settings,
            router=self.router,
            sync=self.sync,
            warnings=self.warnings,
            metrics=self.metrics,
            leadership=AlwaysPrimary(),
            new_id=lambda: self._ids.next_id(self.clock.now_ms()),
            own_url=lambda: self.url,
            publisher_for=lambda uri: RecordingPublisher(self, uri),
        )

    def ask(self, method: str, target: str, body: object = None, headers: Mapping[str, str] | None = None) -> Answer:
        """One request; a body that is not bytes is sent as JSON."""
        content = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        typed = {} if body is None else {"Content-Type": "application/json"}
        address = urlsplit(self.url)
        with closing(http.client.HTTPConnection(address.hostname or "", address.port, timeout=_WAIT_S)) as connection:
            connection.request(method, target, content, {**typed, **(headers or {})})
            answer = connection.getresponse()
            received = answer.read()
            found = {name.lower(): value for name, value in answer.getheaders()}
        is_json = "json" in found.get("content-type", "") and received
        return Answer(answer.status, found, msgspec.json.decode(received) if is_json else received)

    def change(self, method: str, target: str, body: object = None) -> Answer:
        """A request that changes something, as our own tools send it."""
        return self.ask(method, target, body, {"X-Penstock": "1"})

    def seed_warnings(self) -> None:
        """Some warnings to look at."""
        self.warnings.add(WarningCode.ROUTING, WarningSeverity.WARN, "QueueManager", "no pool Q")
        self.clock.advance(1)
        self.warnings.add(
            WarningCode.CONFIGURATION, WarningSeverity.ERROR, "HttpMediator", "404 from https://shop.example"
        )


@contextmanager
def served_api(**settings: Any) -> Iterator[ServedApi]:
    """A served API; its first sync is done."""
    rig = ServedApi(RouterSettings(**{"config": ("router.json",), **settings}))
    loop = asyncio.new_event_loop()
    started, stop = threading.Event(), asyncio.Event()

    async def main() -> None:
        syncing = asyncio.create_task(rig.sync.run())
        async with HttpServer(router_app(rig.parts()), "127.0.0.1", 0) as server:
            rig.url = server.url
            await settle()
            assert rig.sync.state.initialised
            started.set()
            await stop.wait()
        syncing.cancel()
        await asyncio.gather(syncing, return_exceptions=True)

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),))
    thread.start()
    try:
        assert started.wait(_WAIT_S)
        yield rig
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(_WAIT_S)
        loop.close()
