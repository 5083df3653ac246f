"""Writing copies to a real SQS server, without Spark: in order, none twice, and nothing beside someone else's."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.message import partition_of
from penstock.history.errors import CannotRepartition, QueueInUse
from penstock.history.repartition.copy import (
    MOST_BYTES,
    MOST_ENTRIES,
    Copy,
    CopyOrigin,
    batches,
    origin_of,
    write_copies,
)
from penstock.history.repartition.messages import QueueAccess
from penstock.history.repartition.runner import attributes_at_the_end, attributes_for, create_target, finish_target
from penstock.sqs.queue.snapshot import SnapshotMessage
from tests.services.sqs_server import SqsServer, running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqsServer]:
    with running(tmp_path_factory.mktemp("sqs"), "--memory") as server:
        yield server


def queue(server: SqsServer, **attributes: Any) -> QueueAccess:
    texts = {"FifoQueue": "true", **{name: str(value) for name, value in attributes.items()}}
    return QueueAccess(server.anyone.create_queue(QueueName=f"{uuid4().hex}.fifo", Attributes=texts)["QueueUrl"])


def copy_of(group: str, sequence: int, body: str = "body", **fields: Any) -> Copy:
    dedup_id = CopyOrigin(0, sequence, fields.pop("message_id", f"m{sequence}")).dedup_id
    return Copy(group, dedup_id, sequence, body, fields.pop("attributes", "{}"), fields.pop("trace", None))


def held(target: QueueAccess, partition: int = 0) -> list[SnapshotMessage]:
    with target.client() as client:
        return [message for page in target.messages(client, partition) for message in page]


def test_copies_are_written_in_order_with_all_that_they_have(server: SqsServer) -> None:
    target = queue(server)
    attributes = '{"b":{"DataType":"Binary.x","BinaryValue":"AP8="},"n":{"DataType":"Number","StringValue":"7"}}'
    copies = [
        copy_of(f"g{number % 3}", number, f"ü {number}", attributes=attributes, trace="Root=1")
        for number in range(1, 36)
    ]
    assert write_copies(target, 0, copies) == 35
    there = held(target)
    assert [message.body for message in there] == [copy.body for copy in copies]
    assert there[0].attributes["b"].binary_value == b"\x00\xff"
    assert there[0].trace == "Root=1"
    assert [origin_of(message) for message in there] == [
        CopyOrigin(0, copy.sequence, f"m{copy.sequence}") for copy in copies
    ]


def test_what_is_there_is_not_written_again_however_long_ago_it_was(server: SqsServer) -> None:
    target = queue(server)
    write_copies(target, 0, [copy_of("a", 1), copy_of("b", 2), copy_of("a", 3)])
    # Other ids than those written: the server's deduplication, which forgets after five minutes, knows nothing of them.
    again = [
        copy_of(group, sequence, message_id="later")
        for group, sequence in (("a", 1), ("b", 2), ("a", 3), ("b", 4), ("c", 5))
    ]
    assert write_copies(target, 0, again) == 2
    assert [(message.group, message.body) for message in held(target)] == [(group, "body") for group in "ababc"]


def test_a_queue_that_others_send_to_is_refused(server: SqsServer) -> None:
    target = queue(server)
    server.anyone.send_message(
        QueueUrl=target.url, MessageBody="x", MessageGroupId="a", MessageDeduplicationId="theirs"
    )
    with pytest.raises(QueueInUse, match="another sender"):
        write_copies(target, 0, [copy_of("a", 1)])


def test_a_refused_message_stops_the_copying(server: SqsServer) -> None:
    target = queue(server, MaximumMessageSize=1024)
    with pytest.raises(QueueInUse, match="refused 1 messages"):
        write_copies(target, 0, [copy_of("a", 1, "x" * 2000)])


@given(
    st.lists(
        st.builds(copy_of, st.just("g"), st.integers(1, 9), st.text("aü", max_size=40).map(lambda text: text * 4000)),
        max_size=40,
    )
)
def test_batches_keep_the_order_and_the_limits(copies: list[Copy]) -> None:
    made = list(batches(iter(copies)))
    assert [copy for batch in made for copy in batch] == copies
    for batch in made:
        assert 1 <= len(batch) <= MOST_ENTRIES
        assert len(batch) == 1 or sum(len(copy.body.encode()) + len(copy.attributes) for copy in batch) <= MOST_BYTES


def test_the_target_is_made_like_the_source(server: SqsServer) -> None:
    throttle = {f"Throttle{kind}": "20" for kind in ("SendCapacity", "SendRefillPerSecond")}
    source = queue(server, VisibilityTimeout=77, DelaySeconds=9, PartitionCount=2, **throttle)
    target = source.beside(f"{uuid4().hex}.fifo")
    with source.client() as client:
        create_target(client, source, target, 8)
        create_target(client, source, target, 8)
        made = client.attributes(target.url)
        assert (made["VisibilityTimeout"], made["PartitionCount"], made["DelaySeconds"]) == ("77", "8", "0")
        assert "ThrottleSendCapacity" not in made
        finish_target(client, source, target)
        finished = client.attributes(target.url)
        assert (finished["DelaySeconds"], float(finished["ThrottleSendCapacity"])) == ("9", 20)
        # Found again as it is, by a run that goes on.
        create_target(client, source, target, 8)
        with pytest.raises(CannotRepartition, match="8 partitions, not 4"):
            create_target(client, source, target, 4)


def test_a_write_goes_to_the_partition_that_the_server_chooses(server: SqsServer) -> None:
    target = queue(server, PartitionCount=4)
    groups = [f"g{number}" for number in range(12)]
    for partition in range(4):
        mine = [copy_of(group, number) for number, group in enumerate(groups, 1) if partition_of(group, 4) == partition]
        assert write_copies(target, partition, mine) == len(mine) == len(held(target, partition))


def test_only_fifo_queues() -> None:
    with pytest.raises(CannotRepartition, match="not a FIFO queue"):
        QueueAccess("http://127.0.0.1:9324/000000000000/orders")


def test_attributes_that_are_not_set_are_left_out() -> None:
    assert "RedrivePolicy" not in attributes_for({"RedrivePolicy": ""}, 4)
    assert attributes_at_the_end({"VisibilityTimeout": "3", "DelaySeconds": "1"}) == {"DelaySeconds": "1"}


def test_a_dedup_id_that_is_none_of_ours_has_no_origin() -> None:
    for dedup_id in ("", "theirs", "1-x-m", "1-2", "-1-2-m"):
        message = SnapshotMessage("m", 1, "g", dedup_id, "waiting", "", {}, None)
        assert origin_of(message) is None
