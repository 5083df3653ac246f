"""FIFO queues as boto3 sees them."""

from typing import Any

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from tests.protocol.conftest import MakeQueue
from tests.services.sqs_server import SqsServer, bodies, counts, receive


def send(client: Any, url: str, group: str, body: str, dedup_id: str | None = None) -> dict[str, str]:
    answer: dict[str, str] = client.send_message(
        QueueUrl=url, MessageBody=body, MessageGroupId=group, MessageDeduplicationId=dedup_id or body
    )
    return answer


def delete(client: Any, url: str, message: dict[str, Any]) -> None:
    client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def test_a_deduplication_id_is_remembered_after_the_delete(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client, fifo=True)
    first = send(client, url, "g", "one", "same")
    (message,) = receive(client, url)
    delete(client, url, message)
    again = send(client, url, "h", "two", "same")
    assert (again["MessageId"], again["SequenceNumber"]) == (first["MessageId"], first["SequenceNumber"])
    assert receive(client, url) == []
    assert message["Attributes"]["MessageDeduplicationId"] == "same"
    assert message["Attributes"]["MessageGroupId"] == "g"
    assert message["Attributes"]["SequenceNumber"] == first["SequenceNumber"]


def test_content_based_deduplication(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client, fifo=True, ContentBasedDeduplication="true")
    ids = [client.send_message(QueueUrl=url, MessageBody=b, MessageGroupId="g")["MessageId"] for b in ("a", "b", "a")]
    assert ids[0] == ids[2] != ids[1]
    send(client, url, "g", "a", "its-own-id-counts-more")
    assert bodies(receive(client, url)) == ["a", "b", "a"]


def test_duplicates_within_one_batch(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client, fifo=True)
    entries = [
        {"Id": str(n), "MessageBody": str(n), "MessageGroupId": "g", "MessageDeduplicationId": str(n % 3)}
        for n in range(5)
    ]
    sent = client.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]
    ids = [entry["MessageId"] for entry in sent]
    assert ids[3:] == ids[:2]
    assert bodies(receive(client, url)) == ["0", "1", "2"]


def test_what_a_send_must_carry(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client, fifo=True)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"MessageDeduplicationId": "d"}, "MissingParameter"),
        ({"MessageGroupId": "g"}, "InvalidParameterValue"),
        ({"MessageGroupId": "g", "MessageDeduplicationId": "d", "DelaySeconds": 1}, "InvalidParameterValue"),
        ({"MessageGroupId": "a group", "MessageDeduplicationId": "d"}, "InvalidParameterValue"),
        ({"MessageGroupId": "g" * 129, "MessageDeduplicationId": "d"}, "InvalidParameterValue"),
        ({"MessageGroupId": "g", "MessageDeduplicationId": "d" * 129}, "InvalidParameterValue"),
    ]
    for parameters, code in refused:
        with pytest.raises(ClientError) as caught:
            client.send_message(QueueUrl=url, MessageBody="x", **parameters)
        assert caught.value.response["Error"]["Code"] == code
    standard = make_queue(client)
    with pytest.raises(ClientError, match="not valid for this queue type"):
        client.send_message(QueueUrl=standard, MessageBody="x", MessageDeduplicationId="d")


def test_sequence_numbers(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client, fifo=True)
    numbers = [send(client, url, f"g{number % 2}", str(number))["SequenceNumber"] for number in range(6)]
    assert all(len(number) == 20 and number.isdigit() for number in numbers)
    assert numbers == sorted(set(numbers))


def test_a_group_waits_for_its_first(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client, fifo=True)
    for body in ("a1", "a2", "b1", "a3"):
        send(client, url, body[0], body)
    (first,) = receive(client, url, 1)
    assert first["Body"] == "a1"
    others = receive(client, url)
    assert bodies(others) == ["b1"]
    assert receive(client, url) == []
    delete(client, url, first)
    assert bodies(receive(client, url)) == ["a2", "a3"]
    assert counts(client, url) == (0, 3, 0)


def test_several_of_a_group_and_the_rest_waits_for_all_of_them(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client, fifo=True)
    for number in range(5):
        send(client, url, "g", str(number))
    taken = receive(client, url, 3)
    assert bodies(taken) == ["0", "1", "2"]
    for message in taken[:2]:
        delete(client, url, message)
        assert receive(client, url) == []
    delete(client, url, taken[2])
    assert bodies(receive(client, url)) == ["3", "4"]


def test_an_earlier_message_that_came_back_is_received_though_later_ones_are_in_flight(
    sqs: SqsServer, make_queue: MakeQueue
) -> None:
    client = sqs.anyone
    url = make_queue(client, fifo=True)
    for number in range(4):
        send(client, url, "g", str(number))
    first, second, third = receive(client, url, 3)
    client.change_message_visibility(QueueUrl=url, ReceiptHandle=third["ReceiptHandle"], VisibilityTimeout=0)
    assert receive(client, url) == []
    client.change_message_visibility(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0)
    (again,) = receive(client, url)
    assert again["Body"] == "0"
    delete(client, url, second)
    assert receive(client, url) == []
    delete(client, url, again)
    assert bodies(receive(client, url)) == ["2", "3"]


def test_a_purge_forgets_deduplication_ids(own_sqs: SqsServer) -> None:
    client = own_sqs.anyone
    url = client.create_queue(QueueName="purged.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    before = send(client, url, "g", "same")
    client.purge_queue(QueueUrl=url)
    after = send(client, url, "g", "same")
    assert after["MessageId"] != before["MessageId"]
    assert own_sqs.stop() == 0
    own_sqs.start()
    assert send(client, url, "g", "same")["MessageId"] == after["MessageId"]
    assert [message["MessageId"] for message in receive(client, url)] == [after["MessageId"]]


def test_order_after_the_visibility_timeout(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client, fifo=True)
    for number in range(4):
        send(client, url, "g", str(number))
    taken = receive(client, url, 3, VisibilityTimeout=4)
    delete(client, url, taken[1])
    again = receive(client, url, WaitTimeSeconds=20)
    if len(again) < 3:  # it was woken between the ends of two leases
        assert bodies(again) == ["0"]
        delete(client, url, again[0])
        again = [*again, *receive(client, url, WaitTimeSeconds=20)]
    assert bodies(again) == ["0", "2", "3"]
    assert [message["Attributes"]["ApproximateReceiveCount"] for message in again] == ["2", "2", "1"]
    for parameters in ({}, {"VisibilityTimeout": 1}):
        call = client.change_message_visibility if parameters else client.delete_message
        with pytest.raises(ClientError) as caught:
            call(QueueUrl=url, ReceiptHandle=taken[0]["ReceiptHandle"], **parameters)
        expected = ("InvalidParameterValue", "InvalidParameterValueException")
        code = caught.value.response["Error"]["Code"]
        assert code in (expected if parameters else ("InvalidParameterValue",))


def test_an_expired_handle_is_an_error(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client, fifo=True)
    send(client, url, "g", "x")
    (message,) = receive(client, url, VisibilityTimeout=0)
    with pytest.raises(ClientError, match="The receipt handle has expired") as caught:
        delete(client, url, message)
    assert caught.value.response["Error"]["Code"] == "InvalidParameterValue"
    assert counts(client, url) == (1, 0, 0)


def test_a_repeated_delete_succeeds(sqs: SqsServer, make_queue: MakeQueue) -> None:
    """A client that did not get the answer asks again."""
    client = sqs.anyone
    url = make_queue(client, fifo=True)
    send(client, url, "g", "one")
    send(client, url, "g", "two")
    (first,) = receive(client, url, 1)
    delete(client, url, first)
    delete(client, url, first)
    (second,) = receive(client, url, 1)
    entries = [{"Id": str(n), "ReceiptHandle": second["ReceiptHandle"]} for n in range(3)]
    answer = client.delete_message_batch(QueueUrl=url, Entries=entries)
    assert [each["Id"] for each in answer["Successful"]] == ["0", "1", "2"]
    assert "Failed" not in answer
    assert counts(client, url) == (0, 0, 0)


def test_a_handle_of_an_earlier_receive_is_an_error(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client, fifo=True)
    send(client, url, "g", "x")
    (earlier,) = receive(client, url, VisibilityTimeout=0)
    (later,) = receive(client, url)
    for _ in range(2):
        with pytest.raises(ClientError, match="The receipt handle has expired"):
            delete(client, url, earlier)
        delete(client, url, later)


def test_visibility_zero_gives_back_in_order(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client, fifo=True)
    for number in range(3):
        send(client, url, "g", str(number))
    taken = receive(client, url, 2)
    for message in reversed(taken):
        client.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
    assert bodies(receive(client, url)) == ["0", "1", "2"]


def test_a_receive_attempt_is_repeated(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client, fifo=True)
    for body in ("a1", "a2", "b1"):
        send(client, url, body[0], body)
    first = receive(client, url, 2, ReceiveRequestAttemptId="attempt")
    for timeout_s in (40, 50, 60):  # each moves the moment that the next one finds the messages leased until
        again = receive(client, url, 2, ReceiveRequestAttemptId="attempt", VisibilityTimeout=timeout_s)
        assert [message["MessageId"] for message in again] == [message["MessageId"] for message in first]
    other = receive(client, url, 2, ReceiveRequestAttemptId="another-attempt")
    assert not {message["MessageId"] for message in other} & {message["MessageId"] for message in first}
    delete(client, url, again[0])
    assert receive(client, url, 2, ReceiveRequestAttemptId="attempt") == []


def test_aws_high_throughput_settings(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client, fifo=True, DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId")
    attributes = client.get_queue_attributes(QueueUrl=url, AttributeNames=["All", "PartitionCount"])["Attributes"]
    assert attributes["PartitionCount"] == "1"
    assert attributes["FifoQueue"] == "true"
    ids = {send(client, url, group, "x", "same-id-in-every-group")["MessageId"] for group in ("a", "b", "c", "a")}
    assert len(ids) == 3


def test_kinds_do_not_mix(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client)
    with pytest.raises(client.exceptions.InvalidAttributeName):
        client.set_queue_attributes(QueueUrl=url, Attributes={"ContentBasedDeduplication": "true"})
    with pytest.raises(ClientError):
        client.create_queue(QueueName="a-standard-queue", Attributes={"FifoQueue": "false"})
