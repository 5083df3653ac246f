"""What the router and the dispatcher rely on, of every kind of source and publisher (penstock.queues.port)."""

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.domain.errors import NotFound, Unavailable
from penstock.domain.limits import KIB
from penstock.domain.pointer import MessagePointer, encode_pointer
from penstock.edge.clock import SystemClock
from penstock.queues.port import Publication, Received, Source
from tests.sources.receiving import PATIENCE_S, bodies, numbered, publications, take, take_until
from tests.sources.rig import SourceRig
from tests.sources.rigs import RIGS

CHILD = Path(__file__).parents[1] / "sources" / "consumer_child.py"
ROOT = Path(__file__).parents[2]


def of_kinds(kinds: Iterable[type[SourceRig]]) -> pytest.MarkDecorator:
    """A test for kinds of source; each kind stays with one worker, so that its broker starts once."""
    params = [pytest.param(kind, marks=pytest.mark.xdist_group(kind.name), id=kind.name) for kind in kinds]
    return pytest.mark.parametrize("rig", params, indirect=True)


EVERY = of_kinds(RIGS)


def those_that(claim: Callable[[type[SourceRig]], bool]) -> pytest.MarkDecorator:
    """The kinds of source of which this holds."""
    return of_kinds(rig for rig in RIGS if claim(rig))


@pytest.fixture
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[SourceRig]:
    """A queue of this kind."""
    kind: type[SourceRig] = request.param
    async with kind.on_new_queue(request) as made:
        yield made


# What is settled for sure


@EVERY
async def test_a_publisher_says_before_when_everything_is_settled(rig: SourceRig) -> None:
    clock = SystemClock()
    async with rig.publishing() as publisher, rig.consuming() as source, asyncio.timeout(PATIENCE_S):
        asked_ms = clock.now_ms()
        assert await publisher.settled_before_ms() >= asked_ms

        await publisher.publish(publications("first"))
        first_ms = clock.now_ms()
        assert await publisher.settled_before_ms() <= first_ms
        # The answer of some is in whole seconds.
        await asyncio.sleep(2.1)
        await publisher.publish(publications("second", group="another"))
        second_ms = clock.now_ms()
        received = await take(source, 2)
        # A message that a consumer has is not settled.
        assert await publisher.settled_before_ms() <= first_ms

        (first,) = [message for message in received if message.body == b"first"]
        await source.ack(first)
        if rig.knows_the_oldest:
            assert first_ms < await publisher.settled_before_ms() <= second_ms
        await asyncio.gather(*(source.ack(message) for message in received if message is not first))
        assert await publisher.settled_before_ms() >= second_ms


# Handing out


@those_that(lambda rig: rig.ordered)
async def test_the_messages_of_each_group_come_in_order(rig: SourceRig) -> None:
    await rig.publish(*numbered(12, "a", "b", "c"))

    async with rig.consuming() as source:
        said = bodies(await take(source, 36, ack=True))

    for group in "abc":
        assert [text for text in said if text.startswith(group)] == [f"{group}-{number}" for number in range(12)]


@those_that(lambda rig: rig.ordered)
async def test_messages_published_one_by_one_at_once_come_in_the_order_they_were_published(rig: SourceRig) -> None:
    async with rig.publishing() as publisher:
        for message in numbered(20, "g"):
            assert await publisher.publish([message]) == [None]

    async with rig.consuming() as source:
        assert bodies(await take(source, 20, ack=True)) == [f"g-{number}" for number in range(20)]


@those_that(lambda rig: rig.hands_out_followers)
async def test_one_receive_may_hold_several_messages_of_a_group(rig: SourceRig) -> None:
    await rig.publish(*publications("1", "2", "3"))

    async with rig.consuming() as source:
        received = await take(source, 3)

    assert sorted(bodies(received)) == ["1", "2", "3"]
    if rig.ordered:
        assert bodies(received) == ["1", "2", "3"]


@EVERY
async def test_a_waiting_receive_ends_as_soon_as_a_message_comes(rig: SourceRig) -> None:
    async with rig.consuming() as source, asyncio.timeout(PATIENCE_S):
        waiting = asyncio.create_task(take(source, 1))
        await asyncio.sleep(0.05)
        await rig.publish(*publications("late"))
        assert bodies(await waiting) == ["late"]


@EVERY
async def test_a_message_carries_its_body_as_it_was(rig: SourceRig) -> None:
    texts = ['{"id":"1"}', 'čšž 💧 \t\r\n"\\/ \u2028', " ", "x" * (rig.largest_body_bytes - 64 * KIB)]
    await rig.publish(*publications(*texts))

    async with rig.consuming() as source:
        assert sorted(bodies(await take(source, len(texts), ack=True))) == sorted(texts)


@those_that(lambda rig: rig.carries_groups)
async def test_a_message_carries_its_group(rig: SourceRig) -> None:
    groups = ["plain", "sub:key/with.all*sorts>of$ signs", "ключ 💧", "long" * 60, None]
    await rig.publish(*(Publication(repr(group).encode(), group, repr(group)) for group in groups))

    async with rig.consuming() as source:
        received = await take(source, len(groups), ack=True)

    for message in received:
        assert repr(message.group) == message.body.decode()


@EVERY
async def test_messages_without_a_group_all_come(rig: SourceRig) -> None:
    await rig.publish(*publications("1", "2", "3", group=None))

    async with rig.consuming() as source:
        received = await take(source, 3, ack=True)

    assert sorted(bodies(received)) == ["1", "2", "3"]
    assert len({message.broker_id for message in received}) == 3


@those_that(lambda rig: rig.ordered and rig.keeps_order_with_receives_at_once)
async def test_receives_at_once_never_put_a_group_out_of_order(rig: SourceRig) -> None:
    await rig.publish(*numbered(15, "a", "b", "c"))
    handed_out: defaultdict[str | None, list[str]] = defaultdict(list)

    async def consume(source: Source) -> None:
        while sum(map(len, handed_out.values())) < 45:
            some = await source.receive()
            for message in some:
                handed_out[message.group].append(message.body.decode())
            await asyncio.gather(*map(source.ack, some))

    async with rig.consuming() as source, asyncio.timeout(PATIENCE_S):
        consumers = [asyncio.create_task(consume(source)) for _ in range(3)]
        await asyncio.wait(consumers, return_when=asyncio.FIRST_COMPLETED)
        for consumer in consumers:
            consumer.cancel()
        await asyncio.gather(*consumers, return_exceptions=True)

    assert handed_out == {group: [f"{group}-{number}" for number in range(15)] for group in "abc"}


@those_that(lambda rig: rig.ordered and rig.shared)
async def test_two_consumers_never_hold_one_group_at_once(rig: SourceRig) -> None:
    await rig.publish(*numbered(6, "a", "b"))

    async with rig.consuming() as one, rig.consuming() as other, asyncio.timeout(PATIENCE_S):
        held = await one.receive()
        groups = {message.group for message in held}
        await rig.publish(*publications("sentinel", group="elsewhere"))
        others: list[Received] = []
        while "sentinel" not in bodies(others):
            others += await other.receive()

    assert not groups & {message.group for message in others}


def in_body(number: int, group: str | None) -> bytes:
    """A pointer whose body names its group."""
    return encode_pointer(MessagePointer(str(number), "http://e.test/", message_group_id=group))


WHERE = ["header", "body", "none"]


@pytest.mark.parametrize("where", WHERE)
@EVERY
async def test_a_nacked_message_keeps_its_place_if_it_is_ordered(rig: SourceRig, where: str) -> None:
    group = "g" if where == "header" else None
    own = [in_body(number, "g" if where == "body" else None) for number in range(3)]
    await rig.publish(*(Publication(body, group, f"{where} {number}") for number, body in enumerate(own)))

    async with rig.consuming(visibility_s=60) as source:
        held = await source.receive()
        ordered = [message.ordered for message in held]
        first = min(held, key=lambda message: own.index(message.body))
        others = [message for message in held if message is not first]
        await asyncio.gather(source.nack(first, 1), *map(source.nack, others))
        again = [message.body for message in await take(source, 3, ack=True)]

    # SQS orders what has no group of its own in one group for all of these.
    assert all(ordered) is (rig.ordered and (where != "none" or rig.orders_without_group))
    assert not all(ordered) or again == own


# Settling


@those_that(lambda rig: rig.tests_the_client)
async def test_an_acked_message_never_comes_again(rig: SourceRig) -> None:
    await rig.publish(*publications("done"))

    async with rig.consuming(visibility_s=rig.brief_s) as source:
        await source.ack((await take(source, 1))[0])
        await asyncio.sleep(rig.brief_s + 0.2)  # past the end of its lease
        await rig.publish(*publications("sentinel"))
        assert await take_until(source, "sentinel") == ["sentinel"]


@EVERY
async def test_a_nacked_message_comes_again_at_once_with_the_same_id(rig: SourceRig) -> None:
    await rig.publish(*publications("again"))

    async with rig.consuming(visibility_s=60) as source:
        (first,) = await take(source, 1)
        await source.nack(first)
        (second,) = await take(source, 1)
        await source.ack(second)

    assert (second.broker_id, second.body, second.group) == (first.broker_id, b"again", first.group)
    assert second.handle != first.handle


@those_that(lambda rig: rig.tests_the_server)
async def test_a_nacked_message_waits_out_its_delay(rig: SourceRig) -> None:
    loop = asyncio.get_running_loop()
    await rig.publish(*publications("again"))

    async with rig.consuming(visibility_s=60) as source:
        (first,) = await take(source, 1)
        nacked_s = loop.time()
        await source.nack(first, 1)
        (second,) = await take(source, 1)
        waited_s = loop.time() - nacked_s
        await source.ack(second)

    assert second.broker_id == first.broker_id
    assert waited_s >= 0.95


@those_that(lambda rig: rig.ordered)
async def test_nothing_of_a_group_passes_a_message_that_waits_out_its_delay(rig: SourceRig) -> None:
    await rig.publish(*publications("1", "2", "3"))

    async with rig.consuming(visibility_s=60) as source:
        held = await source.receive()
        await asyncio.gather(source.nack(held[0], 1), *(source.nack(message) for message in held[1:]))
        await rig.publish(*publications("other", group="h"))
        said = bodies(await take(source, 4, ack=True))

    assert [text for text in said if text != "other"] == ["1", "2", "3"]


@those_that(lambda rig: rig.ordered)
async def test_messages_given_back_together_keep_their_order(rig: SourceRig) -> None:
    await rig.publish(*numbered(24, "g"))

    async with rig.consuming(visibility_s=60) as source:
        held = await source.receive()
        await asyncio.gather(*map(source.nack, held))
        held = await source.receive()
        await asyncio.gather(*map(source.nack, reversed(held)))
        assert bodies(await take(source, 24, ack=True)) == [f"g-{number}" for number in range(24)]


@those_that(lambda rig: rig.ordered)
async def test_a_head_that_is_given_back_stays_before_those_that_were_acked_after_it(rig: SourceRig) -> None:
    await rig.publish(*numbered(6, "g"))

    async with rig.consuming(visibility_s=60) as source:
        held = await source.receive()
        await asyncio.gather(source.nack(held[0], 1), *map(source.ack, held[1:]))
        left = bodies(await take(source, 6 - len(held) + 1, ack=True))

    assert left == ["g-0", *(f"g-{number}" for number in range(len(held), 6))]


@EVERY
async def test_settling_twice_is_no_error(rig: SourceRig) -> None:
    await rig.publish(*publications("1"))

    async with rig.consuming() as source:
        (message,) = await take(source, 1)
        await source.ack(message)
        await source.ack(message)
        await source.nack(message)
        await source.extend([message])
        await rig.publish(*publications("sentinel"))
        assert await take_until(source, "sentinel") == ["sentinel"]


@EVERY
async def test_many_messages_are_settled_at_once(rig: SourceRig) -> None:
    await rig.publish(*(Publication(b"%d" % number, f"group {number}", str(number)) for number in range(35)))

    async with rig.consuming() as source:
        received = await take(source, 35)
        await asyncio.gather(*map(source.ack, received[:20]), *map(source.nack, received[20:]))
        again = await take(source, 15, ack=True)

    assert {message.broker_id for message in again} == {message.broker_id for message in received[20:]}


# Leases


@those_that(lambda rig: rig.leases_expire and rig.tests_the_server)
async def test_a_message_comes_again_when_its_lease_ends(rig: SourceRig) -> None:
    await rig.publish(*publications("1"))

    async with rig.consuming(visibility_s=rig.brief_s) as source:
        (first,) = await take(source, 1)
        (second,) = await take(source, 1)
        await source.ack(second)

    assert (second.broker_id, second.body) == (first.broker_id, b"1")
    assert second.handle != first.handle


@those_that(lambda rig: rig.leases_expire)
async def test_a_message_says_when_its_lease_started(rig: SourceRig) -> None:
    loop = asyncio.get_running_loop()
    await rig.publish(*publications("1"))
    async with rig.consuming(visibility_s=30) as source:
        opened_s = loop.time()
        (message,) = await take(source, 1, ack=True)

    assert opened_s - 1 <= message.leased_s <= loop.time()


@those_that(lambda rig: rig.leases_expire and rig.keeps_order_when_leases_expire and rig.tests_the_server)
async def test_a_group_whose_leases_ended_comes_again_in_order(rig: SourceRig) -> None:
    await rig.publish(*publications("1", "2", "3"))

    async with rig.consuming(visibility_s=3 * rig.brief_s) as source:
        await source.receive()
        again = await take(source, 3, ack=True)

    assert sorted(bodies(again)) == ["1", "2", "3"]
    if rig.ordered:
        assert bodies(again) == ["1", "2", "3"]


@those_that(lambda rig: rig.leases_expire and rig.shared and rig.remembers_late_acks)
async def test_a_message_acked_after_its_lease_ended_is_not_handed_out_again(rig: SourceRig) -> None:
    await rig.publish(*publications("late ack"))

    async with rig.consuming(visibility_s=rig.brief_s) as other, rig.consuming(visibility_s=rig.brief_s) as source:
        (late,) = await take(source, 1)
        await take(other, 1)  # its lease at `source` has ended
        await source.ack(late)
        await asyncio.sleep(rig.brief_s + 0.1)  # that of `other` ends, too
        await rig.publish(*publications("sentinel"))
        assert await take_until(source, "sentinel") == ["sentinel"]


@those_that(lambda rig: rig.leases_expire and rig.shared and rig.tests_the_server)
async def test_an_extended_message_stays_with_its_consumer(rig: SourceRig) -> None:
    await rig.publish(*publications("1", "2"))

    async with rig.consuming(2 * rig.brief_s) as source, rig.consuming(2 * rig.brief_s) as other:
        held = await take(source, 2) if rig.hands_out_followers else await source.receive()
        for _ in range(5):
            await asyncio.sleep(rig.brief_s / 2)
            await source.extend(held)
        await rig.publish(*publications("sentinel", group="elsewhere"))
        assert await take_until(other, "sentinel") == ["sentinel"]
        await asyncio.gather(*map(source.ack, held))


# Ending


@EVERY
async def test_a_cancelled_receive_loses_nothing(rig: SourceRig) -> None:
    said: set[str] = set()
    expected = {str(number) for number in range(12)}
    async with rig.consuming(visibility_s=rig.brief_s) as source, rig.publishing() as publisher:
        for number in range(12):
            receiving = asyncio.create_task(source.receive())
            if number % 3:
                await asyncio.sleep(0.002 * number)
            publication = Publication(str(number).encode(), str(number), str(number))
            assert await publisher.publish([publication]) == [None]
            receiving.cancel()
            with suppress(asyncio.CancelledError):
                for message in await receiving:
                    said.add(message.body.decode())
                    await source.ack(message)
        async with asyncio.timeout(PATIENCE_S):
            while said < expected:
                for message in await source.receive():
                    said.add(message.body.decode())
                    await source.ack(message)
    assert said == expected


@those_that(lambda rig: rig.tests_the_client)
async def test_what_was_not_settled_comes_again_after_close(rig: SourceRig) -> None:
    await rig.publish(*publications("1", "2", "3"))

    async with rig.consuming(visibility_s=rig.brief_s) as source:
        held = await source.receive()
    async with rig.consuming(visibility_s=30) as source:
        again = await take(source, 3, ack=True)

    assert {message.broker_id for message in held} <= {message.broker_id for message in again}
    if rig.ordered and rig.keeps_order_when_leases_expire:
        assert bodies(again) == ["1", "2", "3"]


@EVERY
async def test_close_finishes_what_was_settled(rig: SourceRig) -> None:
    await rig.publish(*(Publication(b"%d" % number, str(number), str(number)) for number in range(12)))

    async with rig.consuming(visibility_s=60) as source:
        received = await take(source, 12)
        settled = [*map(source.ack, received[:6]), *map(source.nack, received[6:])]
    assert all(settlement.done for settlement in settled)
    async with rig.consuming() as source:
        again = await take(source, 6, ack=True)

    assert {message.broker_id for message in again} == {message.broker_id for message in received[6:]}


@those_that(lambda rig: rig.tests_the_client)
async def test_a_killed_consumer_s_messages_come_to_another(rig: SourceRig) -> None:
    await rig.publish(*numbered(4, "g"))
    count = 4 if rig.hands_out_followers else 1
    command = [sys.executable, str(CHILD), rig.uri, "1", str(count)]

    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=ROOT)
    assert child.stdout is not None
    held = [await child.stdout.readline() for _ in range(count)]
    child.kill()
    assert await child.wait() == -9
    async with rig.consuming() as source:
        again = await take(source, 4, ack=True)

    assert {line.decode().strip() for line in held} <= {message.broker_id for message in again}
    if rig.ordered and rig.keeps_order_when_leases_expire:
        assert bodies(again) == ["g-0", "g-1", "g-2", "g-3"]


# Publishing


@those_that(lambda rig: rig.deduplicates)
async def test_two_publications_with_one_id_are_one_message(rig: SourceRig) -> None:
    same = Publication(b"once", "g", "the id")

    await rig.publish(same, Publication(b"between", "g", "another id"), same)
    await rig.publish(same, Publication(b"sentinel", "g", "a third id"))

    async with rig.consuming() as source:
        assert await take_until(source, "sentinel") == ["once", "between", "sentinel"]


@EVERY
async def test_equal_publications_without_an_id_are_messages_of_their_own(rig: SourceRig) -> None:
    await rig.publish(Publication(b"same", "g", None), Publication(b"same", "g", None))

    async with rig.consuming() as source:
        first, second = await take(source, 2, ack=True)

    assert first.broker_id != second.broker_id


@those_that(lambda rig: rig.refused_publication is not SourceRig.refused_publication)
async def test_a_refused_publication_keeps_the_later_ones_of_its_group_back(rig: SourceRig) -> None:
    refused = rig.refused_publication("g")
    before, after = publications("before", "after")

    async with rig.publishing() as publisher:
        results = await publisher.publish([before, refused, after, *publications("other", group="h")])
    async with rig.consuming() as source:
        said = bodies(await take(source, 2, ack=True))

    assert [result is None for result in results] == [True, False, False, True]
    assert sorted(said) == ["before", "other"]


@EVERY
async def test_publishing_nothing_is_fine(rig: SourceRig) -> None:
    async with rig.publishing() as publisher:
        assert await publisher.publish([]) == []


# When the broker is away


@those_that(lambda rig: rig.source_of_missing_queue is not SourceRig.source_of_missing_queue)
async def test_a_queue_that_is_not_there_is_told_when_opened(rig: SourceRig) -> None:
    source = rig.source_of_missing_queue()
    with pytest.raises(NotFound):
        await source.open()
    await source.close()


@those_that(lambda rig: rig.networked)
async def test_a_broker_that_is_away_is_told_when_opened(rig: SourceRig) -> None:
    assert rig.link is not None
    await rig.link.cut()
    source, publisher = rig.source(), rig.publisher()

    with pytest.raises(Unavailable):
        await source.open()
    with pytest.raises(Unavailable):
        await publisher.open()
    await asyncio.gather(source.close(), publisher.close())


@those_that(lambda rig: rig.networked and rig.tests_the_client)
async def test_a_receive_fails_when_the_connection_breaks_and_goes_on_when_it_is_back(rig: SourceRig) -> None:
    assert rig.link is not None
    # Brief, since a broker may hand messages to the broken connection for a while.
    async with rig.consuming(visibility_s=2) as source:
        receiving = asyncio.create_task(source.receive())
        await asyncio.sleep(0.1)
        await rig.link.cut()
        with pytest.raises(Unavailable):
            await asyncio.wait_for(receiving, PATIENCE_S)
        await rig.link.mend()
        await rig.publish(*publications("after"))
        assert bodies(await _take_from_a_shaken(source, 1)) == ["after"]


@those_that(lambda rig: rig.networked and rig.tests_the_client)
async def test_an_ack_that_does_not_arrive_fails_and_the_message_comes_again(rig: SourceRig) -> None:
    assert rig.link is not None
    await rig.publish(*publications("1"))
    async with rig.consuming(visibility_s=2) as source:
        (message,) = await take(source, 1)
        await rig.link.cut()
        with pytest.raises(Unavailable):
            await asyncio.wait_for(source.ack(message), PATIENCE_S)
        await rig.link.mend()
        (again,) = await _take_from_a_shaken(source, 1)
        await source.ack(again)

    assert again.broker_id == message.broker_id


@those_that(lambda rig: rig.networked and rig.tests_the_client)
async def test_publications_fail_while_the_broker_is_away_and_are_in_order_when_it_is_back(rig: SourceRig) -> None:
    assert rig.link is not None
    wanted = numbered(30, "a", "b")
    async with rig.publishing() as publisher:
        publishing = asyncio.create_task(publisher.publish(wanted))
        await asyncio.sleep(0)
        await rig.link.cut()
        results = await asyncio.wait_for(publishing, PATIENCE_S)
        await rig.link.mend()
        while any(results):  # a dispatcher tries those again that did not get in
            left = [message for message, result in zip(wanted, results, strict=True) if result is not None]
            for group in "ab":
                ended = [result for message, result in zip(wanted, results, strict=True) if message.group == group]
                first_failure = next((at for at, result in enumerate(ended) if result), len(ended))
                assert all(ended[first_failure:]), "a later one of the group got in"
            wanted, results = left, await _publish_to_a_shaken(rig, left)

    async with rig.consuming() as source:
        said = (
            bodies(await take(source, 60, ack=True)) if rig.deduplicates else await take_until(source, "a-29", "b-29")
        )
    if rig.ordered:
        for group in "ab":
            first_times = list(dict.fromkeys(text for text in said if text.startswith(group)))
            assert first_times == [f"{group}-{number}" for number in range(30)]


async def _take_from_a_shaken(source: Source, count: int) -> list[Received]:
    """Take from a source whose connection was broken: it may tell so once more."""
    taken: list[Received] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(taken) < count:
            try:
                taken += await source.receive()
            except Unavailable:
                await asyncio.sleep(0.05)
    return taken


async def _publish_to_a_shaken(rig: SourceRig, wanted: list[Publication]) -> "list[Exception | None]":
    async with rig.publishing() as publisher:
        return await publisher.publish(wanted)
