"""NATS JetStream itself: what the source makes of its redeliveries, crashes and restarts."""

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest
from nats.js.api import AckPolicy, ConsumerConfig

from penstock.domain.errors import FailedPrecondition, NotFound, Unavailable
from penstock.queues.nats.publisher import NatsPublisher
from penstock.queues.nats.source import NatsSource
from penstock.queues.port import Publication, Received, Source
from penstock.queues.uri import Login, NatsUri
from tests.services.nats import NatsServer, running_nats
from tests.sources.receiving import PATIENCE_S, bodies, numbered, publications, take
from tests.sources.rig_nats import NatsRig, new_stream

pytestmark = pytest.mark.xdist_group("nats")
ROOT = Path(__file__).parents[2]
GROUPS = (b"a", b"b", b"c", b"d")
# Takes everything, acks what is not the first of its group, and waits for its end.
CHILD = """
import asyncio, sys
from penstock.queues.open import QueueSpec, source_for

async def main():
    source = source_for(QueueSpec("child", sys.argv[1], visibility_timeout=int(sys.argv[2])))
    await source.open()
    held = []
    while len(held) < int(sys.argv[3]):
        held += await source.receive()
    await asyncio.gather(*(source.ack(message) for message in held if not message.body.endswith(b"-0")))
    print("acked", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
async def rig(request: pytest.FixtureRequest, nats_server: NatsServer) -> AsyncIterator[NatsRig]:
    async with NatsRig.on_new_queue(request) as made:
        yield made


async def run_and_kill_a_consumer(rig: NatsRig, visibility_s: int, count: int) -> None:
    """A consumer process that acked some messages and was killed while it held the others."""
    command = [sys.executable, "-c", CHILD, rig.uri, str(visibility_s), str(count)]
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=ROOT)
    assert child.stdout is not None
    assert await child.stdout.readline() == b"acked\n"
    child.kill()
    await child.wait()


async def consume(source: Source, count: int, said: "defaultdict[str | None, list[str]]") -> None:
    """Take and ack until this many different messages came; says of each group what came for the first time."""
    seen: set[str] = set()
    async with asyncio.timeout(3 * PATIENCE_S):
        while len(seen) < count:
            try:
                some = await source.receive()
                for message in some:
                    if message.broker_id not in seen:
                        said[message.group].append(message.body.decode())
                    seen.add(message.broker_id)
                await asyncio.gather(*map(source.ack, some))
            except Unavailable:
                await asyncio.sleep(0.02)


async def until_longer_than(length: int, texts: list[str]) -> None:
    """Look in every round of the event loop."""
    while len(texts) <= length:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)


async def test_after_a_kill_groups_go_on_where_the_dead_router_left_them(rig: NatsRig) -> None:
    await rig.publish(*numbered(3, "a", "b"))
    await run_and_kill_a_consumer(rig, 1, 6)
    await rig.publish(*(Publication(b"%s-%d" % (group.encode(), n), group, None) for n in (3, 4) for group in "ab"))

    said: defaultdict[str | None, list[str]] = defaultdict(list)
    async with rig.consuming() as source:
        await consume(source, 6, said)

    # 1 and 2 were acked; 0 comes back when its lease ends, later than JetStream hands out 3 and 4.
    assert said == {group: [f"{group}-0", f"{group}-3", f"{group}-4"] for group in "ab"}


async def test_messages_without_a_group_do_not_wait_for_those_of_a_dead_router(rig: NatsRig) -> None:
    await rig.publish(*numbered(2, "a"))
    await run_and_kill_a_consumer(rig, 2, 2)
    await rig.publish(*publications("a-2", group="a"), *publications("free", group=None))

    async with rig.consuming() as source:
        assert bodies(await take(source, 3, ack=True)) == ["free", "a-0", "a-2"]


async def test_a_router_that_was_closed_keeps_its_successor_waiting_for_nothing(rig: NatsRig) -> None:
    await rig.publish(*numbered(30, "a", "b"))
    async with rig.consuming(visibility_s=600) as source:
        held = await source.receive()
        await asyncio.gather(*map(source.ack, held[1:]))

    said: defaultdict[str | None, list[str]] = defaultdict(list)
    async with rig.consuming(visibility_s=600) as source:
        await consume(source, 60 - len(held) + 1, said)

    assert held[0].body.decode() == said["a"][0] == "a-0"
    # How many came with the first is a matter of time.
    done = set(bodies(held[1:]))
    assert said["b"] == [body for number in range(30) if (body := f"b-{number}") not in done]


async def test_deliveries_lost_with_their_connection_put_no_group_out_of_order(rig: NatsRig) -> None:
    assert rig.link is not None
    # Long enough that a cut finds deliveries on their way.
    padding = b" " * 16_000
    messages = [
        Publication(b"%s-%03d" % (group, n) + padding, group.decode(), None) for n in range(60) for group in GROUPS
    ]
    await rig.publish(*messages)
    said: defaultdict[str | None, list[str]] = defaultdict(list)

    async with rig.consuming(visibility_s=1) as source:
        consuming = asyncio.create_task(consume(source, len(messages), said))
        for cuts in range(4):
            await until_longer_than(3 * cuts, said["a"])
            await rig.link.cut()
            await rig.link.mend()
        await consuming

    for group, texts in said.items():
        assert [text.strip() for text in texts] == [f"{group}-{n:03}" for n in range(60)]


async def test_a_server_that_is_killed_and_comes_back_loses_nothing_and_keeps_order(
    own_nats_server: NatsServer,
) -> None:
    uri = NatsUri("127.0.0.1", own_nats_server.port, "orders", "router")
    client = await nats.connect(own_nats_server.url)
    await client.jetstream().add_stream(name="orders", subjects=["orders"])
    await client.close()
    publisher = NatsPublisher(uri)
    await publisher.open()
    assert await publisher.publish(numbered(30, "a", "b")) == [None] * 60
    await publisher.close()
    said: defaultdict[str | None, list[str]] = defaultdict(list)

    source = NatsSource("orders", uri, visibility_s=1)
    await source.open()
    held = await source.receive()
    own_nats_server.kill()
    with pytest.raises(Unavailable):
        await source.ack(held[0])
    own_nats_server.start()
    await consume(source, 60, said)
    await source.close()

    assert said == {group: [f"{group}-{number}" for number in range(30)] for group in "ab"}


async def test_a_group_that_waits_does_not_keep_others_waiting(rig: NatsRig) -> None:
    blocked = [Publication(b"blocked %d" % number, "blocked", None) for number in range(600)]
    await rig.publish(*blocked, *publications("other", group="h"))

    async with rig.consuming(visibility_s=60) as source, asyncio.timeout(PATIENCE_S):
        others: list[Received] = []
        while not others:
            held = await source.receive()
            others = [message for message in held if message.group == "h"]
            await asyncio.gather(*(source.nack(message, 600) for message in held if message.group != "h"))

    assert bodies(others) == ["other"]


async def test_waiting_messages_are_kept_ours_without_being_delivered_again(
    rig: NatsRig, nats_server: NatsServer
) -> None:
    await rig.publish(*numbered(5, "a"))

    async with rig.consuming(visibility_s=4) as source:
        held = await source.receive()
        await asyncio.gather(*(source.nack(message, 6) for message in held))
        again = await take(source, 5)
        client = await nats.connect(nats_server.url)
        info = await client.jsm().consumer_info(rig.uri.split("/")[-2], "router")
        await client.close()
        await asyncio.gather(*map(source.ack, again))

    # Five messages, five deliveries: the delay of six seconds outlived no lease of four.
    assert info.delivered is not None
    assert info.delivered.consumer_seq == 5
    assert info.num_redelivered == 0


async def test_a_consumer_gets_the_lease_that_is_asked_for(rig: NatsRig, nats_server: NatsServer) -> None:
    leases = []
    client = await nats.connect(nats_server.url)
    for visibility_s in (3, 7):
        async with rig.consuming(visibility_s=visibility_s):
            info = await client.jsm().consumer_info(rig.uri.split("/")[-2], "router")
            leases.append((info.config.ack_wait, info.config.max_ack_pending))
    await client.close()

    assert leases == [(3, 10_000), (7, 10_000)]


async def test_a_missing_stream_is_told_with_what_to_do(nats_server: NatsServer) -> None:
    publisher = NatsPublisher(NatsUri("127.0.0.1", nats_server.port, "nowhere", "router"))

    with pytest.raises(NotFound, match="nats stream add nowhere"):
        await publisher.open()
    await publisher.close()


async def test_a_consumer_that_does_not_acknowledge_is_refused(rig: NatsRig, nats_server: NatsServer) -> None:
    client = await nats.connect(nats_server.url)
    stream = rig.uri.split("/")[-2]
    await client.jsm().add_consumer(stream, ConsumerConfig(durable_name="router", ack_policy=AckPolicy.NONE))
    await client.close()

    source = rig.source()
    with pytest.raises(FailedPrecondition, match="explicit acknowledgement"):
        await source.open()
    await source.close()


@pytest.mark.parametrize(
    ("options", "login"),
    [
        (("--user", "me", "--pass", "se:cret"), Login("me", "se:cret")),
        (("--auth", "the-token"), Login("the-token", "")),
    ],
    ids=["password", "token"],
)
async def test_it_logs_in_and_never_shows_the_secret(tmp_path: Path, options: tuple[str, ...], login: Login) -> None:
    with running_nats(tmp_path / "nats", *options) as server:
        uri = NatsUri("127.0.0.1", server.port, "nowhere", "router", login)
        right, wrong = NatsSource("q", uri, visibility_s=5), NatsSource("q", _with_login(uri, "wrong"), visibility_s=5)
        with pytest.raises(NotFound) as logged_in:
            await right.open()
        with pytest.raises(Unavailable) as refused:
            await wrong.open()
        await asyncio.gather(right.close(), wrong.close())

    for told in (logged_in, refused):
        assert not any(secret in str(told.value) for secret in ("se:cret", "the-token", "wrong"))


async def test_a_stream_that_takes_no_more_says_so_per_message(nats_server: NatsServer) -> None:
    async with new_stream(nats_server, "full"):
        client = await nats.connect(nats_server.url)
        await client.jetstream().update_stream(name="full", subjects=["full"], max_msgs=2, discard="new")
        await client.close()
        publisher = NatsPublisher(NatsUri("127.0.0.1", nats_server.port, "full", "router"))
        await publisher.open()
        results = await publisher.publish(publications("1", "2", "3", "4"))
        await publisher.close()

    assert [type(result).__name__ for result in results] == ["NoneType", "NoneType", "BrokerRefused", "HeldBack"]


def _with_login(uri: NatsUri, secret: str) -> NatsUri:
    return NatsUri(uri.host, uri.port, uri.stream, uri.consumer, Login("me", secret))
