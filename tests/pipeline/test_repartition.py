"""A queue rebuilt with another number of partitions, on Spark and a real SQS server."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.domain.message import partition_of
from penstock.history.errors import CannotRepartition, QueueInUse, QueuesDiffer
from penstock.history.repartition.copy import compared, summary
from penstock.history.repartition.messages import MESSAGES, QueueAccess
from penstock.history.repartition.runner import Repartitioned, Repartitioner
from tests.cluster.rig import nodes
from tests.rigs.penstock_process import wait_until
from tests.services.sqs_server import SqsServer, counts, drain, receive, running

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

GROUPS = [f"g{number}" for number in range(9)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqsServer]:
    directory: Path = tmp_path_factory.mktemp("sqs")
    with running(directory, "--data", str(directory / "data")) as server:
        yield server


def send(server: SqsServer, url: str, numbers: range) -> None:
    for number in numbers:
        group = GROUPS[number % len(GROUPS)]
        # The same deduplication id for all of a group would be one message: ids of a backlog may repeat only in time.
        server.anyone.send_message(
            QueueUrl=url, MessageBody=f"{group}:{number}", MessageGroupId=group, MessageDeduplicationId=str(number)
        )


def by_group(bodies: list[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for body in bodies:
        group, _, number = body.partition(":")
        found[group].append(int(number))
    return found


def test_a_queue_is_copied_gone_on_with_and_committed(spark: SparkSession, server: SqsServer) -> None:
    client = server.anyone
    attributes = {"FifoQueue": "true", "PartitionCount": "2", "DelaySeconds": "0", "VisibilityTimeout": "60"}
    source = QueueAccess(client.create_queue(QueueName="orders.fifo", Attributes=attributes)["QueueUrl"])
    target = source.beside("orders-8.fifo")
    send(server, source.url, range(90))
    before = counts(client, source.url)
    repartitioner = Repartitioner(spark, source, target, 8)
    assert repartitioner.run(commit=False) == Repartitioned(90, 9, committed=False)
    assert counts(client, source.url) == before == (90, 0, 0)
    described = server.http("GET", f"/admin/queues/{target.name}").json
    per_partition = [sum(10 for group in GROUPS if partition_of(group, 8) == place) for place in range(8)]
    assert described["partition_messages"] == per_partition

    # More arrives, and a consumer has something: the commit waits for it.
    send(server, source.url, range(90, 108))
    (taken,) = receive(client, source.url, 1, VisibilityTimeout=60)
    with pytest.raises(QueueInUse, match=r"1 messages of orders\.fifo are being processed"):
        repartitioner.run(commit=True)
    client.change_message_visibility(QueueUrl=source.url, ReceiptHandle=taken["ReceiptHandle"], VisibilityTimeout=0)
    assert repartitioner.run(commit=True) == Repartitioned(108, 9, committed=True)
    with pytest.raises(client.exceptions.QueueDoesNotExist):
        client.get_queue_url(QueueName="orders.fifo")
    came = by_group([message["Body"] for message in drain(client, target.url, 108)])
    assert came == by_group([f"{GROUPS[number % 9]}:{number}" for number in range(108)])


def test_what_was_consumed_meanwhile_is_found_before_the_source_is_deleted(
    spark: SparkSession, server: SqsServer
) -> None:
    client = server.anyone
    attributes = {"FifoQueue": "true", "PartitionCount": "4"}
    source = QueueAccess(client.create_queue(QueueName="bills.fifo", Attributes=attributes)["QueueUrl"])
    target = source.beside("bills-1.fifo")
    send(server, source.url, range(18))
    repartitioner = Repartitioner(spark, source, target, 1)
    assert repartitioner.run(commit=False).messages == 18
    drain(client, source.url, 1)
    with pytest.raises(QueuesDiffer, match=r"with 0 messages there and 2 here"):
        repartitioner.run(commit=True)
    assert counts(client, source.url)[0] >= 1


def rows(spark: SparkSession, contents: list[tuple[int, str, str, str]]) -> DataFrame:
    """Messages by sequence, group, id of the source's message, and body."""
    values = [
        (0, sequence, message_id, group, f"0-{message_id}-{message_id}", body, "{}", None)
        for sequence, group, message_id, body in contents
    ]
    return spark.createDataFrame(values, MESSAGES)


def test_other_contents_and_another_order_are_seen(spark: SparkSession) -> None:
    source = rows(
        spark,
        [
            (1, "same", "1", "x"),
            (2, "same", "2", "x"),
            (3, "swapped", "3", "x"),
            (4, "swapped", "4", "x"),
            (5, "changed", "5", "x"),
            (6, "short", "6", "x"),
            (7, "short", "7", "x"),
            (8, "missing", "8", "x"),
        ],
    )
    target = rows(
        spark,
        [
            (11, "same", "1", "x"),
            (12, "same", "2", "x"),
            (13, "swapped", "4", "x"),
            (14, "swapped", "3", "x"),
            (15, "changed", "5", "y"),
            (16, "short", "6", "x"),
            (17, "extra", "9", "x"),
        ],
    )
    groups = compared(source, target)
    found = {row["group"]: tuple(row)[1:] for row in groups.collect()}
    assert found == {
        "same": (2, 2, True),
        "swapped": (2, 2, False),
        "changed": (1, 1, False),
        "short": (2, 1, False),
        "missing": (1, 0, False),
        "extra": (0, 1, False),
    }
    (row,) = summary(groups).collect()
    assert (row["messages"], row["groups"], row["differ"], tuple(row["first"])) == (7, 6, 5, ("changed", 1, 1))


@pytest.mark.parametrize("partitions", [0, 3, 64])
def test_a_number_of_partitions_that_no_queue_has(spark: SparkSession, partitions: int) -> None:
    source = QueueAccess("http://127.0.0.1:1/000000000000/orders.fifo")
    with pytest.raises(CannotRepartition, match="1, 2, 4, 8, 16 or 32"):
        Repartitioner(spark, source, source.beside("other.fifo"), partitions)
    with pytest.raises(CannotRepartition, match="must not be the source"):
        Repartitioner(spark, source, source, 4)


def test_messages_are_read_without_their_credentials_in_the_plan(spark: SparkSession, capsys: Any) -> None:
    from penstock.history.repartition.messages import messages_of
    from penstock.sqs.auth.signer import Signer

    queue = QueueAccess("http://127.0.0.1:1/000000000000/orders.fifo", Signer("key-id", "hidden-secret", "us-east-1"))
    messages_of(spark, queue, 2).explain(True)
    assert "hidden-secret" not in capsys.readouterr().out


def test_a_queue_of_several_nodes_is_repartitioned_through_any_of_them(
    spark: SparkSession, postgres_database: str, tmp_path: Path
) -> None:
    """Four shards over two nodes: source and target may belong to different ones, and either node passes it on."""
    with nodes(tmp_path, [postgres_database] * 2, shards=4) as (first, second):
        wait_until(lambda: set(first.owners().values()) == {"node-0", "node-1"})
        attributes = {"FifoQueue": "true", "PartitionCount": "2"}
        for asked, name in ((first, "orders.fifo"), (second, "bills.fifo")):
            url = asked.anyone.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
            send(asked, url, range(36))
            source = QueueAccess(f"{second.url}/000000000000/{name}")
            repartitioner = Repartitioner(spark, source, source.beside(f"more-{name}"), 4)
            assert repartitioner.run(commit=True) == Repartitioned(36, 9, committed=True)
            target = first.anyone.get_queue_url(QueueName=f"more-{name}")["QueueUrl"]
            came = by_group([message["Body"] for message in drain(first.anyone, target, 36)])
            assert came == by_group([f"{GROUPS[number % 9]}:{number}" for number in range(36)])
