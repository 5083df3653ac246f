"""A body is kept once, however many subscribe."""

import sqlite3
from pathlib import Path

import pytest

from penstock.broker.message import InternalMessage
from penstock.engine.store.memory import MemoryStore
from penstock.engine.store.sqlite import SqliteStore
from tests.rigs.broker import TOPIC, BrokerRig

SUBSCRIPTIONS = [f"subscription-{number}" for number in range(1000)]


def test_a_thousand_subscriptions_share_one_body_in_memory() -> None:
    rig = BrokerRig(MemoryStore)
    for name in SUBSCRIPTIONS:
        rig.subscribe(name)
    body = b"x" * 10_000

    rig.queue.publish(TOPIC, [InternalMessage(body, {"colour": "red"})])

    pulled = [rig.pull_one(name) for name in SUBSCRIPTIONS]
    assert all(message.data is body for message in pulled)
    assert len({id(message.attributes) for message in pulled}) == 1
    assert len({message.ack_id for message in pulled}) == 1000


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "penstock.db"


def segments_with(database: Path, body: bytes) -> int:
    with sqlite3.connect(database) as connection:
        rows = connection.execute("SELECT payload FROM segments").fetchall()
    connection.close()
    return sum(body in payload for (payload,) in rows)


def test_a_thousand_subscriptions_share_one_body_on_disk(database: Path) -> None:
    rig = BrokerRig(lambda: SqliteStore(database, durability="survives-process-crash-only"))
    for name in SUBSCRIPTIONS:
        rig.subscribe(name)
    body = b"0123456789" * 10_000

    rig.queue.publish(TOPIC, [InternalMessage(body)])
    assert segments_with(database, body) == 1
    assert all(rig.pull_one(name).data is body for name in SUBSCRIPTIONS)

    rig.restart()
    pulled = {name: rig.pull_one(name) for name in SUBSCRIPTIONS}
    assert all(message.data == body for message in pulled.values())
    rig.queue.ack_all(message.ack_id for name, message in pulled.items() if name != SUBSCRIPTIONS[500])
    assert segments_with(database, body) == 1
    rig.queue.ack(pulled[SUBSCRIPTIONS[500]].ack_id)
    assert segments_with(database, body) == 0
    rig.queue.close()
