"""The egress guard in front of real sockets: nothing that is not allowed gets a connection, let alone a request."""

import asyncio
import socket
import threading
from ipaddress import ip_network

import pytest

from penstock.delivery.egress import CACHE_S, EgressGuard, SocketAddress, system_lookup
from penstock.delivery.errors import ConnectFailed, EgressRefused
from penstock.delivery.http.settings import DeliverySettings
from penstock.domain.outcome import EgressDenied, MediationOutcome, MediationResult, NetworkError
from penstock.testing.receiver import RecordingReceiver, Reply
from tests.rigs.http_endpoints import RawServer, answers, mediator_rig

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


def is_denied(outcome: MediationOutcome) -> bool:
    return outcome.result is MediationResult.ERROR_PROCESS and isinstance(outcome.error, EgressDenied)


class Names:
    """A resolver whose answers change from lookup to lookup; the last one stays."""

    def __init__(self, *answers: str | list[str]) -> None:
        self._answers = [[answer] if isinstance(answer, str) else answer for answer in answers]
        self.lookups = 0

    def __call__(self, host: str, port: int) -> list[SocketAddress]:
        answer = self._answers[min(self.lookups, len(self._answers) - 1)]
        self.lookups += 1
        return [(address, port, 0, 0) if ":" in address else (address, port) for address in answer]


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b:1::7f00:1]",
        "[2002:7f00:1::1]",
    ],
)
async def test_loopback_is_not_reached_in_any_spelling(host: str) -> None:
    async with RawServer(answers(OK)).serving() as server, mediator_rig(allowed=()) as rig:
        outcome = await rig.deliver(f"http://{host}:{server.port}/")
        assert is_denied(outcome)
        assert server.accepted == 0
        ((code, severity, _, message),) = rig.warnings
        assert (code, severity) == ("CONFIGURATION", "ERROR")
        assert "egress.allow" in message
        (view,) = rig.breakers.views()
        assert (view.state, view.calls) == ("CLOSED", 0)


@pytest.mark.parametrize("host", ["169.254.169.254", "[fd00:ec2::254]", "[::ffff:169.254.169.254]", "0xa9fea9fe"])
async def test_metadata_services_are_not_reached_though_everything_is_allowed(host: str) -> None:
    async with mediator_rig(allowed=(ip_network("0.0.0.0/0"), ip_network("::/0"))) as rig:
        assert is_denied(await rig.deliver(f"http://{host}/latest/meta-data/"))
        assert "no setting opens it" in rig.warnings[0][3]


async def test_a_name_that_points_inside_is_denied() -> None:
    async with RawServer(answers(OK)).serving() as server, mediator_rig(allowed=(), lookup=Names("127.0.0.1")) as rig:
        assert is_denied(await rig.deliver(f"http://innocent.example:{server.port}/"))
        assert server.accepted == 0


async def test_a_name_that_is_rebound_between_check_and_connection_gains_nothing() -> None:
    """The first answer passes the check; were there a second lookup, it would lead to loopback."""
    names = Names("192.0.2.1", "127.0.0.1")
    settings = DeliverySettings(connect_timeout_s=0.3)
    async with (
        RawServer(answers(OK)).serving() as server,
        mediator_rig(settings, (ip_network("192.0.2.0/24"),), names) as rig,
    ):
        outcome = await rig.deliver(f"http://rebinding.example:{server.port}/")
        assert outcome.result is MediationResult.ERROR_CONNECTION
        assert (names.lookups, server.accepted) == (1, 0)


async def test_a_name_that_is_rebound_later_is_denied_then() -> None:
    names = Names("127.0.0.1", "127.0.0.2")
    async with (
        RawServer(answers(OK, close=True)).serving() as server,
        mediator_rig(allowed=(ip_network("127.0.0.1/32"),), lookup=names) as rig,
    ):
        url = f"http://rebinding.example:{server.port}/"
        assert (await rig.deliver(url)).result is MediationResult.SUCCESS
        loop = asyncio.get_running_loop()
        real_time = loop.time
        try:
            loop.time = lambda: real_time() + CACHE_S  # type: ignore[method-assign]
            assert is_denied(await rig.deliver(url))
        finally:
            loop.time = real_time  # type: ignore[method-assign]
        assert names.lookups == 2


async def test_of_several_addresses_only_allowed_ones_are_used() -> None:
    names = Names(["169.254.169.254", "10.0.0.1", "127.0.0.1"])
    async with RawServer(answers(OK)).serving() as server, mediator_rig(lookup=names) as rig:
        assert (await rig.deliver(f"http://mixed.example:{server.port}/")).result is MediationResult.SUCCESS


async def test_the_next_address_is_tried_if_one_refuses() -> None:
    names = Names(["127.0.0.2", "127.0.0.3", "127.0.0.1"])
    async with RawServer(answers(OK)).serving() as server, mediator_rig(lookup=names) as rig:
        assert (await rig.deliver(f"http://many.example:{server.port}/")).result is MediationResult.SUCCESS


async def test_a_dead_address_leaves_time_for_the_next() -> None:
    names = Names(["192.0.2.1", "127.0.0.1"])
    allowed = (ip_network("127.0.0.0/8"), ip_network("192.0.2.0/24"))
    settings = DeliverySettings(connect_timeout_s=1.0)
    async with RawServer(answers(OK)).serving() as server, mediator_rig(settings, allowed, names) as rig:
        assert (await rig.deliver(f"http://many.example:{server.port}/")).result is MediationResult.SUCCESS


async def test_the_request_goes_to_the_pinned_address_under_the_name_in_the_url() -> None:
    async with RecordingReceiver() as receiver, mediator_rig(lookup=Names("127.0.0.1")) as rig:
        port = int(receiver.url.rpartition(":")[2])
        await rig.deliver(f"http://shop.example:{port}/hook")
        assert receiver.requests[0].headers["host"] == f"shop.example:{port}"


async def test_a_redirect_does_not_lead_around_the_guard() -> None:
    async with RawServer(answers(OK)).serving() as inside, RecordingReceiver() as receiver:
        receiver.script(Reply(302, headers=(("location", f"http://127.0.0.1:{inside.port}/"),)))
        async with mediator_rig() as rig:
            assert (await rig.deliver(receiver.url)).status == 302
            assert inside.accepted == 0


async def test_the_peer_of_a_connected_socket_is_checked_too() -> None:
    """As if something between check and connection had bent the connection to another address."""
    async with RawServer(answers(OK)).serving() as server:
        guard = EgressGuard()
        with (
            socket.create_connection(("127.0.0.1", server.port)) as bent,
            pytest.raises(EgressRefused, match="loopback"),
        ):
            guard.check_peer(bent)
        guard.close()


async def test_a_name_nobody_knows_is_a_connection_error() -> None:
    def lookup(host: str, port: int) -> list[SocketAddress]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async with mediator_rig(lookup=lookup) as rig:
        outcome = await rig.deliver("http://nowhere.invalid/")
        assert outcome.result is MediationResult.ERROR_CONNECTION
        assert isinstance(outcome.error, NetworkError)
        assert "nowhere.invalid" in outcome.error.detail


async def test_a_name_that_no_resolver_takes_is_a_connection_error() -> None:
    async with mediator_rig() as rig:
        outcome = await rig.deliver(f"http://{'a' * 70}..b/")
        assert outcome.result is MediationResult.ERROR_CONNECTION


async def test_many_at_once_share_a_lookup_and_one_that_gives_up_does_not_spoil_it() -> None:
    release = threading.Event()
    lookups = []

    def lookup(host: str, port: int) -> list[SocketAddress]:
        lookups.append(host)
        release.wait(60)
        return [("127.0.0.1", port)]

    guard = EgressGuard((ip_network("127.0.0.0/8"),), lookup)
    callers = [asyncio.create_task(guard.addresses("slow.example", 80)) for _ in range(10)]
    await asyncio.sleep(0)
    callers[0].cancel()
    release.set()
    found = await asyncio.gather(*callers, return_exceptions=True)
    guard.close()
    assert isinstance(found[0], asyncio.CancelledError)
    assert found[1:] == [[("127.0.0.1", 80)]] * 9
    assert lookups == ["slow.example"]


async def test_a_failed_lookup_is_not_remembered() -> None:
    answers_left: list[list[SocketAddress] | OSError] = [socket.gaierror(-3, "try again"), [("127.0.0.1", 80)]]

    def lookup(host: str, port: int) -> list[SocketAddress]:
        answer = answers_left.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    guard = EgressGuard((ip_network("127.0.0.0/8"),), lookup)
    with pytest.raises(ConnectFailed):
        await guard.addresses("flaky.example", 80)
    assert await guard.addresses("flaky.example", 80) == [("127.0.0.1", 80)]
    guard.close()


async def test_the_number_of_remembered_names_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.delivery.egress.MAX_CACHED_NAMES", 3)
    names = Names("127.0.0.1")
    guard = EgressGuard((ip_network("127.0.0.0/8"),), names)
    for host in ("a", "b", "c", "d", "d", "a"):
        await guard.addresses(host, 80)
    guard.close()
    assert names.lookups == 5


def test_the_system_reads_addresses_in_odd_forms() -> None:
    assert system_lookup("0x7f.1", 80) == [("127.0.0.1", 80)]
    assert system_lookup("::1", 80) == [("::1", 80, 0, 0)]
