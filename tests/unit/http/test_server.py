import http.client
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import pytest

from penstock.domain.errors import PenstockError, Unavailable
from penstock.http.api.probes import Probes
from penstock.http.errors import CannotListen, ExposedWithoutCredentials, PortInUse, StartFailed
from penstock.http.server.asgi import Receive, Scope, Send, accept_lifespan, send_answer
from penstock.http.server.server import HttpServer, listening_socket, serve, url_of
from penstock.ops.telemetry.metrics import Metrics

SERVED = """
from penstock.ops.telemetry.metrics import Metrics
from penstock.http.api.probes import Probes
from penstock.http.server.server import serve
serve(Probes(Metrics("test")), "127.0.0.1", 0)
print("stopped")
"""

SLOW = """
import asyncio
from penstock.http.server import server
from penstock.http.server.asgi import accept_lifespan, send_answer
server.GRACE_S = 3600
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return await accept_lifespan(receive, send)
    print("asked", flush=True)
    await asyncio.sleep(float(scope["path"].strip("/")))
    await send_answer(scope, send, 200, b"done", {})
server.serve(app, "127.0.0.1", 0)
"""


@contextmanager
def running(program: str) -> Iterator[tuple["subprocess.Popen[str]", http.client.HTTPConnection]]:
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("listening on http://127.0.0.1:")
            address = urlsplit(line.removeprefix("listening on ").strip())
            connection = http.client.HTTPConnection(str(address.hostname), address.port or 0, timeout=60)
            with closing(connection):
                yield process, connection
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_served_over_a_real_socket_and_stopped_by_a_signal(number: signal.Signals) -> None:
    with running(SERVED) as (process, connection):
        connection.request("GET", "/health/ready")
        response = connection.getresponse()
        assert (response.status, response.read()) == (200, b'{"status": "ready", "checks": {}}')
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, "stopped\n")


def test_a_request_in_progress_is_answered_before_the_stop() -> None:
    with running(SLOW) as (process, connection):
        connection.request("GET", "/0.5")
        assert process.stdout is not None
        assert process.stdout.readline() == "asked\n"
        process.send_signal(signal.SIGTERM)
        assert connection.getresponse().read() == b"done"
        assert process.wait(timeout=60) == 0


def test_a_second_signal_does_not_wait_for_requests_in_progress() -> None:
    with running(SLOW) as (process, connection):
        connection.request("GET", "/3600")
        assert process.stdout is not None
        assert process.stdout.readline() == "asked\n"
        # Two signals that come together may be one to the process.
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0


def test_a_port_in_use_says_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse, match=f"port {port} .* in use .* choose another port"):
            serve(Probes(Metrics("test")), "127.0.0.1", port)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_an_address_that_others_reach_needs_credentials(host: str) -> None:
    with pytest.raises(ExposedWithoutCredentials, match="asks for no credentials; set credentials"):
        listening_socket(host, 0, credentials_set=False)
    try:
        listening_socket(host, 0, credentials_set=True).close()
    except CannotListen:
        assert host == "::", "a machine without IPv6"


def test_an_address_of_another_machine_cannot_be_listened_on() -> None:
    with pytest.raises(CannotListen, match="use an IP address of this machine"):
        listening_socket("192.0.2.1", 0, credentials_set=True)
    with pytest.raises(CannotListen, match="cannot find the address"):
        listening_socket("no-such-host.invalid", 0, credentials_set=True)


@pytest.mark.parametrize(("host", "shown"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("localhost", "localhost")])
def test_the_url_of_all_addresses_is_that_of_loopback(host: str, shown: str) -> None:
    with listening_socket("127.0.0.1", 0, credentials_set=False) as sock:
        assert url_of(host, sock) == f"http://{shown}:{sock.getsockname()[1]}"


def test_the_url_of_an_ipv6_address_has_brackets() -> None:
    with listening_socket("127.0.0.1", 0, credentials_set=False) as sock:
        assert url_of("::1", sock) == f"http://[::1]:{sock.getsockname()[1]}"


async def test_two_servers_share_a_loop() -> None:
    probes = Probes(Metrics("test"))
    async with HttpServer(probes, "127.0.0.1", 0) as first, HttpServer(probes, "127.0.0.1", 0) as second:
        assert first.url != second.url
        for url in (first.url, second.url):
            socket.create_connection(("127.0.0.1", urlsplit(url).port or 0)).close()


class Starts:
    """An app whose start-up fails."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        if self.error is not None:
            raise self.error
        await send({"type": "lifespan.startup.failed", "message": "no room"})


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (Unavailable("the database is away"), Unavailable, "^the database is away$"),
        (KeyError("x"), StartFailed, "the service did not start: KeyError: 'x'"),
        (None, StartFailed, "the service did not start: no room"),
    ],
)
async def test_a_start_up_that_fails_is_raised(
    error: Exception | None, kind: type[PenstockError], message: str
) -> None:
    server = HttpServer(Starts(error), "127.0.0.1", 0)
    with pytest.raises(kind, match=message):
        await server.__aenter__()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", urlsplit(server.url).port or 0))


async def test_an_error_at_the_end_does_not_count_as_a_failed_start() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await send_answer(scope, send, 200, b"", {})
            return
        await accept_lifespan(receive, send)
        raise KeyError("late")

    async with HttpServer(app, "127.0.0.1", 0) as server:
        assert server.url
