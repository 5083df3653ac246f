"""Batching: what is asked in one moment goes together, and nothing is kept waiting that could go."""

import asyncio
from collections.abc import Sequence

import pytest

from penstock.queues.batcher import Batcher
from penstock.queues.errors import BrokerUnavailable
from penstock.queues.port import Confirmation, confirmed


class Wire:
    """Carries batches out when the test says so."""

    def __init__(self, *, most: int = 3, at_once: int = 2) -> None:
        self.batches: list[list[str]] = []
        self.under_way: list[asyncio.Future[Sequence[Exception | None]]] = []
        self.batcher: Batcher[str] = Batcher(self.carry, max_batch=most, max_running=at_once)

    async def carry(self, batch: Sequence[str]) -> Sequence[Exception | None]:
        self.batches.append(list(batch))
        self.under_way.append(asyncio.get_running_loop().create_future())
        return await self.under_way[-1]

    def add(self, items: str) -> list[Confirmation]:
        return [self.batcher.add(item) for item in items]

    async def end(self, place: int) -> None:
        """Let a batch succeed."""
        self.under_way[place].set_result([None] * len(self.batches[place]))
        await settled()


async def settled() -> None:
    """Let the loop run what is ready."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_is_added_in_one_round_goes_together() -> None:
    wire = Wire()
    added = wire.add("ab")
    assert wire.batches == []
    await settled()
    assert wire.batches == [["a", "b"]]
    await wire.end(0)
    assert all(each.done for each in added)


async def test_a_full_batch_goes_without_waiting_for_the_others() -> None:
    wire = Wire()
    wire.add("abcdef")
    await settled()
    assert wire.batches == [["a", "b", "c"], ["d", "e", "f"]]


async def test_no_more_batches_are_under_way_than_allowed() -> None:
    wire = Wire()
    wire.add("abcdefghi")
    await settled()
    assert len(wire.batches) == 2
    await wire.end(1)
    assert wire.batches[2:] == [["g", "h", "i"]]


async def test_a_batch_that_is_not_full_waits_while_another_is_under_way() -> None:
    wire = Wire()
    wire.add("a")
    await settled()
    wire.add("b")
    await settled()
    wire.add("c")
    await settled()
    assert wire.batches == [["a"]]
    await wire.end(0)
    assert wire.batches == [["a"], ["b", "c"]]


async def test_each_item_ends_as_its_batch_says() -> None:
    wire = Wire()
    good, bad = wire.add("ab")
    await settled()
    wire.under_way[0].set_result([None, ValueError("b")])
    await good
    with pytest.raises(ValueError, match="b"):
        await bad


async def test_a_batch_that_cannot_be_carried_out_fails_all_its_items_and_no_others() -> None:
    wire = Wire()
    first = wire.add("abc")
    last = wire.add("d")
    await settled()
    wire.under_way[0].set_exception(OSError("gone"))
    await settled()
    assert [str(each.error) for each in first] == ["gone"] * 3
    await wire.end(1)
    assert last[0].done


async def test_draining_carries_everything_out() -> None:
    wire = Wire(at_once=1)
    added = wire.add("abcd")
    draining = asyncio.create_task(wire.batcher.drain())
    await settled()
    await wire.end(0)
    assert not draining.done()
    await wire.end(1)
    await draining
    assert wire.batches == [["a", "b", "c"], ["d"]]
    assert all(each.done for each in added)


async def test_one_that_nobody_waits_for_any_more_harms_no_other() -> None:
    wire = Wire()
    gone, other = wire.add("ab")
    waiting = asyncio.ensure_future(gone)
    await settled()
    waiting.cancel()
    await wire.end(0)
    await other


async def test_one_that_cannot_hear_its_end_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    wire = Wire()
    deaf, other = wire.add("ab")
    deaf.listen(lambda error: raises(ValueError("deaf")))
    heard: list[Exception | None] = []
    other.listen(heard.append)
    await settled()
    await wire.end(0)
    assert heard == [None]
    assert "the listener of a settlement failed" in caplog.text


async def test_one_that_was_told_tells_at_once() -> None:
    heard: list[Exception | None] = []
    failure = ValueError("no")
    confirmed(failure).listen(heard.append)
    assert heard == [failure]
    with pytest.raises(ValueError, match="no"):
        await confirmed(failure)
    await confirmed()


async def test_a_batch_that_is_broken_off_fails_its_items() -> None:
    wire = Wire()
    added = wire.add("ab")
    await settled()
    wire.under_way[0].cancel()
    await settled()
    assert all(isinstance(each.error, BrokerUnavailable) for each in added)


def raises(error: Exception) -> None:
    raise error
