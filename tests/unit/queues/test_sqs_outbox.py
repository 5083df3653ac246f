"""Which messages go into a batch, so that a group stays in order whatever fails."""

import asyncio
from collections import defaultdict
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.queues.errors import BrokerUnavailable, HeldBack
from penstock.queues.sqs.actions import SendEntry
from penstock.queues.sqs.publisher import OutgoingMessage, SqsOutbox


class _Sent(asyncio.Future[None]):
    """A future that needs no running loop."""

    def __init__(self) -> None:
        super().__init__(loop=_LOOP)

    def finish(self, index: int, error: Exception | None) -> None:
        assert index == _PLACE
        if error is None:
            self.set_result(None)
        else:
            self.set_exception(error)


_PLACE = 7
_LOOP = asyncio.new_event_loop()
_LOOP.close()


def parcel(text: str, group: str | None, size_bytes: int = 1) -> OutgoingMessage:
    return OutgoingMessage(group, SendEntry("", text), size_bytes, _Sent(), _PLACE)


def sent(of: OutgoingMessage) -> _Sent:
    assert isinstance(of.sender, _Sent)
    return of.sender


def filled(*parcels: OutgoingMessage, together: bool = False, most: int = 3, most_bytes: int = 100) -> SqsOutbox:
    outbox = SqsOutbox(most, most_bytes)
    outbox.whole_groups = together
    for each in parcels:
        outbox.add(each)
    return outbox


def texts(batch: list[OutgoingMessage]) -> list[str]:
    return [each.entry.message_body for each in batch]


def test_a_batch_holds_one_message_of_each_group() -> None:
    outbox = filled(parcel("a1", "a"), parcel("a2", "a"), parcel("b1", "b"))
    assert texts(outbox.next_batch()) == ["a1", "b1"]
    assert not outbox


def test_a_group_goes_on_when_its_message_is_in() -> None:
    outbox = filled(parcel("a1", "a"), parcel("a2", "a"))
    batch = outbox.next_batch()
    outbox.ended(batch, [None])
    assert sent(batch[0]).done()
    assert texts(outbox.next_batch()) == ["a2"]


def test_a_server_known_to_take_a_group_together_gets_several_of_it_in_a_batch() -> None:
    outbox = filled(*(parcel(f"a{number}", "a") for number in range(5)), parcel("b", "b"), together=True)
    assert texts(outbox.next_batch()) == ["a0", "a1", "a2"]
    assert texts(outbox.next_batch()) == ["b"]


def test_a_failure_holds_the_later_ones_of_the_group_back() -> None:
    first, second, other = parcel("a1", "a"), parcel("a2", "a"), parcel("b1", "b")
    outbox = filled(first, second, other)
    failure = BrokerUnavailable("away")
    outbox.ended(outbox.next_batch(), [failure, None])
    assert sent(first).exception() is failure
    assert isinstance(sent(second).exception(), HeldBack)
    assert sent(other).exception() is None
    assert not outbox


def test_a_group_that_failed_may_be_sent_again() -> None:
    first, again = parcel("a1", "a"), parcel("a1", "a")
    outbox = filled(first)
    outbox.ended(outbox.next_batch(), [BrokerUnavailable("away")])
    assert sent(first).exception()
    outbox.add(again)
    assert outbox.next_batch() == [again]


def test_messages_without_a_group_fill_a_batch_and_fail_alone() -> None:
    parcels = [parcel(str(number), None) for number in range(4)]
    outbox = filled(*parcels)
    batch = outbox.next_batch()
    assert texts(batch) == ["0", "1", "2"]
    outbox.ended(batch, [BrokerUnavailable("away"), None, None])
    assert [sent(each).done() and sent(each).exception() is None for each in parcels] == [False, True, True, False]
    assert texts(outbox.next_batch()) == ["3"]


def test_a_batch_stays_within_the_size_a_request_may_have() -> None:
    outbox = filled(parcel("a", "a", 60), parcel("b", "b", 60), parcel("c", "c", 200))
    assert [texts(outbox.next_batch()) for _ in range(3)] == [["a"], ["b"], ["c"]]
    assert not outbox


@pytest.mark.parametrize("together", [False, True])
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 70)), max_size=30), st.randoms())
def test_what_got_in_is_the_beginning_of_each_group(
    together: bool, wanted: list[tuple[str, int]], random: Random
) -> None:
    parcels = [parcel(str(number), group, size) for number, (group, size) in enumerate(wanted)]
    outbox = filled(*parcels, together=together)
    got_in: defaultdict[str | None, list[OutgoingMessage]] = defaultdict(list)
    under_way: list[list[OutgoingMessage]] = []
    while outbox or under_way:
        if outbox and (not under_way or random.random() < 0.5):
            under_way.append(outbox.next_batch())
            continue
        batch = under_way.pop(random.randrange(len(under_way)))
        failing = {each.group for each in batch if random.random() < 0.2}
        for each in batch:
            if each.group not in failing:
                got_in[each.group].append(each)
        outbox.ended(batch, [BrokerUnavailable("") if each.group in failing else None for each in batch])
    for group in "abc":
        mine = [each for each in parcels if each.group == group]
        assert got_in[group] == mine[: len(got_in[group])]
        assert all(sent(each).exception() for each in mine[len(got_in[group]) :])
