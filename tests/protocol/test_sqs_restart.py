"""What a server that was stopped and started again still knows."""

from typing import Any

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from penstock.domain.ids import TsidFactory
from penstock.engine.store.memory import MemoryStore
from penstock.sqs.server import SqsServerSettings, open_service
from penstock.testing.clock import VirtualClock
from tests.services.sqs_server import SqsServer, bodies, counts, drain, receive


def send(client: Any, url: str, group: str, body: str) -> dict[str, str]:
    answer: dict[str, str] = client.send_message(
        QueueUrl=url, MessageBody=body, MessageGroupId=group, MessageDeduplicationId=body
    )
    return answer


def test_everything_comes_back(own_sqs: SqsServer) -> None:
    client = own_sqs.anyone
    attributes = {"FifoQueue": "true", "PartitionCount": "4", "VisibilityTimeout": "77"}
    fifo = client.create_queue(QueueName="orders.fifo", Attributes=attributes, tags={"team": "a"})["QueueUrl"]
    throttled = {"ThrottleSendCapacity": "10", "ThrottleSendRefillPerSecond": "0.001"}
    plain = client.create_queue(QueueName="plain", Attributes=throttled)["QueueUrl"]
    gone = client.create_queue(QueueName="gone")["QueueUrl"]
    client.delete_queue(QueueUrl=gone)
    sent = [send(client, fifo, f"g{number % 5}", str(number)) for number in range(20)]
    named = {"a": {"DataType": "Binary", "BinaryValue": b"\x00\x01"}}
    client.send_message(QueueUrl=plain, MessageBody="ü", MessageAttributes=named)
    client.send_message(QueueUrl=plain, MessageBody="later", DelaySeconds=600)
    (old,) = receive(client, plain)
    (first,) = receive(client, fifo, 1)
    client.delete_message(QueueUrl=fifo, ReceiptHandle=first["ReceiptHandle"])
    (held, *_) = receive(client, fifo, 1)

    assert own_sqs.stop() == 0
    own_sqs.start()

    assert client.list_queues()["QueueUrls"] == [fifo, plain]
    shown = client.get_queue_attributes(QueueUrl=fifo, AttributeNames=["All"])["Attributes"]
    assert (shown["PartitionCount"], shown["VisibilityTimeout"]) == ("4", "77")
    assert client.list_queue_tags(QueueUrl=fifo)["Tags"] == {"team": "a"}
    assert counts(client, fifo) == (19, 0, 0)
    assert sum(counts(client, plain)) == 2
    # A lease ends with the process that gave it; the handles of before are told from those of now.
    client.delete_message(QueueUrl=plain, ReceiptHandle=old["ReceiptHandle"])
    with pytest.raises(ClientError, match="expired"):
        client.delete_message(QueueUrl=fifo, ReceiptHandle=held["ReceiptHandle"])
    (again,) = receive(client, plain)
    assert (again["MessageId"], again["Body"], again["MessageAttributes"]) == (old["MessageId"], "ü", named)
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"
    # Deduplication ids are remembered, deleted messages are not back, sequence numbers go on.
    repeated = send(client, fifo, first["Attributes"]["MessageGroupId"], first["Body"])
    assert repeated["MessageId"] == first["MessageId"]
    assert repeated["SequenceNumber"] == first["Attributes"]["SequenceNumber"]
    send(client, fifo, "g0", "20")
    messages = drain(client, fifo, 20)
    assert {message["MessageId"] for message in messages} >= {s["MessageId"] for s in sent} - {first["MessageId"]}
    for group in range(5):
        of_group = [one for one in messages if one["Attributes"]["MessageGroupId"] == f"g{group}"]
        assert bodies(of_group) == sorted(bodies(of_group), key=int)
        numbers = [one["Attributes"]["SequenceNumber"] for one in of_group]
        assert numbers == sorted(set(numbers))
    for _ in range(10):
        client.send_message(QueueUrl=plain, MessageBody="x")
    with pytest.raises(ClientError, match="Rate exceeded"):
        client.send_message(QueueUrl=plain, MessageBody="x")


async def test_no_two_processes_have_the_same_epoch() -> None:
    """Otherwise a handle of the last process could delete another message of this one: lease numbers start again."""
    clock = VirtualClock()
    epochs = set()
    for _ in range(50):
        async with open_service({"": MemoryStore()}, clock, TsidFactory(1), SqsServerSettings()) as service:
            epochs.add(service.epoch)
        clock.advance(1.024)
    assert len(epochs) == 50
