"""The server: opens the store, serves gRPC and the probes, and closes everything in order."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import grpc  # type: ignore[import-untyped]
import msgspec

from penstock.broker import AsyncBroker
from penstock.delivery import DeliverySettings, EgressGuard, HttpClient
from penstock.domain.addresses import Network
from penstock.domain.ids import TsidFactory
from penstock.domain.limits import MAX_ACK_DEADLINE_S, MIB
from penstock.edge.clock import Clock
from penstock.edge.own_ports import serve_port
from penstock.edge.pause import pause
from penstock.engine import Store, Window, while_owned
from penstock.http.api import CheckResult, Probes
from penstock.http.server import HttpServer, ServedCertificate, listening_socket, served_certificate
from penstock.ops.telemetry import Metrics
from penstock.pubsub.handlers import generic_handlers
from penstock.pubsub.services import PubsubServices

_SWEEP_S = 60.0
_GRACE_S = 5.0
# Each push has its subscription's timeout; the client's own is only a safety net.
_PUSHING = DeliverySettings(request_timeout_s=2.0 * MAX_ACK_DEADLINE_S, connect_timeout_s=10.0)
GRPC_OPTIONS = (
    # A request somewhat larger than 10 MB must arrive, so that the error can say what is wrong with it.
    ("grpc.max_receive_message_length", 24 * MIB),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),
    # Google's clients ping every 30 seconds, which gRPC servers treat as abuse by default.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
)


class PubsubServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server listens, and how much it keeps in memory."""

    host: str = "127.0.0.1"
    port: int = 8085
    probe_port: int = 8086
    allow_remote: bool = False
    """Whether other machines may reach it, although it requires no credentials."""
    window: Window = Window()
    egress_allow: tuple[Network, ...] = ()
    """Private networks that may be pushed to."""
    egress_deny_ports: tuple[int, ...] = ()


@asynccontextmanager
async def open_services(
    store: Store, clock: Clock, ids: TsidFactory, settings: PubsubServerSettings
) -> AsyncIterator[PubsubServices]:
    """Open the store, restore its contents and start pushing; on exit, finish every write."""
    guard = EgressGuard(settings.egress_allow, deny_ports=settings.egress_deny_ports)
    try:
        async with (
            await AsyncBroker.open(store, clock, ids, settings.window) as broker,
            HttpClient(guard, _PUSHING) as client,
        ):
            services = PubsubServices(broker, client, clock, ids, durable=store.durable)
            services.pushers.start()
            sweeping = asyncio.create_task(_sweep(services))
            try:
                yield services
            finally:
                sweeping.cancel()
                await services.pushers.close(_GRACE_S)
    finally:
        guard.close()


class GrpcServer:
    """A gRPC server on the running loop: `async with` starts it and stops it gracefully."""

    def __init__(
        self,
        handlers: Sequence[grpc.GenericRpcHandler],
        stop_waiting: Callable[[], None],
        host: str,
        port: int,
        *,
        allow_remote: bool = False,
        between_nodes: bool = False,
    ) -> None:
        self._stop_waiting = stop_waiting
        # Bound briefly, so that a bad address gives the same error as everywhere else.
        with listening_socket(host, port, credentials_set=allow_remote) as probe:
            self.port = probe.getsockname()[1]
        self.address = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
        self._server = grpc.aio.server(options=GRPC_OPTIONS)
        self._server.add_generic_rpc_handlers(handlers)
        certificate = None if between_nodes else served_certificate()
        if certificate is None:
            self._server.add_insecure_port(self.address)
        else:
            # gRPC calls back into the credentials for every connection, and does not keep them itself.
            self._credentials = _server_credentials(certificate)
            self._server.add_secure_port(self.address, self._credentials)

    async def __aenter__(self) -> "GrpcServer":
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Accept no more calls, end streams and waiting pulls, and give the others some time to finish."""
        self._stop_waiting()
        await self._server.stop(_GRACE_S)


def _server_credentials(certificate: ServedCertificate) -> grpc.ServerCredentials:
    """Return credentials that take a renewed certificate."""

    def used() -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(certificate.key, certificate.chain)])

    return grpc.dynamic_ssl_server_credentials(used(), lambda: used() if certificate.refresh() else None)


async def serve_pubsub(store: Store, clock: Clock, ids: TsidFactory, settings: PubsubServerSettings) -> None:
    """Serve until SIGINT or SIGTERM; then ask streams to reconnect, and finish all writes."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with open_services(store, clock, ids, settings) as services:
        probes = HttpServer(
            _probes(services, store), settings.host, settings.probe_port, credentials_set=settings.allow_remote
        )
        server = GrpcServer(
            generic_handlers(services),
            services.stop_waiting,
            settings.host,
            settings.port,
            allow_remote=settings.allow_remote,
        )
        async with probes, server:
            for port in (probes.port, server.port):
                serve_port(port)
            print(f"listening on {server.address}", flush=True)
            print(f"probes on {probes.url}", flush=True)
            await while_owned(_wait(stop), [store], services.stop_waiting)


async def _wait(stop: asyncio.Event) -> None:
    await stop.wait()


def _probes(services: PubsubServices, store: Store) -> Probes:
    metrics = Metrics("pubsub")
    metrics.register(services.metrics)

    async def writes() -> CheckResult:
        failure = services.last_failure
        return CheckResult(failure is None, failure or "commits succeed")

    return Probes(metrics, {"store": writes}, fatal=lambda: store.lost)


async def _sweep(services: PubsubServices) -> None:
    while True:
        await pause(_SWEEP_S)
        await services.sweep_or_log()
