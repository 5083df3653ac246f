"""Messages belong to the broker once they are published: no one can change them from outside."""

from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType

import pytest

from penstock.broker.message import InternalMessage
from tests.rigs.broker import LOCAL, SUBSCRIPTION, TOPIC, BrokerRig, broker_rig


@pytest.fixture(params=LOCAL)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerRig]:
    with broker_rig(request, tmp_path) as rig:
        yield rig


def test_attributes_changed_after_publish_do_not_reach_anybody(rig: BrokerRig) -> None:
    rig.subscribe()
    attributes = {"colour": "red"}
    rig.queue.publish(TOPIC, [InternalMessage(b"a", attributes)])

    attributes["colour"] = "blue"
    attributes[""] = "unfit"

    assert rig.pull_one().attributes == {"colour": "red"}


def test_what_one_subscriber_does_to_attributes_does_not_reach_another(rig: BrokerRig) -> None:
    rig.subscribe("one")
    rig.subscribe("two")
    rig.queue.publish(TOPIC, [InternalMessage(b"a", {"colour": "red"})])

    with pytest.raises(TypeError):
        rig.pull_one("one").attributes["colour"] = "blue"  # type: ignore[index]

    assert rig.pull_one("two").attributes == {"colour": "red"}


def test_any_mapping_of_strings_will_do_as_attributes(rig: BrokerRig) -> None:
    rig.subscribe()

    rig.queue.publish(TOPIC, [InternalMessage(b"a", MappingProxyType({"colour": "red"})), InternalMessage(b"b")])

    assert [message.attributes for message in rig.pull()] == [{"colour": "red"}, {}]


def test_a_pulled_message_can_be_published_again(rig: BrokerRig) -> None:
    rig.subscribe()
    rig.queue.publish(TOPIC, [InternalMessage(b"a", {"colour": "red"}, "key")])
    first = rig.pull_one()
    rig.queue.ack(first.ack_id)

    (message_id,) = rig.queue.publish(TOPIC, [first])

    again = rig.pull_one()
    assert (again.data, again.attributes, again.ordering_key) == (b"a", {"colour": "red"}, "key")
    assert (again.id, again.delivery_attempt) == (message_id, 1)
    assert message_id != first.id


def test_nothing_to_publish_is_nothing_published(rig: BrokerRig) -> None:
    rig.subscribe()

    assert rig.queue.publish(TOPIC, []) == []
    assert rig.queue.counters(SUBSCRIPTION).total == 0


def test_an_empty_message_is_a_message(rig: BrokerRig) -> None:
    rig.subscribe()
    rig.publish("")

    message = rig.pull_one()

    assert (message.data, message.length, message.attributes, message.ordering_key) == (b"", 0, {}, None)
