"""The server: the store opened, gRPC served beside the probes, everything closed in order."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc  # type: ignore[import-untyped]
import msgspec

from penstock.broker import AsyncBroker
from penstock.delivery import DeliverySettings, EgressGuard, HttpClient
from penstock.domain.addresses import Network
from penstock.domain.ids import TsidFactory
from penstock.domain.limits import MAX_ACK_DEADLINE_S, MIB
from penstock.edge.clock import Clock
from penstock.edge.pause import pause
from penstock.engine import Store, Window
from penstock.http.api import CheckResult, Probes
from penstock.http.server import HttpServer, listening_socket
from penstock.ops.telemetry import Metrics
from penstock.pubsub.front import PubsubFront
from penstock.pubsub.handlers import generic_handlers

_SWEEP_S = 60.0
_GRACE_S = 5.0
# Each push has its subscription's time; the client's own only ends what escaped it.
_PUSHING = DeliverySettings(request_timeout_s=2.0 * MAX_ACK_DEADLINE_S, connect_timeout_s=10.0)
_GRPC_OPTIONS = (
    # A publish of 10 MB must arrive for the front to say what is wrong with a larger one.
    ("grpc.max_receive_message_length", 24 * MIB),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),
    # Google's clients ping every 30 seconds, which gRPC's servers take for an attack by default.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
)


class PubsubServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server listens, and how much it holds in memory."""

    host: str = "127.0.0.1"
    port: int = 8085
    probe_port: int = 8086
    allow_remote: bool = False
    """Whether it may listen where other machines reach it, though it asks for no credentials."""
    window: Window = Window()
    egress_allow: tuple[Network, ...] = ()
    """Networks of this machine and its neighbours that may be pushed to."""


@asynccontextmanager
async def open_front(
    store: Store, clock: Clock, ids: TsidFactory, settings: PubsubServerSettings
) -> AsyncIterator[PubsubFront]:
    """Open the store and bring back what it has, and push; on the way out, finish every write."""
    guard = EgressGuard(settings.egress_allow)
    try:
        async with (
            await AsyncBroker.open(store, clock, ids, settings.window) as broker,
            HttpClient(guard, _PUSHING) as client,
        ):
            front = PubsubFront(broker, client, clock, ids, durable=store.durable)
            front.pushers.start()
            sweeping = asyncio.create_task(_sweep(front))
            try:
                yield front
            finally:
                sweeping.cancel()
                await front.pushers.close(_GRACE_S)
    finally:
        guard.close()


class GrpcServer:
    """gRPC on the running loop: `async with` starts it and stops it gracefully."""

    def __init__(self, front: PubsubFront, host: str, port: int, *, allow_remote: bool = False) -> None:
        self._front = front
        # Bound for a moment, so that what is wrong with an address is said as everywhere else.
        with listening_socket(host, port, credentials_set=allow_remote) as probe:
            port = probe.getsockname()[1]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._server = grpc.aio.server(options=_GRPC_OPTIONS)
        self._server.add_generic_rpc_handlers(generic_handlers(front))
        self._server.add_insecure_port(self.address)

    async def __aenter__(self) -> "GrpcServer":
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Take no more calls, end the streams and the waiting pulls, let the others end, for a while."""
        self._front.stop_waiting()
        await self._server.stop(_GRACE_S)


async def serve_pubsub(store: Store, clock: Clock, ids: TsidFactory, settings: PubsubServerSettings) -> None:
    """Serve until SIGINT or SIGTERM; then streams are told to come again, and writes are finished."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with open_front(store, clock, ids, settings) as front:
        probes = HttpServer(_probes(front), settings.host, settings.probe_port, credentials_set=settings.allow_remote)
        server = GrpcServer(front, settings.host, settings.port, allow_remote=settings.allow_remote)
        async with probes, server:
            print(f"listening on {server.address}", flush=True)
            print(f"probes on {probes.url}", flush=True)
            await stop.wait()


def _probes(front: PubsubFront) -> Probes:
    metrics = Metrics("pubsub")
    metrics.register(front.metrics)

    async def writes() -> CheckResult:
        failure = front.last_failure
        return CheckResult(failure is None, failure or "commits succeed")

    return Probes(metrics, {"store": writes})


async def _sweep(front: PubsubFront) -> None:
    while True:
        await pause(_SWEEP_S)
        await front.sweep_or_log()
