"""Simulated histories of a cluster: many seeds hold, a seed repeats, and a cluster with a defect is found out."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from penstock.sqs.queue.queue import SqsQueue
from penstock.testing.simulation.history import InvariantBroken
from penstock.testing.virtual_loop import START_MS, LoopClock
from tests.cluster.simulated.database import SimulatedMembership, SimulatedStore
from tests.cluster.simulated.world import simulate_cluster
from tests.rigs.search import search_seeds, seed_chunks

CHUNKS = seed_chunks(4, int(os.environ.get("SIMULATED_CLUSTER_SEEDS", "200")), chunk=2, long_chunk=20)
# A node got a shard back, and gave a new lease the number of one that it had continued.
EVER_FAILED = (3_100_000_005,)
FOUND_WITHIN = 20


@pytest.fixture(autouse=True)
def no_logs() -> Iterator[None]:
    """What nodes log in so much trouble would only take time."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("chunk", CHUNKS, ids=str)
def test_every_promise_holds(chunk: tuple[int, int]) -> None:
    search_seeds(simulate_cluster, chunk, "python -m tests.cluster.simulated")


@pytest.mark.parametrize("seed", EVER_FAILED)
def test_a_seed_that_failed_once_holds(seed: int) -> None:
    assert simulate_cluster(seed).receipts


def test_a_seed_repeats() -> None:
    one, other = simulate_cluster(7), simulate_cluster(7)
    assert one.faults == other.faults
    assert [(each.group, each.number, each.asked_s) for each in one.receipts] == [
        (each.group, each.number, each.asked_s) for each in other.receipts
    ]


def receive_without_storing_leases(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SqsQueue, "keeps_leases", property(lambda _: False, lambda _, value: None), raising=False)


def write_although_another_owns_the_shard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedStore, "_owned", lambda store: store._database._files[store._shard])
    patch.setattr(SimulatedStore, "require_owned", lambda _: None)


def go_by_the_clock_of_each_machine(patch: pytest.MonkeyPatch) -> None:
    starts = count(START_MS, 30_000)
    begin = SimulatedMembership.__init__

    def begin_with_a_clock(membership: SimulatedMembership, *arguments: object) -> None:
        begin(membership, *arguments)  # type: ignore[arg-type]
        membership.own_clock = LoopClock(asyncio.get_running_loop(), next(starts))  # type: ignore[attr-defined]

    patch.setattr(SimulatedMembership, "__init__", begin_with_a_clock)
    patch.setattr(SimulatedMembership, "clock", property(lambda membership: membership.own_clock))


@pytest.mark.parametrize(
    "defect",
    [receive_without_storing_leases, write_although_another_owns_the_shard, go_by_the_clock_of_each_machine],
)
def test_a_defect_is_found(monkeypatch: pytest.MonkeyPatch, defect: Callable[[pytest.MonkeyPatch], None]) -> None:
    defect(monkeypatch)
    assert any(breaks_a_promise(seed) for seed in range(FOUND_WITHIN))


def breaks_a_promise(seed: int) -> bool:
    try:
        simulate_cluster(seed)
    except InvariantBroken:
        return True
    return False
