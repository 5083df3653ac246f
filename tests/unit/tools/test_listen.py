"""The receiver of `penstock listen`: what it says about signatures and order, over real connections."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import msgspec
import pytest

from penstock.delivery import AnyAddress, HttpClient, head_with, own_part_settings
from penstock.domain.limits import KIB
from penstock.domain.signing import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, sign
from penstock.edge.clock import wall_seconds
from penstock.http.server import HttpServer
from penstock.tools.listen import HeardDelivery, Listener, Place, Signed

SECRET = "whsec_" + "c2VjcmV0IG9mIGEgdGVzdA=="
OTHER = "whsec_" + "YW5vdGhlciBzZWNyZXQgb2Y="


class Sender:
    """Sends deliveries as Penstock does."""

    def __init__(self, url: str, client: HttpClient) -> None:
        self._url = url
        self._client = client

    async def send(
        self,
        webhook_id: str,
        key: str | None = "order-1",
        *,
        secret: str = SECRET,
        number: int | None = None,
        **event: object,
    ) -> int:
        given = {"specversion": "1.0", "id": webhook_id, "source": "/", "type": "orders:paid", "partitionkey": key}
        body = msgspec.json.encode({**given, **event})
        signed = sign([secret], webhook_id, int(wall_seconds()), body)
        numbered = {} if number is None or key is None else {"penstock-key": key, "penstock-sequence": str(number)}
        return await self.post(
            numbered
            | {
                ID_HEADER: webhook_id,
                TIMESTAMP_HEADER: signed.timestamp,
                SIGNATURE_HEADER: signed.signatures,
                "penstock-subscription": "billing",
            },
            body,
        )

    async def post(self, headers: Mapping[str, str], body: bytes) -> int:
        head = head_with(self._url, tuple(headers.items()), "POST")
        return (await self._client.send(head, body)).status


class World:
    """A listener, what it has reported, and a sender."""

    def __init__(self, secrets: list[str], status: int = 200, most: int | None = None) -> None:
        self.heard: list[HeardDelivery] = []
        self.news: asyncio.Queue[HeardDelivery] = asyncio.Queue()
        self.listener = Listener(secrets, status, self._hear, most)

    def _hear(self, delivery: HeardDelivery) -> None:
        self.heard.append(delivery)
        self.news.put_nowait(delivery)

    @property
    def places(self) -> list[Place]:
        return [each.order for each in self.heard]


@asynccontextmanager
async def sending(world: World) -> AsyncIterator[Sender]:
    """Start the listener; deliveries are sent to it."""
    async with (
        HttpServer(world.listener, "127.0.0.1", 0) as server,
        HttpClient(AnyAddress(), own_part_settings(30, KIB)) as client,
    ):
        yield Sender(f"{server.url}/hook", client)


@pytest.fixture
def world() -> World:
    return World([SECRET])


@pytest.fixture
async def sender(world: World) -> AsyncIterator[Sender]:
    async with sending(world) as made:
        yield made


async def reported(world: World, count: int) -> None:
    async with asyncio.timeout(30):
        for _ in range(count):
            await world.news.get()


async def test_deliveries_of_a_key_are_checked_for_order_and_repetition(world: World, sender: Sender) -> None:
    for webhook_id in ("1-a", "3-a", "3-a", "2-a", "4-a"):
        assert await sender.send(webhook_id) == 200
    await reported(world, 5)
    assert world.places == [Place.IN_ORDER, Place.IN_ORDER, Place.REPEATED, Place.OUT_OF_ORDER, Place.IN_ORDER]
    assert (world.listener.tally.received, world.listener.tally.repeated, world.listener.tally.ok) == (5, 1, False)


async def test_numbers_that_are_left_out_are_named(world: World, sender: Sender) -> None:
    for number in (1, 4, 3):
        await sender.send(f"{number}-a", number=number)
    await reported(world, 3)
    assert [list(each.missing) for each in world.heard] == [[], [2, 3], []]
    assert world.listener.tally.missing == 1


async def test_an_event_in_binary_mode_is_read_from_its_headers(world: World, sender: Sender) -> None:
    signed = sign([SECRET], "1-a", int(wall_seconds()), b'{"total":7}')
    headers = {
        "ce-specversion": "1.0",
        "ce-id": "1",
        "ce-source": "/",
        "ce-type": "orders:paid",
        "ce-partitionkey": "k%201",
    }
    signature = {TIMESTAMP_HEADER: signed.timestamp, SIGNATURE_HEADER: signed.signatures, ID_HEADER: "1-a"}
    assert await sender.post(headers | signature | {"content-type": "application/json"}, b'{"total":7}') == 200
    await reported(world, 1)
    (heard,) = world.heard
    assert (heard.type, heard.key, heard.data, heard.order) == ("orders:paid", "k 1", {"total": 7}, Place.IN_ORDER)


async def test_keys_and_priorities_have_orders_of_their_own(world: World, sender: Sender) -> None:
    await sender.send("5-a")
    await sender.send("4-a", "order-2")
    await sender.send("3-a", highpriority="true")
    await sender.send("2-a", None)
    await reported(world, 4)
    assert world.places == [Place.IN_ORDER, Place.IN_ORDER, Place.IN_ORDER, Place.NO_ORDER]
    assert world.listener.tally.ok


async def test_what_the_secret_did_not_sign_is_refused_and_is_no_step_of_its_key(world: World, sender: Sender) -> None:
    assert await sender.send("9-a", secret=OTHER) == 401
    assert await sender.send("1-a") == 200
    await reported(world, 2)
    assert [each.signature for each in world.heard] == [Signed.INVALID, Signed.VALID]
    assert world.places[1] is Place.IN_ORDER
    assert not world.listener.tally.ok


async def test_without_a_secret_nothing_is_verified_and_any_body_is_shown() -> None:
    world = World([], status=503, most=2)
    async with sending(world) as sender:
        assert await sender.send("1-a") == 503
        assert await sender.post({"penstock-attempt": "many"}, b"\xff not an event") == 503
        await world.listener.enough.wait()
        assert [each.signature for each in world.heard] == [Signed.UNCHECKED, Signed.MISSING]
        assert (world.heard[1].type, world.heard[1].data) == (None, "� not an event")
