import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.broker.message import InternalMessage
from tests.rigs.broker import LOCAL, SUBSCRIPTION, TOPIC, BrokerRig, broker_rig

THREADS = 8


@pytest.fixture(params=LOCAL)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerRig]:
    with broker_rig(request, tmp_path) as rig:
        yield rig


def together(work: Callable[[int], list[str]]) -> list[list[str]]:
    """What eight threads give that start at the same moment and are switched as often as Python can."""
    start = threading.Barrier(THREADS)

    def run(number: int) -> list[str]:
        start.wait(timeout=30)
        return work(number)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            futures: list[Future[list[str]]] = [pool.submit(run, number) for number in range(THREADS)]
            return [future.result(timeout=60) for future in futures]
    finally:
        sys.setswitchinterval(before)


def test_publish_pull_ack_and_nack_at_once(rig: BrokerRig) -> None:
    rig.subscribe()
    rig.subscribe("other")
    each = 100

    def work(number: int) -> list[str]:
        mine = []
        for count in range(each):
            rig.publish(f"{number}:{count}")
            for message in rig.pull(3):
                if message.delivery_attempt == 1 and message.data.endswith(b"7"):
                    rig.queue.nack(message.ack_id)
                    continue
                rig.queue.modify_ack_deadline(message.ack_id, 1)
                mine.append(message.data.decode())
                rig.queue.ack(message.ack_id)
        return mine

    received = [text for mine in together(work) for text in mine] + rig.pull_texts(THREADS * each)

    expected = sorted(f"{number}:{count}" for number in range(THREADS) for count in range(each))
    assert sorted(received) == expected
    assert sorted(rig.pull_texts(THREADS * each, "other")) == expected


def test_each_message_goes_to_one_thread(rig: BrokerRig) -> None:
    rig.subscribe()
    rig.queue.publish(TOPIC, [InternalMessage(str(number).encode()) for number in range(800)])

    def work(_: int) -> list[str]:
        mine: list[str] = []
        while pulled := rig.pull_texts(7):
            mine += pulled
        return mine

    received = together(work)

    assert sorted(int(text) for mine in received for text in mine) == list(range(800))
    for mine in received:
        assert [int(text) for text in mine] == sorted(int(text) for text in mine)
    assert rig.queue.counters(SUBSCRIPTION).leased == 800


def test_a_key_keeps_its_order_whichever_thread_takes_it(rig: BrokerRig) -> None:
    rig.subscribe(message_ordering=True)
    seen: dict[str, list[int]] = {f"key-{number}": [] for number in range(THREADS)}

    def work(number: int) -> list[str]:
        key = f"key-{number}"
        for count in range(40):
            rig.publish(str(count), key=key)
            for message in rig.pull(2):
                # No one else has a message of this key before this one is acked, so the list needs no lock.
                seen[message.ordering_key or ""].append(int(message.data))
                rig.queue.ack(message.ack_id)
        return []

    together(work)
    while pulled := rig.pull():
        for message in pulled:
            seen[message.ordering_key or ""].append(int(message.data))
            rig.queue.ack(message.ack_id)

    assert seen == {f"key-{number}": list(range(40)) for number in range(THREADS)}


def test_ids_are_unique_and_increase_in_every_thread(rig: BrokerRig) -> None:
    rig.subscribe()

    made = together(lambda _: [message_id for _ in range(50) for message_id in rig.publish("a", "b")])

    assert len({message_id for ids in made for message_id in ids}) == THREADS * 100
    assert all(ids == sorted(ids) for ids in made)


def test_topics_and_subscriptions_come_and_go_at_once(rig: BrokerRig) -> None:
    rig.subscribe()

    def work(number: int) -> list[str]:
        for _ in range(20):
            rig.subscribe(f"sub-{number}", f"topic-{number}")
            rig.subscribe(f"extra-{number}")
            rig.publish("a", topic=f"topic-{number}")
            rig.publish("b")
            assert rig.pull_texts(name=f"sub-{number}") == ["a"]
            assert "b" in rig.pull_texts(name=f"extra-{number}")
            rig.queue.unregister_subscription(f"extra-{number}")
            rig.queue.unregister_topic(f"topic-{number}")
            rig.queue.unregister_subscription(f"sub-{number}")
        return []

    together(work)

    assert [topic.name for topic in rig.queue.get_all_topics()] == [TOPIC]
    assert [found.name for found in rig.queue.get_all_subscriptions()] == [SUBSCRIPTION]
    assert rig.queue.counters(SUBSCRIPTION).total == THREADS * 20
