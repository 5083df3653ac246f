"""Memory follows what the broker holds now, not what went through it.

Entries, messages and lanes are invisible to the garbage collector (`gc=False`), so they are counted where they could
be held: the sizes of every container of the engine, and the blocks and bytes that Python's allocator has handed out.
"""

import gc
import sqlite3
import sys
import tracemalloc
from pathlib import Path

import pytest

from penstock.broker.message import InternalMessage
from penstock.broker.options import DeadLetterPolicy
from penstock.domain.retry import RetryPolicy
from penstock.engine.store.memory import MemoryStore
from penstock.engine.store.sqlite import SqliteStore
from tests.rigs.broker import TOPIC, BrokerRig

PLAIN, ORDERED, DEAD = "plain", "ordered", "dead"
ROUND = 1000
HEAP_SLACK = 1024 + 2  # stale moments that a lease table may keep before it rebuilds its heap


def leak_rig(rig: BrokerRig) -> BrokerRig:
    """One subscription in arrival order, one by keys with back-off and dead letters."""
    rig.subscribe(PLAIN)
    rig.subscribe(DEAD, "dead letters")
    rig.subscribe(
        ORDERED,
        message_ordering=True,
        retry_policy=RetryPolicy(minimum_backoff_s=1, maximum_backoff_s=2),
        dead_letter_policy=DeadLetterPolicy(dead_letter_topic="dead letters", max_delivery_attempts=3),
    )
    return rig


def run_round(rig: BrokerRig, number: int, size: int = ROUND) -> int:
    """Publish, and lease until nothing is left: most is acked, some nacked, extended, or left to expire."""
    queue = rig.queue
    queue.publish(TOPIC, [InternalMessage(b"x" * 50, {}, f"{number}-{key}") for key in range(size)])
    leases = 0
    for name in (PLAIN, ORDERED, DEAD):
        while queue.counters(name).total:
            pulled = queue.pull(name, size)
            leases += len(pulled)
            acked = []
            for index, message in enumerate(pulled):
                if index % 100 == 1:
                    queue.nack(message.ack_id)
                elif index % 100 == 2:
                    queue.modify_ack_deadline(message.ack_id, 5)
                    acked.append(message.ack_id)
                elif index % 100 != 3 or message.delivery_attempt > 4:
                    acked.append(message.ack_id)
            queue.ack_all(acked)
            rig.clock.advance(10)
    return leases


def container_sizes(rig: BrokerRig) -> dict[str, int]:
    """How much each container of the broker holds that a message or a lease passes through."""
    ledger = rig.queue._broker.ledger
    sizes = {
        "schedule": len(ledger._schedule._heap),
        "touched": len(ledger._journal._touched),
        "deliveries": len(ledger._journal._deliveries),
        "subscriptions": len(rig.queue._broker._subscriptions),
        "tags": len(rig.queue._broker._by_tag),
        "streams": len(ledger.catalog.by_id),
        "shares": sum(len(stream.shares) for stream in ledger.catalog.by_id.values()),
    }
    for queue in ledger.catalog.queues.values():
        engine, line = queue.engine, queue.engine._line
        sizes |= {
            f"{queue.name} {what}": size
            for what, size in {
                "held": engine.held,
                "held bytes": engine.held_bytes,
                "leased bytes": engine.leased_bytes,
                "leases": len(engine._leases.live),
                "late": len(engine._returned),
                "settling": len(engine._settling),
                "dead letters": len(engine.dead_letters),
                "expired": len(engine.expired),
                "released": len(engine.released or ()),
                "fresh": len(line._fresh),
                "returned": len(line._returned),
                "delayed": len(line._delayed),
                "lanes": len(line.lanes),
                "ring": len(line.ring),
                "acks": len(queue.acks),
            }.items()
        }
    return sizes


def lease_heaps(rig: BrokerRig) -> list[int]:
    return [len(queue.engine._leases._heap) for queue in rig.queue._broker.ledger.catalog.queues.values()]


@pytest.mark.parametrize("count", [100_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_many_leases_leave_every_container_and_the_heap_as_they_were(count: int) -> None:
    rig = leak_rig(BrokerRig(MemoryStore))
    leases = run_round(rig, 0) + run_round(rig, 1)
    gc.collect()
    blocks = sys.getallocatedblocks()

    number = 1
    while leases < count:
        number += 1
        leases += run_round(rig, number)
        assert max(lease_heaps(rig)) <= HEAP_SLACK

    sizes = container_sizes(rig)
    assert sizes.pop("schedule") <= 3
    assert {what: size for what, size in sizes.items() if size} == {"subscriptions": 3, "tags": 3, "streams": 2}
    gc.collect()
    # One small object kept per thousand of a million leases would be a thousand blocks.
    assert sys.getallocatedblocks() - blocks < 1_000 + 2 * len(rig.queue.get_all_subscriptions()) * HEAP_SLACK


def test_leases_take_no_bytes_once_they_are_over() -> None:
    rig = leak_rig(BrokerRig(MemoryStore))
    tracemalloc.start()
    try:
        for number in range(5):
            run_round(rig, number)
        before_bytes, _ = tracemalloc.get_traced_memory()
        leases, number = 0, 5
        while leases < 20_000:
            leases += run_round(rig, number)
            number += 1
        after_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # The body of each message alone has 50 bytes; the stale part of a lease table's heap comes and goes.
    assert after_bytes - before_bytes < 200_000


def test_subscriptions_that_come_and_go_with_leases_leave_nothing() -> None:
    rig = leak_rig(BrokerRig(MemoryStore))
    before = container_sizes(rig)

    for number in range(2_000):
        rig.subscribe(f"guest-{number}", f"inn-{number}")
        rig.publish("leased", "waiting", topic=f"inn-{number}")
        rig.pull(1, f"guest-{number}")
        if number % 2:
            rig.queue.unregister_topic(f"inn-{number}")
            rig.queue.unregister_subscription(f"guest-{number}")
        else:
            rig.queue.unregister_subscription(f"guest-{number}")
            rig.queue.unregister_topic(f"inn-{number}")
        rig.clock.advance(1)
        assert len(rig.queue._broker.ledger._schedule._heap) < 50

    rig.clock.advance(10)
    rig.pull(name=PLAIN)
    assert container_sizes(rig) == before


def test_leases_on_disk_leave_neither_memory_nor_rows(tmp_path: Path) -> None:
    database = tmp_path / "penstock.db"
    rig = leak_rig(BrokerRig(lambda: SqliteStore(database, durability="survives-process-crash-only")))
    run_round(rig, 0)

    leases, number = 0, 0
    while leases < 20_000:
        number += 1
        leases += run_round(rig, number)

    sizes = container_sizes(rig)
    assert sizes.pop("schedule") <= 3
    assert {what: size for what, size in sizes.items() if size} == {"subscriptions": 3, "tags": 3, "streams": 2}
    rig.queue.close()
    connection = sqlite3.connect(database)
    for table in ("segments", "acks", "deliveries", "dedups", "damaged"):
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
    connection.close()
